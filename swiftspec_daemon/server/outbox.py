"""What waits to be sent to one client, in order and bounded. Knows no message's meaning."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from swiftspec_daemon.protocol import codec
from swiftspec_daemon.protocol.messages import Message

MOST_WAITING = 1024
"""Messages; a client that reads more slowly than this is given up."""

SendText = Callable[[str], Awaitable[None]]


class Outbox:
    """Sends one message after another, so that whoever has one to send need not wait."""

    def __init__(self, send: SendText, *, most_waiting: int = MOST_WAITING) -> None:
        self._send = send
        self._waiting: asyncio.Queue[Message] = asyncio.Queue(most_waiting)
        self.overflowed = asyncio.Event()
        """Set when a message found no room; it and all later ones are dropped."""

    def put(self, message: Message) -> None:
        """Send `message` after those before it."""
        if self.overflowed.is_set():
            return
        try:
            self._waiting.put_nowait(message)
        except asyncio.QueueFull:
            self.overflowed.set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._send(codec.encode(await self._waiting.get()))
