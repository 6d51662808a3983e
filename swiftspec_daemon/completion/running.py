"""A completion that runs: its task, its events, its clock. Knows neither prompts nor engines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Literal, overload

from swiftspec_daemon.completion.events import (
    Completed,
    CompletionEvent,
    FirstLineKnown,
    TextAdded,
)
from swiftspec_daemon.completion.speculation import report
from swiftspec_daemon.engine.messages import Usage
from swiftspec_daemon.protocol.messages import DoneReason, Timings


class Completion:
    """An asynchronous iterator of events, of which the last is `Completed`.

    Made by `CompletionService.complete`. Goes on whether or not it is iterated over; who loses
    interest calls `cancel`.
    """

    def __init__(self) -> None:
        self._events: asyncio.Queue[CompletionEvent] = asyncio.Queue()
        self._task: asyncio.Task[Completed] | None = None
        self._cause: Literal["cancelled", "superseded"] = "cancelled"
        self._over = False
        self._text: list[str] = []
        self._started = time.perf_counter()
        self._first_token_ms: float | None = None
        self._first_line_ms: float | None = None
        self._loading_ms = 0.0
        self._prompt_tokens = 0
        self._new_tokens = 0
        self._usage = Usage()
        self._finished = False

    def cancel(self, cause: Literal["cancelled", "superseded"] = "cancelled") -> None:
        """End it soon; does nothing if it has ended."""
        if self._task is not None and not self._task.done() and not self._task.cancelling():
            self._cause = cause
            self._task.cancel()

    def __aiter__(self) -> Completion:
        return self

    async def __anext__(self) -> CompletionEvent:
        if self._over:
            raise StopAsyncIteration
        event = await self._events.get()
        self._over = isinstance(event, Completed)
        return event

    # --- for the service ------------------------------------------------------------------------

    def start(
        self, run: Coroutine[Any, Any, Completed], ended: Callable[[Completed], None]
    ) -> None:
        """Run; `ended` is called with the last event, before it can be read."""

        def done(task: asyncio.Task[Completed]) -> None:
            last = self.completed(self._cause) if task.cancelled() else task.result()
            ended(last)
            self._events.put_nowait(last)

        self._task = asyncio.create_task(run)
        self._task.add_done_callback(done)

    @property
    def has_first_line(self) -> bool:
        return self._first_line_ms is not None

    def say(self, event: TextAdded | FirstLineKnown) -> None:
        """Add an event to the stream."""
        if isinstance(event, TextAdded):
            self._text.append(event.text)
        else:
            self._first_line_ms = self._elapsed_ms()
        self._events.put_nowait(event)

    def model_loaded(self) -> None:
        """The model and its tokenizer are there; what was before was waiting for them."""
        self._loading_ms = self._elapsed_ms()

    def tokens_in(self, count: int) -> None:
        """The prompt is made."""
        self._prompt_tokens = count

    def tokens_out(self, count: int, usage: Usage | None) -> None:
        """Tokens have come from the engine, `count` of them with text beyond the cursor; `usage` is
        what the request has cost so far, if the engine says it here."""
        if self._first_token_ms is None:
            self._first_token_ms = self._elapsed_ms()
        self._new_tokens += count
        if usage is not None:
            self._usage = usage

    def usage(self, usage: Usage) -> None:
        """The engine has finished."""
        self._usage = usage
        self._finished = True

    def completed(
        self, reason: DoneReason, code: str = "", message: str = "", hint: str = ""
    ) -> Completed:
        """The last event, as of now."""
        text = "".join(self._text)
        begun = self._finished or self._first_token_ms is not None
        speculation = report(self._usage) if begun else None
        return Completed(reason, text, self._timings(), speculation, code, message, hint)

    def _timings(self) -> Timings:
        total = self._elapsed_ms()
        decode = self._usage.decode_ms
        if not self._finished and self._first_token_ms is not None:
            decode = total - self._first_token_ms
        return Timings(
            total_ms=_rounded(total),
            first_token_ms=_rounded(self._first_token_ms),
            first_line_ms=_rounded(self._first_line_ms),
            loading_ms=_rounded(self._loading_ms),
            queue_ms=_rounded(self._usage.queue_ms),
            prefill_ms=_rounded(self._usage.prefill_ms),
            decode_ms=_rounded(decode),
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self._usage.cached_tokens,
            new_tokens=self._new_tokens,
        )

    def _elapsed_ms(self) -> float:
        return (time.perf_counter() - self._started) * 1e3


@overload
def _rounded(ms: float) -> float: ...
@overload
def _rounded(ms: None) -> None: ...
def _rounded(ms: float | None) -> float | None:
    """To microseconds, which is finer than any of them is meant."""
    return None if ms is None else round(ms, 3)
