"""An engine that answers from a script: for tests, and for measuring everything around an engine.

Same interface as `EngineClient`, no process, no model. Answers of several requests run side by
side; there is no scheduling.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from swiftspec_daemon.engine.interface import EngineStatus
from swiftspec_daemon.engine.messages import (
    Finished,
    FinishReason,
    Forget,
    Generate,
    Ready,
    Remember,
    Tokens,
    Usage,
    encode,
)
from swiftspec_daemon.errors import EngineError, SwiftSpecError


@dataclass(frozen=True, slots=True)
class Answer:
    """What is said to one request."""

    ids: Sequence[int] = ()
    """New tokens. `max_tokens` and the request's stop ids cut them."""
    first_delay_s: float = 0.0
    """Before the first token ("prefill")."""
    delay_s: float = 0.0
    """Before each further token."""
    batch: int = 1
    """Tokens of one `Tokens` message."""
    reason: FinishReason = "stop"
    """Said when all `ids` are sent."""
    code: str = ""
    message: str = ""
    fails: SwiftSpecError | None = None
    """Raised when all `ids` are sent, instead of a Finished."""


Script = (
    Callable[[Generate], "Answer | Sequence[int]"]
    | Mapping[tuple[int, ...], "Answer | Sequence[int]"]
)
"""From a request, or from its prompt, to the answer. A prompt that is missing gets no tokens."""

SCRIPTED_READY = Ready(
    model="scripted",
    backend="scripted",
    kernels="none",
    vocab=300,
    context=4096,
    slots=1,
    load_ms=0.0,
    weight_bytes=0,
    kv_bytes=0,
)


@dataclass
class ScriptedEngine:
    """Implements `engine.interface.Engine`."""

    script: Script
    ready_message: Ready = SCRIPTED_READY
    load_s: float = 0.0
    load_error: SwiftSpecError | None = None
    """Raised by `ready` and `generate` after `load_s`."""
    requests: list[Generate] = field(default_factory=list)
    """All requests so far, with their ids."""
    cancelled: list[int] = field(default_factory=list)
    """Ids of requests whose generator was closed before the end."""
    informed: list[Remember | Forget] = field(default_factory=list)
    """What it was told of texts while it was loaded."""

    def __post_init__(self) -> None:
        self._status = EngineStatus(state="unloaded")
        self._callbacks: list[Callable[[EngineStatus], None]] = []
        self._ids = itertools.count(1)
        self._running: dict[int, asyncio.Event] = {}
        self._loading: asyncio.Task[None] | None = None
        self._stopped = False

    async def start(self) -> None:
        if self._stopped:
            raise EngineError("The engine is stopped.")
        if self._loading is None:
            self._set_status(EngineStatus(state="loading", phase="reading the script"))
            self._loading = asyncio.create_task(self._load())

    async def ready(self) -> Ready:
        await self.start()
        if self._loading is not None:
            await asyncio.shield(self._loading)
        if self.load_error is not None:
            raise self.load_error
        return self.ready_message

    async def generate(self, request: Generate) -> AsyncGenerator[Tokens | Finished, None]:
        await self.ready()
        request = msgspec.structs.replace(request, id=next(self._ids))
        encode(request)  # what could not be sent to a worker must not pass here either
        self.requests.append(request)
        stopped = self._running[request.id] = asyncio.Event()
        self._running_changed()
        finished = False
        try:
            async for event in self._answer(request, stopped):
                finished = isinstance(event, Finished)
                yield event
        except SwiftSpecError:
            finished = True
            raise
        finally:
            if not finished:
                self.cancelled.append(request.id)
            del self._running[request.id]
            self._running_changed()

    def inform(self, command: Remember | Forget) -> None:
        if self._status.state == "ready":
            encode(command)  # as in `generate`
            self.informed.append(command)

    async def unload(self) -> None:
        self._loading = None
        self._set_status(EngineStatus(state="unloaded"))

    async def stop(self) -> None:
        self._stopped = True
        for stopped in self._running.values():
            stopped.set()
        self._set_status(EngineStatus(state="unloaded"))

    @property
    def status(self) -> EngineStatus:
        return self._status

    def on_status(self, callback: Callable[[EngineStatus], None]) -> None:
        self._callbacks.append(callback)

    async def _answer(
        self, request: Generate, stopped: asyncio.Event
    ) -> AsyncGenerator[Tokens | Finished, None]:
        answer = self._look_up(request)
        ids, reason = self._cut(request, answer)
        sent = 0
        delay = answer.first_delay_s
        while not stopped.is_set():
            if sent < len(ids) or sent == 0:
                await _pause(stopped, delay)
                delay = answer.delay_s
            if stopped.is_set():
                break
            if sent < len(ids):
                batch = list(ids[sent : sent + answer.batch])
                usage = _usage(request, len(batch)) if sent == 0 else None
                sent += len(batch)
                yield Tokens(id=request.id, ids=batch, usage=usage)
                continue
            if answer.fails is not None:
                raise answer.fails
            yield _finished(request, reason, sent, answer)
            return
        yield _finished(request, "cancelled", sent, Answer())

    def _look_up(self, request: Generate) -> Answer:
        if isinstance(self.script, Mapping):
            found = self.script.get(tuple(request.prompt), ())
        else:
            found = self.script(request)
        return found if isinstance(found, Answer) else Answer(ids=found)

    @staticmethod
    def _cut(request: Generate, answer: Answer) -> tuple[Sequence[int], FinishReason]:
        ids, reason = list(answer.ids), answer.reason
        end = next((i for i, token in enumerate(ids) if token in request.stop_ids), None)
        if end is not None:
            ids, reason = ids[:end], "stop"
        if len(ids) > request.max_tokens or request.max_tokens == 0:
            ids, reason = ids[: request.max_tokens], "length"
        return ids, reason

    async def _load(self) -> None:
        await asyncio.sleep(self.load_s)
        error = self.load_error
        if error is None:
            self._set_status(EngineStatus(state="ready", ready=self.ready_message))
        else:
            self._set_status(
                EngineStatus(
                    state="failed", code=error.code, message=error.message, hint=error.hint
                )
            )

    def _running_changed(self) -> None:
        if self._status.state == "ready":
            self._set_status(msgspec.structs.replace(self._status, running=len(self._running)))

    def _set_status(self, status: EngineStatus) -> None:
        self._status = status
        for callback in self._callbacks:
            callback(status)


async def _pause(stopped: asyncio.Event, seconds: float) -> None:
    """Sleep, or less if the engine is stopped. Always lets others run."""
    if seconds <= 0:
        await asyncio.sleep(0)
        return
    try:
        async with asyncio.timeout(seconds):
            await stopped.wait()
    except TimeoutError:
        return


def _finished(request: Generate, reason: FinishReason, sent: int, answer: Answer) -> Finished:
    return Finished(
        id=request.id,
        reason=reason,
        usage=_usage(request, sent),
        code=answer.code,
        message=answer.message,
    )


def _usage(request: Generate, sent: int) -> Usage:
    return Usage(prompt_tokens=len(request.prompt), new_tokens=sent)
