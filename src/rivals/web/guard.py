"""Checks every request: host name, origin and token.

Host      a name or address of this machine, against DNS rebinding
Origin    only our own page may send requests, against cross-site request forgery
cookie    on every request; the address with the token, which the server prints, gives it

The cookie is not the token: it is random, and worth nothing once the server has ended. A program
may send the token itself in the header Authorization, as `Bearer TOKEN`; no page of others can.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import secrets
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
HERE = ("same-origin", "none")  # "none": typed, or opened by another program
NO_TOKEN = "A token is required; open the address that the server printed at its start."
NOT_OURS = "This is not an address of this server; use the one that it printed at its start."
FOREIGN = "The request came from another page; use the page of this server."
REFUSED = (
    '<!doctype html><html lang="en"><meta name="viewport" content="width=device-width">'
    "<title>rivals</title><main><h1>{}</h1></main>"
)
# A browser does not send our cookie when a link on another page leads here; from here it does.
HERE_AGAIN = b'<!doctype html><title>rivals</title><meta http-equiv="refresh" content="0; url=/">'


@dataclass(frozen=True)
class Refusal:
    """The response to a request that is not allowed."""

    status: int
    message: str


class Guard:
    """ASGI middleware that passes on only allowed requests."""

    def __init__(self, app: ASGIApp, host: str, port: int, token: str) -> None:
        self.app, self.port, self.token = app, port, token
        self.session = secrets.token_urlsafe(32)
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
        refusal = self._check(scope, headers)
        if refusal is not None:
            await refuse(secure, refusal, is_visit(scope, headers))
        elif self._has_token(scope):
            cookie = f"{self.cookie}={self.session}; HttpOnly; SameSite=Strict; Path=/"
            await respond(secure, 303, b"", {"location": "/", "set-cookie": cookie})
        elif self._has_cookie(headers.get("cookie", "")) or self._has_bearer(headers):
            await self.app(scope, receive, secure)
        elif is_visit(scope, headers) and not from_here(headers):
            await respond(secure, 200, HERE_AGAIN, {"content-type": "text/html; charset=utf-8"})
        else:
            await refuse(secure, Refusal(401, NO_TOKEN), is_visit(scope, headers))

    def _check(self, scope: Scope, headers: dict[str, str]) -> Refusal | None:
        host = headers.get("host", "")
        if not self._is_ours(host):
            return Refusal(421, NOT_OURS)
        if not from_here(headers) and not is_visit(scope, headers):
            return Refusal(403, FOREIGN)
        origin = headers.get("origin")
        if origin is not None and not _same(origin, host):
            return Refusal(403, FOREIGN)
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
        if scope["path"] != "/" or scope["method"] != "GET":
            return False
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        return hmac.compare_digest(given.encode(), self.token.encode())

    def _has_cookie(self, text: str) -> bool:
        try:
            morsel = SimpleCookie(text).get(self.cookie)
        except CookieError:
            return False
        given = morsel.value if morsel is not None else ""
        return hmac.compare_digest(given.encode(), self.session.encode())

    def _has_bearer(self, headers: dict[str, str]) -> bool:
        given = headers.get("authorization", "").removeprefix("Bearer ")
        return hmac.compare_digest(given.encode(), self.token.encode())


def is_visit(scope: Scope, headers: dict[str, str]) -> bool:
    """Whether a browser goes to the page, by a link or by an address; this changes nothing."""
    navigates = headers.get("sec-fetch-mode") == "navigate"
    return scope["method"] in SAFE and scope["path"] == "/" and navigates


def from_here(headers: dict[str, str]) -> bool:
    return headers.get("sec-fetch-site", "none") in HERE


def _same(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()


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


async def refuse(send: Send, refusal: Refusal, to_person: bool = False) -> None:
    """In JSON for programs and the page; as a page for a person who opened an address."""
    kind, text = "application/json", json.dumps({"message": refusal.message})
    if to_person:
        kind, text = "text/html; charset=utf-8", REFUSED.format(refusal.message)
    headers = {"content-type": kind, "connection": "close"}
    await respond(send, refusal.status, text.encode(), headers)


async def respond(send: Send, status: int, body: bytes, headers: dict[str, str]) -> None:
    headers = {**headers, "content-length": str(len(body))}
    raw = [(key.encode(), value.encode()) for key, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
