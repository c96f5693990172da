"""The HTTP server: on this machine only, or on all addresses; always with a token."""

from __future__ import annotations

import os
import secrets
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import uvicorn

from rivals.errors import RivalsError
from rivals.io.process_memory import return_freed_blocks
from rivals.io.reading import read_bytes
from rivals.web.app import make_app
from rivals.web.connections import WebConnection
from rivals.web.guard import Guard, is_address, is_loopback
from rivals.web.service import Service

TOKEN = "RIVALS_TOKEN"  # environment variable with a fixed token
MIN_TOKEN = 16  # characters
MAX_TOKEN = 1000
MAX_HEAD = 16 * 2**10  # bytes of a request before its body
OPENING = """<!doctype html><title>rivals</title>
<meta http-equiv="refresh" content="0; url={url}"><a href="{url}">Open the page</a>
"""


@dataclass(frozen=True)
class Address:
    """The address of the page."""

    host: str
    port: int
    token: str

    @property
    def url(self) -> str:
        host = _own_address() if self.host in ("0.0.0.0", "::") else self.host
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{self.port}/?token={self.token}"

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it."""
        return is_loopback(self.host)


class Server(uvicorn.Server):
    """Ends the event streams of open pages when it is asked to stop."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.service.closing.set()
        super().handle_exit(sig, frame)


def serve(
    model: Path,
    host: str,
    port: int,
    ready: Callable[[Address], None],
    token_file: Path | None = None,
    browser: bool = False,
    ancestor: str | None = None,
) -> None:
    """Serve until a signal; `ready` is called once the server accepts connections."""
    token = own_token(token_file)
    listening = listen(host, port)
    address = Address(host, listening.getsockname()[1], token)
    return_freed_blocks()
    service = Service(model, ancestor=ancestor)
    try:
        app = Guard(make_app(service), host, address.port, token)
        config = uvicorn.Config(
            app, log_level="error", access_log=False, server_header=False, http=WebConnection,
            h11_max_incomplete_event_size=MAX_HEAD, timeout_graceful_shutdown=5, lifespan="off",
            ws="none",
        )  # fmt: skip
        signal.signal(signal.SIGTERM, _stop)  # uvicorn restores this handler when it stops
        ready(address)
        if browser:
            service.open_browser(OPENING.format(url=address.url))
        Server(config, service).run([listening])
    finally:
        service.close()


def _stop(number: int, frame: FrameType | None) -> None:
    """Raise an exception, so that `serve` stops a running training."""
    raise KeyboardInterrupt


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; RivalsError if the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio sends small answers at once (TCP_NODELAY).
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(128)
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise RivalsError(
            f"Could not listen on {host}, port {port} ({reason}); "
            "choose another with --host or --port."
        ) from error
    return listening


def own_token(file: Path | None = None) -> str:
    """The token of a file or of the environment, or a new one.

    It is no argument of the command line, which all users of a machine can read.
    """
    if file is not None:
        given, source = _token_of(file), str(file)
    elif TOKEN in os.environ:
        given, source = os.environ[TOKEN], f"${TOKEN}"
    else:
        return secrets.token_urlsafe(24)
    allowed = all(each.isascii() and (each.isalnum() or each in "-_") for each in given)
    if not allowed or not MIN_TOKEN <= len(given) <= MAX_TOKEN:
        raise RivalsError(
            f"The token in {source} must have at least {MIN_TOKEN} letters, digits, dashes or "
            "underscores."
        )
    return given


def _token_of(file: Path) -> str:
    text = read_bytes(file, "token file", 2 * MAX_TOKEN).decode("ascii", "replace").strip()
    if os.name != "nt" and file.stat().st_mode & 0o077:
        raise RivalsError(f"Others may read the token file {file}; run chmod 600 {file}.")
    return text


def _own_address() -> str:
    """The address of this machine that others most likely reach; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            name = str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()
    return name if is_address(name) else socket.gethostname()
