"""The HTTP server: on this machine only, or on all addresses with a token."""

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
from rivals.web.guard import Guard, is_address, is_loopback
from rivals.web.service import Service

TOKEN = "RIVALS_TOKEN"  # environment variable with a fixed token
MIN_TOKEN = 16  # characters


@dataclass(frozen=True)
class Address:
    """The address of the page."""

    host: str
    port: int
    token: str | None

    @property
    def url(self) -> str:
        host = _own_address() if self.host in ("0.0.0.0", "::") else self.host
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{self.port}/" + (f"?token={self.token}" if self.token else "")


class Server(uvicorn.Server):
    """Ends the event streams of open pages when it is asked to stop."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.service.closing.set()
        super().handle_exit(sig, frame)


def serve(model: Path, host: str, port: int, ready: Callable[[Address], None]) -> None:
    """Serve until a signal; `ready` is called once the server accepts connections."""
    listening = listen(host, port)
    address = Address(host, listening.getsockname()[1], None if is_loopback(host) else token())
    service = Service(model)
    try:
        app = Guard(make_app(service), host, address.port, address.token)
        config = uvicorn.Config(
            app, log_level="error", access_log=False, server_header=False, limit_concurrency=100,
            timeout_graceful_shutdown=5, lifespan="off", ws="none",
        )  # fmt: skip
        signal.signal(signal.SIGTERM, _stop)  # uvicorn restores this handler when it stops
        ready(address)
        Server(config, service).run([listening])
    finally:
        service.close()


def _stop(number: int, frame: FrameType | None) -> None:
    """Raise an exception, so that `serve` stops a running training."""
    raise KeyboardInterrupt


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; RivalsError if the address cannot be used."""
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
    """The token of the environment, or a new one."""
    given = os.environ.get(TOKEN)
    if given is None:
        return secrets.token_urlsafe(24)
    if len(given) < MIN_TOKEN or not all(each.isalnum() or each in "-_" for each in given):
        raise RivalsError(
            f"${TOKEN} must have at least {MIN_TOKEN} letters, digits, dashes or underscores."
        )
    return given


def _own_address() -> str:
    """The address of this machine that others most likely reach; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            name = str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()
    return name if is_address(name) else socket.gethostname()
