"""What a worker has for speculation: planners, calibration, look-up, draft models.

Lives as long as the worker, so that what was learned goes from one request to the next. A draft
model is loaded when it is first needed; one that cannot be used is left out, and `problem` says
why. Knows no weights: drafts are opened by whoever loads models.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from swiftspec_daemon.engine.drafts.pool import DraftPool
from swiftspec_daemon.engine.drafts.process import DraftProcess
from swiftspec_daemon.engine.drafts.remote import RemotePair, RemoteRequest, too_long
from swiftspec_daemon.engine.drafts.sampled import MultiStepSession, SampledDraft
from swiftspec_daemon.engine.drafts.session import (
    NGRAM,
    PAST,
    DraftSession,
    LocalDraft,
    Sources,
    draft_bit,
)
from swiftspec_daemon.engine.messages import Generate, Speculation
from swiftspec_daemon.errors import SwiftSpecError
from swiftspec_daemon.settings import SpeculationSettings
from swiftspec_daemon.speculation.calibration import Calibration
from swiftspec_daemon.speculation.costs import CostTable
from swiftspec_daemon.speculation.decoding import DecodeState
from swiftspec_daemon.speculation.drafter import TreeDrafter
from swiftspec_daemon.speculation.planner import Planner
from swiftspec_daemon.speculation.remembered import Remembered
from swiftspec_daemon.speculation.suffix import SuffixSource

log = logging.getLogger(__name__)

_LOOKUP_S = 50e-6
"""A look-up, before one was measured."""
_LOOKUPS = 8
"""Documents whose look-up index is kept."""


@dataclass(frozen=True, slots=True)
class OpenDraft:
    """A draft model that is loaded in this process."""

    name: str
    pool: DraftPool
    step_s: Mapping[int, float]
    """Seconds of a forward pass, by rows."""
    context: int
    """Positions that it has room for."""
    sampled: Callable[[], SampledDraft] | None = None
    """The same model for multi-step sampling, with a KV cache of its own."""
    kernels: str = ""
    weight_bytes: int = 0
    kv_bytes: int = 0
    """Of all its KV caches, once they are filled."""


Session = DraftSession | MultiStepSession


@dataclass(slots=True)
class DraftSupply:
    """Where drafts come from; each is asked once, when first needed."""

    local: Callable[[], list[OpenDraft]] | None = None
    """Raises SwiftSpecError. None: there is no draft model for this target."""
    process: Callable[[], DraftProcess] | None = None
    """None: there is none, or the system cannot run one."""


@dataclass(slots=True)
class _Loaded:
    """Draft models in this process, once asked for."""

    drafts: list[OpenDraft] = field(default_factory=list)
    asked: bool = False


class Speculator:
    """See the module."""

    def __init__(
        self,
        settings: SpeculationSettings,
        target_s: Mapping[int, float],
        supply: DraftSupply,
        clock: Callable[[], float],
        *,
        max_rows: int,
        planner: type[Planner] = Planner,
    ) -> None:
        """`target_s`: seconds of a forward pass of the target, by rows; `max_rows` is the most
        that its backend takes at once; `planner` makes the planner of each mode."""
        self.problem = ""
        """Why a draft model that was asked for is not used, for people."""
        self.calibration = Calibration()
        self.memory = Remembered()
        """What look-ups copy from besides the request itself."""
        self._settings = settings
        self._target_s = dict(target_s)
        self._supply = supply
        self._clock = clock
        self._max_rows = min(settings.max_rows, max_rows)
        self._new_planner = planner
        self._planners: dict[Speculation, Planner] = {}
        self._loaded = _Loaded()
        self._pair: RemotePair | None = None
        self._sampled: SampledDraft | None = None
        self._lookups: dict[str, SuffixSource] = {}
        self._numbers = itertools.count(1)

    @property
    def drafts(self) -> list[str]:
        """Names of the draft models that are loaded in this process."""
        return [draft.name for draft in self._loaded.drafts]

    @property
    def loaded(self) -> list[OpenDraft]:
        """The draft models that are loaded in this process."""
        return self._loaded.drafts

    @property
    def mode(self) -> Speculation:
        """What "auto" means now."""
        return self._mode("auto")

    @property
    def planners(self) -> Mapping[Speculation, Planner]:
        """Those that were needed so far."""
        return self._planners

    @property
    def process(self) -> DraftProcess | None:
        """The draft's process, if one was asked for."""
        return None if self._pair is None else self._pair.process

    def warm_up(self) -> None:
        """Load or start now what the settings will need, so that no request waits for it."""
        mode = self._mode("auto")
        if mode == "async":
            self._remote_pair()

    def session(self, request: Generate) -> tuple[Speculation, Session | None]:
        """How this request is decoded, and its drafts; None for plain decoding."""
        mode = self._mode(request.speculation)
        if mode == "off":
            return mode, None
        if mode == "serial" and (sampled := self._multi_step(request)) is not None:
            return mode, MultiStepSession(sampled, request.seed, self._clock)
        sources, planner = self.sources(mode, request), self._planner(mode)
        return mode, DraftSession(sources, planner, self.calibration, self._clock)

    def sources(self, mode: Speculation, request: Generate) -> Sources:
        """What proposes tokens in this mode; its draft models are loaded if it has some."""
        sources = Sources(lookup=self._lookup(request))
        if mode == "serial":
            sources.local = self._local_drafts(request)
        if mode == "async" and (pair := self._remote_pair()) is not None:
            sources.remote = RemoteRequest(pair, next(self._numbers), request, self._clock)
        return sources

    def explain(self) -> dict[str, object]:
        """For people: what each planner chose and why."""
        return {mode: planner.explain() for mode, planner in self._planners.items()}

    def look(self) -> None:
        """Take in what the draft's process has said; start it again where it was lost."""
        if self._pair is not None:
            self._pair.look()

    def close(self) -> None:
        """End the draft's process."""
        if self._pair is not None:
            self._pair.close()

    def _mode(self, asked: Speculation) -> Speculation:
        """What is done for this wish: what has no draft model does without."""
        mode = self._settings.mode if asked == "auto" else asked
        if mode == "async":
            return "async" if self._supply.process is not None else "ngram"
        if mode in ("serial", "auto"):
            self._load()
            return "serial" if self._loaded.drafts else "ngram"
        return mode

    def _load(self) -> None:
        if self._loaded.asked or self._supply.local is None:
            return
        self._loaded.asked = True
        try:
            self._loaded.drafts = self._supply.local()
        except SwiftSpecError as error:
            self.problem = str(error)
            log.warning("no draft model: %s", error)

    def _planner(self, mode: Speculation) -> Planner:
        found = self._planners.get(mode)
        if found is None:
            found = self._new_planner(
                CostTable(self._target_s), self.calibration, max_size=self._max_rows
            )
            found.add_lookup(NGRAM, _LOOKUP_S)
            found.add_lookup(PAST, _LOOKUP_S)
            if mode == "serial":
                for index, draft in enumerate(self._loaded.drafts):
                    found.add_draft(draft_bit(index), CostTable(draft.step_s))
            self._planners[mode] = found
        return found

    def _remote_pair(self) -> RemotePair | None:
        if self._pair is None and self._supply.process is not None:
            self._pair = RemotePair(self._supply.process(), self._planner("async"), draft_bit(0))
            self._pair.look()
        return self._pair

    def _lookup(self, request: Generate) -> SuffixSource:
        """The document's look-up, whose index follows its text."""
        self.memory.settle(request.text_id, request.prompt)
        found = self._lookups.pop(request.sequence, None)
        if found is None:
            found = SuffixSource(self.memory.texts, NGRAM, self.memory.past)
        found.excluded = request.text_id
        self._lookups[request.sequence] = found  # the most recently used is last
        while len(self._lookups) > _LOOKUPS:
            del self._lookups[next(iter(self._lookups))]
        return found

    def _multi_step(self, request: Generate) -> SampledDraft | None:
        """The draft of a request that multi-step sampling decides: it has conditions."""
        drafts = self._loaded.drafts
        if self._settings.acceptance != "multi-step" or len(drafts) != 1:
            return None
        if request.temperature <= 0 or drafts[0].sampled is None:
            return None
        if self._sampled is None:
            self._sampled = drafts[0].sampled()
        return self._sampled

    def _local_drafts(self, request: Generate) -> list[LocalDraft]:
        """The drafts in this process, each under its own number; those whose context is too short
        for the prompt stay silent."""
        tokens = len(request.prompt)
        for draft in self._loaded.drafts:
            problem = too_long(draft.context) if tokens > draft.context else ""
            if problem and problem != self.problem:
                self.problem = problem
                log.warning("%s", problem)
        return [self._local(draft, request.sequence) for draft in self._loaded.drafts]

    def _local(self, draft: OpenDraft, sequence: str) -> LocalDraft:
        def open_one(tokens: Sequence[int], state: DecodeState) -> TreeDrafter | None:
            if len(tokens) > draft.context:
                return None
            return draft.pool.open(tokens, sequence, state)

        return LocalDraft(open_one, CostTable(draft.step_s))
