"""Listening: on this machine alone, or with a token on all of its addresses."""

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
from rivals.web.app import make_app
from rivals.web.guard import Guard, is_loopback, is_number
from rivals.web.service import Service

TOKEN = "RIVALS_TOKEN"  # a token of one's own, that outlives the server
SHORTEST = 16


@dataclass(frozen=True)
class Address:
    """Where to open the page."""

    host: str
    port: int
    token: str | None

    @property
    def url(self) -> str:
        host = _reached_at() if self.host in ("0.0.0.0", "::") else self.host
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{self.port}/" + (f"?token={self.token}" if self.token else "")


class Server(uvicorn.Server):
    """Lets go of waiting pages when it is asked to end."""

    def __init__(self, config: uvicorn.Config, desk: Service) -> None:
        super().__init__(config)
        self.desk = desk

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.desk.closing.set()
        super().handle_exit(sig, frame)


def serve(model: Path, host: str, port: int, ready: Callable[[Address], None]) -> None:
    """Serve until told to stop; `ready` is called once pages can be asked for."""
    listening = listen(host, port)
    address = Address(host, listening.getsockname()[1], None if is_loopback(host) else token())
    desk = Service(model)
    try:
        app = Guard(make_app(desk), host, address.port, address.token)
        config = uvicorn.Config(
            app, log_level="error", access_log=False, server_header=False, limit_concurrency=100,
            timeout_graceful_shutdown=5, lifespan="off", ws="none",
        )  # fmt: skip
        signal.signal(signal.SIGTERM, _stop)  # what uvicorn leaves us with when it is done
        ready(address)
        Server(config, desk).run([listening])
    finally:
        desk.close()


def _stop(number: int, frame: FrameType | None) -> None:
    """Leave by an exception, so that a training is ended and not left alone."""
    raise KeyboardInterrupt


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
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


def token() -> str:
    """The one in the environment, or a fresh one."""
    given = os.environ.get(TOKEN)
    if given is None:
        return secrets.token_urlsafe(24)
    if len(given) < SHORTEST or not all(each.isalnum() or each in "-_" for each in given):
        raise RivalsError(
            f"${TOKEN} must have at least {SHORTEST} letters, digits, dashes or underscores."
        )
    return given


def _reached_at() -> str:
    """The number under which others most likely see this machine; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            name = str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()
    return name if is_number(name) else socket.gethostname()
