"""Checks every request: host name, origin and token.

Host      a name or address of this machine, against DNS rebinding
Origin    only our own page may send requests, against cross-site request forgery
token     on every request, if the server listens on more than this machine
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import socket
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' blob:; media-src blob:; connect-src 'self'; manifest-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(self), microphone=(), geolocation=()",
}
SAFE = ("GET", "HEAD")
A_YEAR = 365 * 24 * 3600


@dataclass(frozen=True)
class Refusal:
    """The response to a request that is not allowed."""

    status: int
    message: str


class Guard:
    """ASGI middleware that passes on only allowed requests."""

    def __init__(self, app: ASGIApp, host: str, port: int, token: str | None = None) -> None:
        self.app, self.port, self.token = app, port, token
        self.cookie = f"rivals-{port}"  # cookies are shared by all ports of a host
        self.names = {"localhost", host.lower()}
        if not is_loopback(host):
            name = socket.gethostname().lower()
            self.names |= {name, f"{name}.local", socket.getfqdn().lower()}
        self.any_address = not is_loopback(host)  # the address that others use is not known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {
            key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]
        }
        secure = with_headers(send, scope["path"])
        if self._has_token(scope):
            await self._set_cookie(secure)
            return
        refusal = self._check(scope, headers)
        if refusal is None:
            await self.app(scope, receive, secure)
        else:
            await refuse(secure, refusal)

    def _check(self, scope: Scope, headers: dict[str, str]) -> Refusal | None:
        host, method, path = headers.get("host", ""), scope["method"], scope["path"]
        if not self._is_ours(host):
            return Refusal(
                421,
                "This is not an address of this server; use the one that it printed at its start.",
            )
        site = headers.get("sec-fetch-site", "none")
        visit = method in SAFE and path == "/" and headers.get("sec-fetch-mode") == "navigate"
        if site not in ("same-origin", "none") and not visit:
            return Refusal(403, "The request came from another page; use the page of this server.")
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return Refusal(403, "The request came from another page; use the page of this server.")
        if self.token is not None and not self._has_cookie(headers.get("cookie", "")):
            return Refusal(
                401, "A token is required; open the address that the server printed at its start."
            )
        return None

    def _is_ours(self, host: str) -> bool:
        try:
            parts = urlsplit(f"//{host}")
            name, port = (parts.hostname or "").lower(), parts.port
        except ValueError:
            return False
        if (port or 80) != self.port and port is not None:
            return False
        if name in self.names or is_loopback(name):
            return True
        return self.any_address and is_address(name)

    def _has_token(self, scope: Scope) -> bool:
        """Whether this is the printed address; its token becomes a cookie."""
        if self.token is None or scope["path"] != "/" or scope["method"] != "GET":
            return False
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        return hmac.compare_digest(given.encode(), self.token.encode())

    def _has_cookie(self, text: str) -> bool:
        try:
            morsel = SimpleCookie(text).get(self.cookie)
        except CookieError:
            return False
        given = morsel.value if morsel is not None else ""
        return hmac.compare_digest(given.encode(), (self.token or "").encode())

    async def _set_cookie(self, send: Send) -> None:
        cookie = f"{self.cookie}={self.token}; HttpOnly; SameSite=Lax; Path=/; Max-Age={A_YEAR}"
        headers = [(b"location", b"/"), (b"set-cookie", cookie.encode())]
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(name: str) -> bool:
    """Whether only this machine can be reached by it."""
    return name == "localhost" or (is_address(name) and ipaddress.ip_address(name).is_loopback)


def with_headers(send: Send, path: str) -> Send:
    """Adds the security headers to every response."""
    extra = [(key.lower().encode(), value.encode()) for key, value in HEADERS.items()]

    async def secure(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", []))
            if not any(key.lower() == b"cache-control" for key, _ in headers):
                headers.append((b"cache-control", b"no-store"))
            message["headers"] = headers + extra
        await send(message)

    return secure


async def refuse(send: Send, refusal: Refusal) -> None:
    body = json.dumps({"message": refusal.message}).encode()
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
