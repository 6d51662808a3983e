"""One completion on its way: what has arrived, what is awaited, and how to stop it.

Knows the messages of one request; the connection feeds it and sends for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType

from swiftspec_daemon.errors import SwiftSpecError
from swiftspec_daemon.protocol.messages import Delta, Done, FirstLine

CompletionEvent = Delta | FirstLine | Done


class Completion:
    """An async iterator of `Delta`, `FirstLine` and, as the last one, `Done`.

    Leaving the iteration early cancels the request, and so does leaving an `async with` block.
    A request that fails ends with a `Done` whose reason is "error"; DaemonNotRunning is raised
    only when the connection is lost. Iterate at most once.
    """

    def __init__(self, number: int, cancel: Callable[[int], Awaitable[None]]) -> None:
        self._id = number
        self._send_cancel = cancel
        self._events: asyncio.Queue[CompletionEvent | None] = asyncio.Queue()
        self._finished = asyncio.Event()
        self._done: Done | None = None
        self._error: SwiftSpecError | None = None
        self._parts: list[str] = []

    @property
    def id(self) -> int:
        """The request's id, for `shown`, `accepted` and `rejected`."""
        return self._id

    @property
    def text(self) -> str:
        """What has arrived so far."""
        if self._done is not None and self._done.text:
            return self._done.text
        return "".join(self._parts)

    @property
    def done(self) -> Done | None:
        """The last message, once it is there."""
        return self._done

    async def result(self) -> Done:
        """Wait for the end. Raises DaemonNotRunning if the connection is lost before."""
        await self._finished.wait()
        if self._done is None:
            raise self._failure()
        return self._done

    async def cancel(self) -> None:
        """Ask the daemon to stop; the request still ends with a `Done`. Harmless when it ended."""
        if not self._finished.is_set():
            await self._send_cancel(self._id)

    async def __aiter__(self) -> AsyncIterator[CompletionEvent]:
        try:
            while True:
                event = await self._events.get()
                if event is None:
                    raise self._failure()
                yield event
                if isinstance(event, Done):
                    return
        finally:
            await self.cancel()

    async def __aenter__(self) -> Completion:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.cancel()

    def feed(self, event: CompletionEvent) -> None:
        """Take a message of this request, from the connection."""
        if self._finished.is_set():
            return
        if isinstance(event, Delta):
            self._parts.append(event.text)
        elif isinstance(event, Done):
            self._done = event
            self._finished.set()
        self._events.put_nowait(event)

    def fail(self, error: SwiftSpecError) -> None:
        """The connection is lost."""
        if not self._finished.is_set():
            self._error = error
            self._finished.set()
            self._events.put_nowait(None)

    def _failure(self) -> SwiftSpecError:
        assert self._error is not None
        return type(self._error)(self._error.message, self._error.hint)
