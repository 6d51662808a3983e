"""The blocking client: the asynchronous one on an event loop in a thread of its own.

Knows nothing of the wire; for scripts and the command line.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, TypeVar

from swiftspec_daemon.client.aio import AsyncClient
from swiftspec_daemon.client.failures import error_for
from swiftspec_daemon.client.stream import Completion, CompletionEvent
from swiftspec_daemon.errors import DaemonNotRunning
from swiftspec_daemon.protocol import messages as wire
from swiftspec_daemon.protocol.speculation import Speculation

T = TypeVar("T")


class BlockingCompletion:
    """Iterate it for pieces of text as they arrive; leaving early cancels the request.

    A request that fails raises the error that the daemon names (ModelError, EngineError, ...).
    """

    def __init__(self, completion: Completion, client: Client) -> None:
        self._completion = completion
        self._client = client

    @property
    def id(self) -> int:
        """The request's id, for `shown`, `accepted` and `rejected`."""
        return self._completion.id

    @property
    def text(self) -> str:
        """What has arrived so far."""
        return self._completion.text

    def events(self) -> Iterator[CompletionEvent]:
        """`Delta`, `FirstLine` and at last `Done`, which may be an error. Iterate once."""
        events = aiter(self._completion)
        try:
            while (event := self._client.wait(_next(events))) is not None:
                yield event
        finally:
            self._client.wait_quietly(_close(events))

    def __iter__(self) -> Iterator[str]:
        for event in self.events():
            if isinstance(event, wire.Delta):
                yield event.text
            elif isinstance(event, wire.Done):
                _raise_for_error(event)

    def result(self) -> wire.Done:
        """Wait for the end. Raises what the request failed with."""
        done = self._client.wait(self._completion.result())
        _raise_for_error(done)
        return done

    def cancel(self) -> None:
        """Ask the daemon to stop; the request still ends with a `Done`."""
        self._client.wait(self._completion.cancel())


class Client:
    """A connection to the daemon. Use it by `with`, or call `close`.

    The arguments and errors are those of `AsyncClient.connect`; the methods are those of
    `AsyncClient`, blocking.
    """

    def __init__(
        self,
        *,
        start: bool = True,
        url: str | None = None,
        token: str | None = None,
        client_name: str = "",
        position_encodings: Sequence[wire.PositionEncoding] = ("utf-32",),
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="swiftspec client", daemon=True
        )
        self._thread.start()

        async def connecting() -> AsyncClient:
            return await AsyncClient.connect(
                start=start,
                url=url,
                token=token,
                client_name=client_name,
                position_encodings=position_encodings,
                settings=settings,
            )

        try:
            self._client = self.wait(connecting())
        except BaseException:
            self._stop_loop()
            raise

    @property
    def position_encoding(self) -> wire.PositionEncoding:
        """In which code units `Position.character` counts."""
        return self._client.position_encoding

    def open(self, uri: str, text: str, version: int = 0, language: str = "") -> None:
        """Tell the daemon a document's text."""
        self.wait(self._client.open(uri, text, version, language))

    def change(
        self,
        uri: str,
        version: int,
        edits: Sequence[wire.Edit] = (),
        *,
        text: str | None = None,
    ) -> None:
        """Tell edits, each against the text that the one before it left, or the whole new text."""
        self.wait(self._client.change(uri, version, edits, text=text))

    def close_document(self, uri: str) -> None:
        """Forget a document."""
        self.wait(self._client.close_document(uri))

    def complete(
        self,
        uri: str,
        position: wire.Position,
        *,
        version: int | None = None,
        trigger: Literal["invoked", "automatic"] = "invoked",
        max_tokens: int | None = None,
        max_lines: int | None = None,
        temperature: float | None = None,
        seed: int | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
        speculation: Speculation | None = None,
    ) -> BlockingCompletion:
        """Ask for a completion; it supersedes an earlier one of the same document."""
        request = self._client.complete(
            uri,
            position,
            version=version,
            trigger=trigger,
            max_tokens=max_tokens,
            max_lines=max_lines,
            temperature=temperature,
            seed=seed,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            speculation=speculation,
        )
        return BlockingCompletion(self.wait(request), self)

    def shown(self, id: int, characters: int | None = None) -> None:
        """Say that the user has seen this many code points of a completion (all if None)."""
        self.wait(self._client.shown(id, characters))

    def accepted(self, id: int, characters: int | None = None) -> None:
        """Say that the user has taken this many code points of a completion (all if None)."""
        self.wait(self._client.accepted(id, characters))

    def rejected(self, id: int) -> None:
        """Say that the user has seen a completion and did not take it."""
        self.wait(self._client.rejected(id))

    def status(self) -> wire.Status:
        """What the daemon is doing."""
        return self.wait(self._client.status())

    def close(self) -> None:
        """End the connection. May be called twice."""
        if not self._loop.is_closed():
            self.wait(self._client.close())
            self._stop_loop()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine that runs on the client's loop."""
        if self._loop.is_closed():
            work.close()
            raise DaemonNotRunning("The connection to the daemon is closed.")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def wait_quietly(self, work: Coroutine[Any, Any, None]) -> None:
        """As `wait`, but a client that is closed by now is no error."""
        if self._loop.is_closed():
            work.close()
        else:
            self.wait(work)

    def _stop_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _next(events: Any) -> CompletionEvent | None:
    event: CompletionEvent | None = await anext(events, None)
    return event


async def _close(events: Any) -> None:
    await events.aclose()


def _raise_for_error(done: wire.Done) -> None:
    if done.reason == "error":
        raise error_for(done.code, done.message, done.hint)
