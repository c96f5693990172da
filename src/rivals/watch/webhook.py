"""A sink that posts to an address of HTTP whenever what is seen changes."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from rivals.errors import RivalsError
from rivals.watch.frame import Notices, Sighting
from rivals.watch.outbox import QUEUE, Outbox

TIMEOUT = 5.0  # seconds for one post


class NoRedirects(HTTPRedirectHandler):
    """Posts go where the user said, and nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        return None


class WebhookSink:
    """Posts what `Sighting.to_dict` gives as JSON."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RivalsError("--webhook needs an address that begins with http:// or https://.")
        self.url, self.name = url, f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self.opener, self.notices = build_opener(NoRedirects), Notices()
        self.outbox = Outbox("webhook", self._post, self._trouble, self._well)

    def send(self, sighting: Sighting) -> None:
        if sighting.changed:
            self.outbox.put(json.dumps(sighting.to_dict()).encode())

    def close(self) -> None:
        self.outbox.close()

    def _post(self, body: bytes) -> None:
        headers = {"Content-Type": "application/json", "User-Agent": "rivals"}
        request = Request(self.url, body, headers, method="POST")
        with self.opener.open(request, timeout=TIMEOUT):
            pass

    def _trouble(self, error: Exception) -> None:
        self.notices.trouble(
            f"The webhook {self.name} does not take answers ({reason(error)}); the last {QUEUE} "
            "are kept for it."
        )

    def _well(self) -> None:
        self.notices.well(f"The webhook {self.name} takes answers again.")


def reason(error: Exception) -> str:
    if isinstance(error, HTTPError):
        return f"status {error.code}"
    inner = getattr(error, "reason", error)
    return getattr(inner, "strerror", None) or str(inner) or type(error).__name__
