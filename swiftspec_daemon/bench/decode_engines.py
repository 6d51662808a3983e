"""The engines that `swiftspec bench decode` compares: one target, and a way to guess ahead each.

Each is an engine core as a worker runs it, driven in this process; the asynchronous one has its
draft in a process of its own. The plain one has no speculator at all. Knows token ids only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from swiftspec_daemon.bench.decode_trace import Recorder, TimedBackend
from swiftspec_daemon.bench.decode_worst import Record, WorstSpeculator, worst_supply
from swiftspec_daemon.engine import loading
from swiftspec_daemon.engine.backend import Progress
from swiftspec_daemon.engine.config import WorkerConfig
from swiftspec_daemon.engine.core import EngineCore
from swiftspec_daemon.engine.drafts import loading as drafts
from swiftspec_daemon.engine.drafts.process import DraftProcess
from swiftspec_daemon.engine.drafts.session import Sources
from swiftspec_daemon.engine.drafts.speculator import DraftSupply, Speculator
from swiftspec_daemon.engine.generation import Vocabulary
from swiftspec_daemon.engine.messages import (
    Event,
    Finished,
    Generate,
    Priority,
    Speculation,
    Tokens,
)
from swiftspec_daemon.errors import EngineError
from swiftspec_daemon.settings import SpeculationSettings
from swiftspec_daemon.speculation.counters import SpeculationCounters

_LOADING_S = 120.0


class Run(NamedTuple):
    """One text."""

    tokens: list[int]
    seconds: float
    """From the request to its end, the prompt's KV being there."""
    speculation: SpeculationCounters | None
    """None for an engine without speculation."""


@dataclass(frozen=True, slots=True)
class Way:
    """How an engine guesses ahead."""

    name: str
    mode: Speculation
    settings: SpeculationSettings = field(default_factory=SpeculationSettings)
    look_up: bool = True
    """Whether drafts come from the text too."""


class _ModelAlone(Speculator):
    """Drafts of models only."""

    def sources(self, mode: Speculation, request: Generate) -> Sources:
        found = super().sources(mode, request)
        found.lookup = None
        return found


class Target:
    """A loaded target that several engines share, each with KV of its own."""

    def __init__(self, config: WorkerConfig, progress: Progress) -> None:
        """Raises SwiftSpecError."""
        threads = loading.choose_threads(config.threads)
        self.config = msgspec.structs.replace(config, threads=threads, kv_slots=1)
        self.model = loading.open_model(self.config, progress)
        backend = self.model.backend
        self.vocabulary = Vocabulary.build(
            self.model.token_bytes, self.model.eos_ids, backend.vocab
        )
        self.times = drafts.target_times(backend, self.config)


class Contestant:
    """One engine."""

    def __init__(
        self,
        target: Target,
        name: str,
        speculator: Speculator | None,
        recorder: Recorder | None = None,
    ) -> None:
        self.name = name
        self.threads = target.config.threads
        self.context = target.model.backend.context
        self.record: Record | None = None
        """What an opponent must know to fail: the text that comes."""
        self._speculator = speculator
        self._events: list[Event] = []
        backend = target.model.backend
        self._core = EngineCore(
            TimedBackend(backend, recorder) if recorder is not None else backend,
            target.vocabulary,
            slots=1,
            queue_limit=1,
            step_budget_ms=target.config.step_budget_ms,
            clock=time.perf_counter,
            emit=self._events.append,
            speculator=speculator,
        )
        self._mode: Speculation = "off"
        self._requests = 0
        self._core.warm_up()

    @classmethod
    def plain(cls, target: Target, name: str = "plain") -> Contestant:
        """Without speculation: a core that has no code of it to run."""
        return cls(target, name, None)

    @classmethod
    def speculating(cls, target: Target, way: Way, progress: Progress) -> Contestant:
        """Raises EngineError where its draft cannot be used."""
        config = msgspec.structs.replace(target.config, speculation=way.settings)
        supply = drafts.supply(config, progress)
        made = cls(target, way.name, _speculator(target, way, supply))
        made._mode = way.mode
        made._make_ready()
        return made

    @classmethod
    def traced(
        cls, target: Target, settings: SpeculationSettings, recorder: Recorder
    ) -> Contestant:
        """Asynchronous, its passes and its draft's noted by `recorder`."""
        config = msgspec.structs.replace(target.config, speculation=settings)
        name, threads = drafts.names(config)[0], settings.draft_threads
        draft = drafts.draft_config(config, name, threads)
        draft = msgspec.structs.replace(draft, trace=recorder.draft_file)
        supply = DraftSupply(process=lambda: DraftProcess(draft))
        way = Way("async", "async", settings)
        made = cls(target, way.name, _speculator(target, way, supply), recorder)
        made._mode = way.mode
        made._make_ready()
        return made

    @classmethod
    def worst(cls, target: Target, settings: SpeculationSettings, progress: Progress) -> Contestant:
        """With drafts that always fail and are sure of themselves (synthetic)."""
        config = msgspec.structs.replace(target.config, speculation=settings)
        record = Record()
        supply = worst_supply(config, record, progress)
        speculator = WorstSpeculator(record, settings, target.times, supply, target.model.backend)
        made = cls(target, "worst", speculator)
        made._mode = "auto"
        made.record = record
        made._make_ready()
        return made

    def run(self, prompt: Sequence[int], new_tokens: int) -> Run:
        """Generate, greedily, behind a prompt that the target has read before.

        Only the draft may have some of it to read yet, and that is counted. Nothing of an earlier
        text is left to look up. Raises EngineError.
        """
        self._requests += 1
        sequence = f"bench decode {self._requests}"
        self._finish(prompt, 0, sequence)
        self._events.clear()
        started = time.perf_counter()
        finished = self._finish(prompt, new_tokens, sequence)
        seconds = time.perf_counter() - started
        tokens = [t for event in self._events if isinstance(event, Tokens) for t in event.ids]
        self._events.clear()
        used = finished.usage.speculation
        return Run(tokens, seconds, None if used is None else used.counters)

    def close(self) -> None:
        """End the draft's process, if there is one."""
        if self._speculator is not None:
            self._speculator.close()

    def _finish(self, prompt: Sequence[int], new_tokens: int, sequence: str) -> Finished:
        self._requests += 1
        request = Generate(
            id=self._requests,
            prompt=list(prompt),
            max_tokens=new_tokens,
            priority=Priority.INVOKED,
            sequence=sequence,
            speculation=self._mode,
        )
        self._core.receive(request)
        while self._core.busy:
            self._core.step()
        last = self._events[-1]
        if not isinstance(last, Finished) or last.reason not in ("stop", "length"):
            why = getattr(last, "message", "")
            raise EngineError(f"{self.name} decoding did not finish a text of the benchmark. {why}")
        return last

    def _make_ready(self) -> None:
        """Load what drafts need, so that no text waits for it."""
        speculator = self._speculator
        assert speculator is not None
        speculator.warm_up()
        process = speculator.process
        deadline = time.monotonic() + _LOADING_S
        while process is not None and process.state == "loading" and time.monotonic() < deadline:
            process.receive(0.1)
        if process is not None and process.ready is None:
            raise EngineError(f"The draft's process is not ready. {process.problem}".strip())


def _speculator(target: Target, way: Way, supply: DraftSupply) -> Speculator:
    kind: Callable[..., Speculator] = Speculator if way.look_up else _ModelAlone
    return kind(
        way.settings,
        target.times,
        supply,
        time.perf_counter,
        max_rows=target.model.backend.max_rows,
    )
