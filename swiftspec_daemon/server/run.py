"""Puts the daemon together from its parts and runs it to its end.

Knows every part of the daemon side by name; what each does is its own business.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
from collections.abc import Callable, Coroutine

from swiftspec_daemon import __version__, logs
from swiftspec_daemon.completion.service import CompletionService
from swiftspec_daemon.completion.tokenizer import Tokenizer
from swiftspec_daemon.engine.client import EngineClient
from swiftspec_daemon.engine.config import WorkerConfig
from swiftspec_daemon.engine.interface import EngineStatus
from swiftspec_daemon.models import default
from swiftspec_daemon.protocol.record import Endpoint
from swiftspec_daemon.server.app import create_app
from swiftspec_daemon.server.auth import load_or_create_token
from swiftspec_daemon.server.fetching import FetchingEngine
from swiftspec_daemon.server.lifecycle import OneDaemon, listen
from swiftspec_daemon.server.observer import Observer
from swiftspec_daemon.server.tokenizers import load_tokenizer
from swiftspec_daemon.server.web import WebServer
from swiftspec_daemon.settings import Settings

_log = logging.getLogger(__name__)


def serve(settings: Settings, observer: Observer, *, console: bool = True) -> int:
    """Run the daemon until it is told to end; the exit status.

    `console`: warnings go to standard error too. Raises DaemonAlreadyRunning, PortInUse,
    SettingsError, and what `observer.serving` raises.
    """
    with OneDaemon() as one:
        logs.setup(settings.log, logs.daemon_log(), console=console)
        listener = listen(settings.server.host, settings.server.port)
        _log.info("swiftspec-daemon %s starts", __version__)
        status = asyncio.run(_run(settings, observer, one, listener))
        _log.info("ended with status %d", status)
        return status


async def _run(
    settings: Settings, observer: Observer, one: OneDaemon, listener: socket.socket
) -> int:
    return await _Daemon(settings, observer).run(one, listener)


class _Daemon:
    """The parts, and who is told what."""

    def __init__(self, settings: Settings, observer: Observer) -> None:
        self._target = settings.model.target
        self._observer = observer
        self._over = False
        self._token = load_or_create_token()
        self._engine = FetchingEngine(
            EngineClient(
                WorkerConfig.from_settings(settings.model, settings.speculation),
                idle_unload_s=settings.model.idle_unload_s,
            ),
            functools.partial(fetch_model, self._target),
        )
        self._engine.on_status(self._engine_changed)
        self._service = CompletionService(self._engine, self._load_tokenizer, settings)
        self._web = WebServer(
            create_app(self._service, self._engine, settings, self._token, self._stop),
            max_message_bytes=settings.server.max_message_bytes,
            wait_idle=self._service.idle,
        )

    def _load_tokenizer(self) -> Tokenizer:
        """In a thread: a completion may be asked for while the files are still on their way."""
        self._engine.wait_files()
        return load_tokenizer(self._target)

    def _engine_changed(self, status: EngineStatus) -> None:
        if not self._over:
            self._observer.engine_changed(status)

    def _stop(self, when_idle: bool) -> None:
        self._observer.told_to_end()
        self._web.stop(when_idle=when_idle)

    async def run(self, one: OneDaemon, listener: socket.socket) -> int:
        """Serve to the end; the exit status."""
        serving = asyncio.create_task(self._web.run_on(listener), name="web server")
        try:
            await _first_of(serving, self._web.listening())
            if not serving.done():
                host, port = listener.getsockname()[:2]
                endpoint = one.publish(host, port).endpoint(self._token)
                _log.info("serving on %s", endpoint.address)
                logs.forget_failed_starts()
                await self._engine.start()
                await self._observe(endpoint, serving)
            await serving
        finally:
            one.withdraw()
            self._over = True
            self._observer.ended()
            if not self._web.force_exit:
                await self._engine.stop()
        return self._web.exit_status

    async def _observe(self, endpoint: Endpoint, serving: asyncio.Task[None]) -> None:
        """Let the observer use the daemon; its wish or its failure ends the daemon.

        What it does ends at once when the daemon is told to end.
        """
        observing = asyncio.create_task(self._observer.serving(endpoint), name="observer")
        ending = asyncio.create_task(self._web.ending(), name="ending")
        await asyncio.wait([observing, ending, serving], return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if not observing.done():
            observing.cancel()
            await asyncio.wait([observing])
            return
        if observing.exception() is not None or observing.result():
            self._web.stop()
        await serving
        observing.result()


async def _first_of(task: asyncio.Task[None], other: Coroutine[None, None, None]) -> None:
    """Wait for the first of the two; the other one goes on, if it is the task."""
    waiting = asyncio.create_task(other)
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


def fetch_model(target: str, progress: Callable[[str, float], None]) -> None:
    """Fetch the model's files if it is one that may be fetched without asking: the default one.

    Raises DownloadError.
    """
    if target == default.NAME and not default.is_there():
        default.fetch(progress)
