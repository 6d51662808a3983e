"""The daemon's one ASGI application: its paths, behind the security checks.

Knows which path is what; knows neither uvicorn nor how the process lives and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncGenerator, Callable

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp

from swiftspec_daemon.completion.service import CompletionService
from swiftspec_daemon.engine.interface import Engine, EngineStatus
from swiftspec_daemon.errors import SwiftSpecError, UsageError
from swiftspec_daemon.server.hub import Hub
from swiftspec_daemon.server.security import SecurityMiddleware
from swiftspec_daemon.server.tokenizers import load_tokenizer
from swiftspec_daemon.server.websocket import WebSocketEndpoint
from swiftspec_daemon.settings import Settings

_log = logging.getLogger(__name__)

Stop = Callable[[bool], None]
"""Ends the daemon: soon, or with True once no completion runs."""
_START_PAGE = "This is a local service for code editors. There is nothing to see here.\n"
_LARGEST_BODY = 64 * 1024


def build_app(settings: Settings, engine: Engine, token: str, stop: Stop) -> ASGIApp:
    """The application around an engine, its completion service included."""
    load = functools.partial(load_tokenizer, settings.model.target)
    service = CompletionService(engine, load, settings)
    return create_app(service, engine, settings, token, stop)


def create_app(
    service: CompletionService, engine: Engine, settings: Settings, token: str, stop: Stop
) -> ASGIApp:
    """The application; `stop` is called by POST /v1/shutdown, after which it still answers."""
    hub = Hub(service, engine, settings)
    http = _Http(hub, stop)
    app = Starlette(
        routes=[
            Route("/", http.start_page),
            Route("/health", http.health),
            Route("/ready", http.ready),
            Route("/v1/status", http.status),
            Route("/v1/shutdown", http.shutdown, methods=["POST"]),
            WebSocketRoute("/v1/ws", WebSocketEndpoint(hub)),
        ],
        lifespan=_prepares(service, engine),
        exception_handlers={HTTPException: _no_such, Exception: _broken},
    )
    return SecurityMiddleware(app, token=token, allowed_origins=settings.server.allowed_origins)


class _Http:
    """The paths that are not websockets."""

    def __init__(self, hub: Hub, stop: Stop) -> None:
        self._hub = hub
        self._stop = stop

    async def start_page(self, _: Request) -> Response:
        return Response(_START_PAGE, media_type="text/plain")

    async def health(self, _: Request) -> Response:
        return _json({"status": "ok"})

    async def ready(self, _: Request) -> Response:
        if self._hub.ready:
            return _json({"status": "ready"})
        return _json({"status": "not ready"}, 503)

    async def status(self, _: Request) -> Response:
        return _json(await self._hub.full_status())

    async def shutdown(self, request: Request) -> Response:
        try:
            wish = await _body(request, _Shutdown())
        except UsageError as error:
            return _failure(400, error)
        _log.info("asked to end%s", " when idle" if wish.when_idle else "")
        self._stop(wish.when_idle)
        return _json({"status": "stopping"}, 202)


async def _no_such(request: Request, error: Exception) -> Response:
    """A path that is not there, or that does not take the method."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    allowed = (getattr(error, "headers", None) or {}).get("Allow", "")
    message = f"This path does not take {request.method}." if allowed else "There is no such path."
    answer = _failure(status, UsageError(message, f"Use {allowed}." if allowed else ""))
    if allowed:
        answer.headers["Allow"] = allowed
    return answer


async def _broken(_: Request, error: Exception) -> Response:
    """The error itself goes on to the server's log."""
    return _failure(500, SwiftSpecError("The request failed.", "See `swiftspec logs`."))


class _Shutdown(msgspec.Struct, frozen=True):
    when_idle: bool = False


async def _body(request: Request, default: _Shutdown) -> _Shutdown:
    """The JSON body; `default` if there is none. Raises UsageError."""
    data = b""
    async for piece in request.stream():
        data += piece
        if len(data) > _LARGEST_BODY:
            raise UsageError("The body is too large.")
    try:
        return msgspec.json.decode(data, type=_Shutdown) if data.strip() else default
    except msgspec.DecodeError as error:
        raise UsageError(f"The body is not as it should be: {error}.") from None


def _json(content: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")


def _failure(status: int, error: SwiftSpecError) -> Response:
    return _json({"code": error.code, "message": error.message, "hint": error.hint}, status)


def _prepares(
    service: CompletionService, engine: Engine
) -> Callable[[Starlette], contextlib.AbstractAsyncContextManager[None]]:
    """A lifespan in which the tokenizer is loaded as soon as the engine is ready."""
    tasks: set[asyncio.Task[None]] = set()

    async def prepare() -> None:
        try:
            await service.prepare()
        except SwiftSpecError as error:
            _log.error("the tokenizer cannot be loaded: %s", error)

    def engine_changed(status: EngineStatus) -> None:
        if status.state == "ready" and not tasks:
            tasks.add(asyncio.create_task(prepare()))

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None, None]:
        engine.on_status(engine_changed)
        engine_changed(engine.status)
        yield
        for task in tasks:
            task.cancel()

    return lifespan
