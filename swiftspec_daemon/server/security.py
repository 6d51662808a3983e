"""Decides, before anything else looks at a request, whether it may pass. Pure ASGI middleware.

The daemon serves programs of this user on this machine. A web page in the user's browser can
reach loopback addresses too, so a request must name a loopback host with our port (against DNS
rebinding), must not come from a page that is not allowed (`Origin`, `Sec-Fetch-Site`), and must
show the token. No CORS headers are ever sent. Knows nothing of what the paths do.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
from collections.abc import Iterable

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from swiftspec_daemon.errors import SwiftSpecError, Unauthorized, UsageError
from swiftspec_daemon.protocol.messages import SUBPROTOCOL

_log = logging.getLogger(__name__)

PUBLIC_PATHS = frozenset({"/", "/health", "/ready"})
"""Answer without a token, and tell nothing."""
BEARER_SUBPROTOCOL = "bearer."
_SINGLE = (b"host", b"origin", b"authorization", b"sec-fetch-site")
_FRIENDLY_SITES = (b"none", b"same-origin")


class Refusal(Exception):
    """An HTTP status, and the error that says what is wrong."""

    def __init__(self, status: int, error: SwiftSpecError) -> None:
        super().__init__(status, error)
        self.status = status
        self.error = error


class SecurityMiddleware:
    """Passes on what may pass, and answers the rest with 400, 401, 403 or 421."""

    def __init__(self, app: ASGIApp, *, token: str, allowed_origins: Iterable[str]) -> None:
        self._app = app
        self._token = token.encode()
        self._origins = frozenset(origin.encode() for origin in allowed_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            self._check(scope)
        except Refusal as refusal:
            _log.info("refused a request with %s: %s", refusal.status, refusal.error.message)
            await refuse(scope, send, refusal.status, refusal.error)
        else:
            await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = _headers(scope)
        if not _is_our_host(headers.get(b"host", b""), scope):
            raise Refusal(421, UsageError("The Host header does not name this daemon."))
        origin = headers.get(b"origin")
        if origin is not None and origin not in self._origins:
            raise Refusal(403, Unauthorized("Pages of this origin may not use the daemon."))
        site = headers.get(b"sec-fetch-site")
        if origin is None and site is not None and site not in _FRIENDLY_SITES:
            raise Refusal(403, Unauthorized("Other sites' pages may not use the daemon."))
        if scope["type"] == "websocket" or scope["path"] not in PUBLIC_PATHS:
            self._check_token(scope, headers.get(b"authorization"))

    def _check_token(self, scope: Scope, authorization: bytes | None) -> None:
        shown = _bearer(authorization) or _offered_token(scope)
        if shown is None or not hmac.compare_digest(shown, self._token):
            hint = "Send `Authorization: Bearer <token>` with the token from the token file."
            raise Refusal(401, Unauthorized("The token is missing or wrong.", hint))


def accepted_subprotocol(scope: Scope) -> str | None:
    """What to answer to the subprotocols that a websocket offers: never the token.

    Raises Refusal if it offers some but not ours: a browser would drop the connection.
    """
    offered: list[str] = scope.get("subprotocols", [])
    if SUBPROTOCOL in offered:
        return SUBPROTOCOL
    if offered:
        raise Refusal(400, UsageError(f"Offer the websocket subprotocol {SUBPROTOCOL}."))
    return None


async def refuse(scope: Scope, send: Send, status: int, error: SwiftSpecError) -> None:
    """Answer with a status and the error as JSON; a websocket before it is accepted, too."""
    body = msgspec.json.encode({"code": error.code, "message": error.message, "hint": error.hint})
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if scope["type"] == "http":
        kind = "http.response"
    elif "websocket.http.response" in scope.get("extensions", {}):
        kind = "websocket.http.response"
    else:  # the server makes a 403 of it
        await send({"type": "websocket.close", "code": 1008})
        return
    await send({"type": f"{kind}.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.body", "body": body})


def _headers(scope: Scope) -> dict[bytes, bytes]:
    headers: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in headers and name in _SINGLE:
            raise Refusal(400, UsageError(f"The header {name.decode()} is there twice."))
        headers[name] = value
    return headers


def _is_our_host(host: bytes, scope: Scope) -> bool:
    """Whether a Host header is a loopback name or address with the port we listen on."""
    try:
        name, port = _split_host(host.decode("ascii").lower())
    except (UnicodeDecodeError, ValueError):
        return False
    server = scope.get("server")
    if server is None or port != server[1]:
        return False
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _split_host(host: str) -> tuple[str, int]:
    """Name and port. Raises ValueError."""
    if host.startswith("["):
        name, _, port = host[1:].partition("]")
        if port and not port.startswith(":"):
            raise ValueError(host)
        port = port[1:]
    else:
        name, _, port = host.partition(":")
    if port and not (port.isascii() and port.isdigit()):
        raise ValueError(host)
    return name, int(port or 80)


def _bearer(authorization: bytes | None) -> bytes | None:
    if authorization is None:
        return None
    scheme, _, token = authorization.partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else None


def _offered_token(scope: Scope) -> bytes | None:
    offered: list[str] = scope.get("subprotocols", [])
    for subprotocol in offered:
        if subprotocol.startswith(BEARER_SUBPROTOCOL):
            return subprotocol.removeprefix(BEARER_SUBPROTOCOL).encode("utf-8", "replace")
    return None
