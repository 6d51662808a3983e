"""What the engine says of speculation, in the wire's words. Knows no requests and no sockets."""

from __future__ import annotations

import msgspec

from swiftspec_daemon.engine.interface import EngineStatus
from swiftspec_daemon.engine.messages import DraftModel, Drafts, Usage
from swiftspec_daemon.models import draft
from swiftspec_daemon.protocol.speculation import (
    DraftStatus,
    PlannerStatus,
    SpeculationCounts,
    SpeculationReport,
    SpeculationStatus,
)
from swiftspec_daemon.speculation.counters import SpeculationCounters

_SECONDS = ("draft", "draft_idle", "target", "target_idle", "own")


def report(usage: Usage) -> SpeculationReport:
    """Of one request, for its `done`."""
    if usage.speculation is None:
        return SpeculationReport(mode="off")
    done = usage.speculation
    return SpeculationReport(mode=done.mode, counts=counts(done.counters))


def counts(counters: SpeculationCounters) -> SpeculationCounts:
    """Seconds become milliseconds; all else keeps its name."""
    plain = msgspec.structs.fields(SpeculationCounts)
    fields = {
        field.name: getattr(counters, field.name)
        for field in plain
        if hasattr(counters, field.name)
    }
    times = {f"{name}_ms": round(getattr(counters, f"{name}_s") * 1e3, 3) for name in _SECONDS}
    rate = round(counters.tokens_per_round, 3)
    return SpeculationCounts(**fields, **times, tokens_per_verification=rate)


def status(engine: EngineStatus) -> SpeculationStatus | None:
    """For `status`; None while no model is loaded, and where all decoding is plain."""
    drafts = engine.drafts
    if drafts is None:
        return None
    return SpeculationStatus(
        mode=drafts.mode,
        drafts=[_draft(model) for model in drafts.models],
        message=drafts.problem,
        tuned=drafts.tuned,
        totals={mode: counts(total) for mode, total in engine.speculated.items()},
        planners=_planners(drafts),
    )


def _draft(model: DraftModel) -> DraftStatus:
    own = draft.default_folder()
    return DraftStatus(
        name="default" if own is not None and model.name == str(own) else model.name,
        state=model.state,
        own_process=model.own_process,
        kernels=model.kernels,
        weight_mb=round(model.weight_bytes / 1e6, 1),
        kv_mb=round(model.kv_bytes / 1e6, 1),
        pid=model.pid,
        restarts=model.restarts,
        message=model.problem,
    )


def _planners(drafts: Drafts) -> dict[str, PlannerStatus]:
    """Rounded: they are for people."""
    plain = msgspec.to_builtins(drafts.planners)
    return msgspec.convert(_rounded(plain), dict[str, PlannerStatus])


def _rounded(value: object) -> object:
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner) for inner in value]
    return round(value, 4) if isinstance(value, float) else value
