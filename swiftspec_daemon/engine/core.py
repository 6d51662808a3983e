"""The engine itself, in one thread: commands in, one step at a time, events out.

Ties scheduler, slots and generations to a backend. Knows no process, pipe or thread; the worker's
loop (and tests) call `receive` and `step`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from swiftspec_daemon.engine.backend import Backend, KVCache
from swiftspec_daemon.engine.drafts.speculator import Session, Speculator
from swiftspec_daemon.engine.generation import Generation, Vocabulary
from swiftspec_daemon.engine.messages import (
    Cancel,
    Command,
    Event,
    Finished,
    FinishReason,
    Forget,
    Generate,
    Remember,
    Speculation,
    SpeculationUsage,
    TokenLogProbs,
    Tokens,
    Unload,
    Usage,
)
from swiftspec_daemon.engine.pacing import Pacer
from swiftspec_daemon.engine.scheduler import Scheduler
from swiftspec_daemon.engine.slots import Slot, Slots
from swiftspec_daemon.errors import SwiftSpecError

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Job:
    """A request that is waiting, running or suspended."""

    generation: Generation
    last: float
    """When its last step ended; at first, when it arrived."""
    slot: Slot | None = None
    drafts: Session | None = None
    """Begun, while it has its slot."""
    speculation: Speculation = "off"
    memorable: bool = True
    """Its new text may be remembered."""
    cached: int | None = None
    queue_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0


class EngineCore:
    """Serves requests on one loaded model."""

    def __init__(
        self,
        backend: Backend,
        vocabulary: Vocabulary,
        *,
        slots: int,
        queue_limit: int,
        step_budget_ms: float,
        clock: Callable[[], float],
        emit: Callable[[Event], None],
        speculator: Speculator | None = None,
    ) -> None:
        """`clock` gives seconds; `emit` is called in the order of events. Without a `speculator`
        all decoding is plain."""
        self._backend = backend
        self._vocabulary = vocabulary
        self._clock = clock
        self._emit = emit
        self._speculator = speculator
        self._scheduler = Scheduler(queue_limit)
        self._slots = Slots(slots)
        self._caches: dict[int, KVCache] = {}
        self._pacer = Pacer(step_budget_ms)
        self._jobs: dict[int, _Job] = {}
        self._last_run: int | None = None
        self.unloading = False

    @property
    def busy(self) -> bool:
        """There is a step to do."""
        if self._jobs or self._speculator is None:
            return bool(self._jobs)
        return self._speculator.memory.waiting and not self.unloading

    def receive(self, command: Command) -> None:
        """Take in a command. It has its effect before the next step."""
        match command:
            case Generate():
                self._admit(command)
            case Cancel(id=request):
                if request in self._jobs:
                    self._finish(request, "cancelled")
            case Remember() | Forget():
                self._remember(command)
            case Unload():
                self.unloading = True

    def cancel_all(self) -> None:
        """End every request as cancelled."""
        for request in list(self._jobs):
            self._finish(request, "cancelled")

    def step(self) -> None:
        """One forward pass for the request whose turn it is; without requests, a part of a text
        that is to be remembered."""
        request = self._scheduler.next()
        if request is None:
            if self._speculator is not None:
                self._speculator.memory.take_in()
            return
        job = self._jobs[request]
        try:
            self._advance(request, job)
        except SwiftSpecError as error:
            self._discard_kv(job)
            self._fail(request, error)

    def warm_up(self) -> None:
        """One block through the model, so that the first request finds weights in memory."""
        cache = self._cache(0)
        tokens = [0] * min(self._pacer.block, self._backend.context)
        started = self._clock()
        self._backend.append(cache, tokens, logits=True)
        self._pacer.record(len(tokens), (self._clock() - started) * 1e3)
        self._backend.truncate(cache, 0)

    def _admit(self, request: Generate) -> None:
        if request.id in self._jobs:
            log.error("request id %d came twice; the second is ignored", request.id)
            return
        try:
            generation = Generation(request, self._vocabulary, self._backend.context)
        except SwiftSpecError as error:
            self._refuse(request, error.code, str(error))
            return
        admission = self._scheduler.submit(request.id, request.priority, request.sequence)
        if not admission.accepted:
            message = "Too many requests are waiting for the model. Try again in a moment."
            self._refuse(request, "overloaded", message)
            return
        self._jobs[request.id] = _Job(generation, last=self._clock())
        for dropped in admission.dropped:
            self._finish(dropped, "dropped")

    def _remember(self, command: Remember | Forget) -> None:
        if self._speculator is None:
            return
        memory = self._speculator.memory
        if isinstance(command, Forget):
            memory.forget(command.text_id)
            for job in self._jobs.values():
                if job.generation.request.text_id == command.text_id:
                    job.memorable = False
        elif all(0 <= token < self._vocabulary.size for token in command.tokens):
            memory.remember(command.text_id, command.tokens)
        else:
            log.error("a text has token ids that the model does not have, and is ignored")

    def _advance(self, request: int, job: _Job) -> None:
        generation = job.generation
        slot = job.slot or self._assign(request, job)
        decoding = generation.decoding
        held_before = len(slot.tokens)
        started = self._clock()
        if self._last_run != request:  # it waited; else what passed between its steps is its own
            job.queue_s += started - job.last
            job.last = started
            self._change_over(request, job)
        ids = generation.step(
            self._backend, self._cache(slot.index), slot.tokens, self._pacer.block, job.drafts
        )
        ended = self._clock()
        self._pacer.record(len(slot.tokens) - held_before, (ended - started) * 1e3)
        if decoding:
            job.decode_s += ended - job.last
        else:
            job.prefill_s += ended - job.last
        job.last = ended
        if ids:
            counts = job.drafts is not None
            usage = self._usage(request, job) if counts or not decoding else None
            found = [TokenLogProbs(*item) for item in generation.log_probs]
            self._emit(Tokens(id=request, ids=ids, usage=usage, logprobs=found))
        if generation.finished is not None:
            self._finish(request, generation.finished)

    def _change_over(self, request: int, job: _Job) -> None:
        """Another request has its turn: drafts work for one at a time."""
        if (before := self._jobs.get(self._last_run or 0)) and before.drafts is not None:
            before.drafts.close()
        self._last_run = request
        if self._speculator is None:
            return
        generation = job.generation
        if job.drafts is None:
            job.speculation, job.drafts = self._speculator.session(generation.request)
        if job.drafts is not None:
            prompt = len(generation.request.prompt)
            job.drafts.begin(generation.tokens, prompt, generation.state)

    def _assign(self, request: int, job: _Job) -> Slot:
        """Give a job that has none a slot, maybe that of a suspended one."""
        generation = job.generation
        assignment = self._slots.acquire(
            generation.tokens, generation.request.sequence, holder=request
        )
        if assignment.robbed is not None:
            self._jobs[assignment.robbed].slot = None
        self._backend.truncate(self._cache(assignment.slot.index), assignment.cached)
        job.slot = assignment.slot
        if job.cached is None:  # a resumed job reports what it found at its beginning
            job.cached = assignment.cached
        return assignment.slot

    def _cache(self, index: int) -> KVCache:
        if index not in self._caches:
            self._caches[index] = self._backend.new_cache(self._backend.context)
        return self._caches[index]

    def _discard_kv(self, job: _Job) -> None:
        """Forget KV that may be wrong after an error."""
        if job.slot is not None:
            job.slot.tokens.clear()
            self._backend.truncate(self._cache(job.slot.index), 0)

    def _finish(
        self, request: int, reason: FinishReason, code: str = "", message: str = ""
    ) -> None:
        self._scheduler.remove(request)
        job = self._jobs.pop(request)
        if job.drafts is not None and self._last_run == request:
            job.drafts.close()
        if job.slot is not None:
            self._slots.release(job.slot)
        usage = self._usage(request, job)
        self._emit(Finished(id=request, reason=reason, usage=usage, code=code, message=message))
        if reason != "error":
            self._keep(job)

    def _keep(self, job: _Job) -> None:
        """Remember what a request said: the next one may say it again."""
        if self._speculator is not None and job.drafts is not None and job.memorable:
            request = job.generation.request
            memory = self._speculator.memory
            memory.suggested(request.text_id, job.generation.tokens, len(request.prompt))

    def _usage(self, request: int, job: _Job) -> Usage:
        waiting = self._clock() - job.last if self._last_run != request else 0.0
        return Usage(
            prompt_tokens=len(job.generation.request.prompt),
            cached_tokens=job.cached or 0,
            new_tokens=job.generation.new_tokens,
            queue_ms=(job.queue_s + waiting) * 1e3,
            prefill_ms=job.prefill_s * 1e3,
            decode_ms=job.decode_s * 1e3,
            speculation=_counted(job),
        )

    def _fail(self, request: int, error: SwiftSpecError) -> None:
        self._finish(request, "error", error.code, str(error))

    def _refuse(self, request: Generate, code: str, message: str) -> None:
        usage = Usage(prompt_tokens=len(request.prompt))
        self._emit(Finished(id=request.id, reason="error", usage=usage, code=code, message=message))


def _counted(job: _Job) -> SpeculationUsage | None:
    if job.drafts is None:
        return None
    return SpeculationUsage(mode=job.speculation, counters=job.drafts.counters)
