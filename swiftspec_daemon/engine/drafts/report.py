"""Tells the daemon what there is for speculation: which drafts, how they are, what is planned.

Decides when there is something to tell; knows no pipe and no request.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from swiftspec_daemon.engine.drafts.process import DraftProcess
from swiftspec_daemon.engine.drafts.session import LOOKUPS
from swiftspec_daemon.engine.drafts.speculator import OpenDraft, Speculator
from swiftspec_daemon.engine.messages import DraftModel, Drafts, Event, PlannerPlan

LOOK_S = 1.0
"""An idle worker looks after its draft's process so often."""
_PLANS_S = 1.0
"""And tells what its planners think at most so often."""


class DraftReporter:
    """Emits `Drafts`. Made before requests are served, then asked between steps."""

    def __init__(
        self,
        speculator: Speculator,
        emit: Callable[[Event], None],
        clock: Callable[[], float],
        tuned: str = "",
    ) -> None:
        """`tuned`: when the measurements that are used were made."""
        self._speculator = speculator
        self._emit = emit
        self._clock = clock
        self._tuned = tuned
        self._said: object = None
        self._worked = False
        """There were steps since the planners were told about."""
        self._next_plans = 0.0

    def update(self, *, worked: bool, idle: bool) -> None:
        """After a step (`worked`) or a while without one. `idle`: no request waits for us."""
        self._worked = self._worked or worked
        if idle:
            self._speculator.look()
        due = idle and self._worked and self._clock() >= self._next_plans
        if due or self._state() != self._said:
            self.say()

    @property
    def wait_s(self) -> float | None:
        """How long an idle worker may wait for commands before the next `update`."""
        if self._worked:
            return max(0.01, self._next_plans - self._clock())
        return LOOK_S if self._speculator.process is not None else None

    def say(self) -> None:
        """Tell how things are now."""
        self._said = self._state()
        self._worked = False
        self._next_plans = self._clock() + _PLANS_S
        self._emit(describe(self._speculator, self._tuned))

    def _state(self) -> object:
        speculator = self._speculator
        process = speculator.process
        own = (
            None
            if process is None
            else (process.state, process.pid, process.restarts, process.problem)
        )
        return own, speculator.problem, len(speculator.loaded)


def describe(speculator: Speculator, tuned: str = "") -> Drafts:
    """Everything that the daemon is told."""
    models = [_local(draft) for draft in speculator.loaded]
    if speculator.process is not None:
        models.append(_remote(speculator.process))
    return Drafts(
        mode=speculator.mode,
        models=models,
        problem=speculator.problem,
        tuned=tuned,
        planners={mode: _plan(planner.explain()) for mode, planner in speculator.planners.items()},
    )


def source_name(bit: int) -> str:
    """The name by which counters know a bit of `TokenTree.marks`."""
    if bit in LOOKUPS:
        return LOOKUPS[bit]
    number = bit.bit_length() - 1
    return f"draft {number}" if number > 1 else "draft"


def _plan(explained: dict[str, object]) -> PlannerPlan:
    sources = explained["sources"]
    assert isinstance(sources, dict)
    named = {source_name(bit): source for bit, source in sources.items()}
    return msgspec.convert(explained | {"sources": named}, PlannerPlan)


def _local(draft: OpenDraft) -> DraftModel:
    return DraftModel(
        name=draft.name,
        state="ready",
        kernels=draft.kernels,
        weight_bytes=draft.weight_bytes,
        kv_bytes=draft.kv_bytes,
    )


def _remote(process: DraftProcess) -> DraftModel:
    ready = process.ready
    return DraftModel(
        name=process.name,
        state=process.state,
        own_process=True,
        kernels=ready.kernels if ready else "",
        weight_bytes=ready.weight_bytes if ready else 0,
        kv_bytes=ready.kv_bytes if ready else 0,
        pid=process.pid,
        restarts=process.restarts,
        problem=process.problem,
    )
