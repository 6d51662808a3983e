"""The bridge's connection to the daemon, kept up.

Reconnects by itself with growing pauses; starts a daemon at the first connection, and later when
a completion is wanted. Whoever wants one while a connection is being made waits for it; in an
outage that is known already there is no waiting. Knows nothing of the editor's protocol; what is
sent is `mirror.py`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from swiftspec_daemon.errors import DaemonNotRunning, ProtocolError, SwiftSpecError
from swiftspec_daemon.protocol.messages import PositionEncoding, Status

from . import status
from .mirror import Mirror
from .status import BridgeStatus

if TYPE_CHECKING:
    from swiftspec_daemon.client import AsyncClient

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_STABLE_S = 10.0
"""A connection that lasts this long makes the pauses short again."""
_LONGEST_WAIT_S = 90.0
"""How long a request waits for a connection that is being made: a daemon may have to be started
for it, whose start has a limit of its own."""

StatusCallback = Callable[[BridgeStatus], None]


class DaemonLink:
    """The connection, as the bridge sees it: there, or not there for the moment."""

    def __init__(
        self, mirror: Mirror, on_status: StatusCallback, *, start_daemon: bool = True
    ) -> None:
        self._mirror = mirror
        self._on_status = on_status
        self._may_start = start_daemon
        self._wanted = asyncio.Event()
        self._settled = asyncio.Event()
        """Set while it is known whether there is a connection; not while one is being made."""
        self._dormant = False
        """Whether the daemon is away, and none was started since none was wanted."""
        self.status = status.CONNECTING
        self.generation = 0
        """How many connections there have been; ids of an earlier one mean nothing to this."""

    async def run(self, client_name: str, encoding: PositionEncoding) -> None:
        """Keep a connection up until cancelled."""
        pause = _FIRST_PAUSE_S
        start = self._may_start
        while True:
            try:
                client = await self._connect(client_name, encoding, start=start)
            except (SwiftSpecError, OSError) as error:
                if self._may_start and not start and self._wanted.is_set():
                    self._begin()
                    start = True  # somebody waits
                    continue
                self._failed(error)
            except Exception as error:  # the bridge must not stay silent for ever
                _log.exception("the connection failed in a way that it should not")
                self._failed(error)
            else:
                begin = time.monotonic()
                await client.wait_closed()
                if time.monotonic() - begin > _STABLE_S:
                    pause = _FIRST_PAUSE_S
                self._lost(client)
            self._dormant = self._may_start and not start and self._settled.is_set()
            start = await self._pause(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def ready(self) -> AsyncClient | None:
        """The connection; waits for one that is being made, and returns None in an outage.

        An outage begins when an attempt fails, and ends with the next connection.
        """
        if self._mirror.client is None:
            if self._dormant:
                self._begin()
            self._wanted.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LONGEST_WAIT_S):
                    await self._settled.wait()
        return self._mirror.client

    async def close(self) -> None:
        """End the connection."""
        client = self._mirror.client
        self._mirror.detach()
        if client is not None:
            await client.close()

    async def _connect(self, name: str, encoding: PositionEncoding, *, start: bool) -> AsyncClient:
        # Here, not above: the editor's first answer need not wait for the websocket library.
        from swiftspec_daemon.client import AsyncClient

        client = await AsyncClient.connect(
            start=start, client_name=name, position_encodings=[encoding]
        )
        if client.position_encoding != encoding:
            await client.close()
            raise DaemonNotRunning(
                f"The daemon does not speak {encoding} positions.",
                "Stop the old daemon with `swiftspec stop`.",
            )
        await self._mirror.attach(client)
        self.generation += 1
        self._wanted.clear()
        self._settled.set()
        await client.on_status(self._on_daemon_status)
        return client

    async def _pause(self, seconds: float) -> bool:
        """Wait before the next attempt; returns whether that one may start a daemon.

        Only if a completion was wanted meanwhile: a daemon that the user has stopped stays
        stopped until then. That one ends the pause, unless starting has just failed.
        """
        seconds *= random.uniform(0.75, 1.25)  # not all bridges at once
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await (self._wanted.wait() if self._dormant else asyncio.sleep(seconds))
        self._dormant = False
        wanted = self._wanted.is_set()
        self._wanted.clear()
        return self._may_start and wanted

    def _begin(self) -> None:
        """An attempt that requests wait for is about to be made."""
        self._dormant = False
        self._settled.clear()
        self._set_status(status.CONNECTING)

    def _failed(self, error: Exception) -> None:
        self._mirror.detach()
        self._set_status(status.unreachable(error))
        self._settled.set()

    def _lost(self, client: AsyncClient) -> None:
        reasons: list[SwiftSpecError | None] = []
        client.on_close(reasons.append)  # at once, since it has ended
        self._mirror.detach(refused=isinstance(reasons[0], ProtocolError))
        _log.info("the connection to the daemon is lost: %s", reasons[0])
        self._begin()

    def _on_daemon_status(self, message: Status) -> None:
        self._set_status(status.of_daemon(message))

    def _set_status(self, new: BridgeStatus) -> None:
        if new != self.status:
            self.status = new
            self._on_status(new)
