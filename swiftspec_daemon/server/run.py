"""Puts the daemon together from its parts and runs it to its end.

Knows every part of the daemon side by name; what each does is its own business.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
from collections.abc import Callable

from swiftspec_daemon import __version__, logs
from swiftspec_daemon.engine.client import EngineClient
from swiftspec_daemon.engine.config import WorkerConfig
from swiftspec_daemon.engine.interface import EngineStatus
from swiftspec_daemon.models import default
from swiftspec_daemon.protocol.record import Endpoint
from swiftspec_daemon.server.fetching import FetchingEngine
from swiftspec_daemon.server.lifecycle import OneDaemon, listen
from swiftspec_daemon.server.web import WebServer
from swiftspec_daemon.settings import Settings

_log = logging.getLogger(__name__)


class Observer:
    """Is told what the daemon does; this one does nothing. Runs on the event loop."""

    def engine_changed(self, status: EngineStatus) -> None:
        """The model was loaded, has failed, is a step further."""

    async def serving(self, endpoint: Endpoint) -> bool:
        """Connections are accepted; the daemon may be used. True ends it, and so does an error.

        Cancelled when the daemon ends before.
        """
        return False

    def ended(self) -> None:
        """The daemon has ended, also when it failed."""


def serve(settings: Settings, observer: Observer, *, console: bool = True) -> int:
    """Run the daemon until it is told to end; the exit status.

    Raises DaemonAlreadyRunning, PortInUse, SettingsError, and what
    `observer.serving` raises.
    """
    with OneDaemon() as one:
        logs.setup(settings.log, logs.daemon_log(), console=console)
        listener = listen(settings.server.host, settings.server.port)
        _log.info("swiftspec-daemon %s starts", __version__)
        status = asyncio.run(_serve(settings, one, listener, observer))
        _log.info("ended with status %d", status)
        return status


async def _serve(
    settings: Settings, one: OneDaemon, listener: socket.socket, observer: Observer
) -> int:
    engine = FetchingEngine(
        EngineClient(
            WorkerConfig.from_settings(settings.model), idle_unload_s=settings.model.idle_unload_s
        ),
        functools.partial(fetch_model, settings.model.target),
    )
    engine.on_status(observer.engine_changed)
    token = load_or_create_token()
    web = WebServer(
        app,
        max_message_bytes=settings.server.max_message_bytes,
        is_idle=lambda: engine.status.running == 0,
    )
    serving = asyncio.create_task(web.run_on(listener), name="web server")
    try:
        ...
    finally:
        one.withdraw()
        observer.ended()


def fetch_model(target: str, progress: Callable[[str, float], None]) -> None:
    """Fetch the model's files if it is one that may be fetched without asking: the default one.

    Raises DownloadError.
    """
    if target == default.NAME and not default.is_there():
        default.fetch(progress)
