"""The engine's counts in the wire's words."""

from swiftspec_daemon.completion import speculation
from swiftspec_daemon.completion.running import Completion
from swiftspec_daemon.engine.interface import EngineStatus
from swiftspec_daemon.engine.messages import (
    DraftModel,
    Drafts,
    PlannerPlan,
    SourcePlan,
    SpeculationUsage,
    Usage,
)
from swiftspec_daemon.protocol.speculation import SpeculationReport
from swiftspec_daemon.speculation.counters import SpeculationCounters

COUNTERS = SpeculationCounters(
    rounds=4,
    plain_rounds=1,
    tokens=10,
    proposed=9,
    accepted=6,
    accepted_lengths=[1, 1, 1, 1],
    tried_at=[3, 2],
    accepted_at=[2, 1],
    proposed_by={"ngram": 9},
    accepted_by={"ngram": 6},
    fall_ins=2,
    fall_outs=1,
    stale_trees=1,
    missed_deadlines=2,
    draft_steps=7,
    draft_s=0.25,
    draft_idle_s=0.5,
    target_s=1.5,
    target_idle_s=0.125,
    own_s=0.001,
)


def test_counts_keep_every_number():
    counts = speculation.counts(COUNTERS)
    assert (counts.tokens_per_verification, counts.rounds, counts.tokens) == (2.5, 4, 10)
    assert (counts.draft_ms, counts.draft_idle_ms) == (250, 500)
    assert (counts.target_ms, counts.target_idle_ms, counts.own_ms) == (1500, 125, 1)
    for name in SpeculationCounters.__dataclass_fields__:
        if not name.endswith("_s"):
            assert getattr(counts, name) == getattr(COUNTERS, name), name


def test_a_text_that_we_end_has_what_it_cost_so_far():
    completion = Completion()
    assert completion.completed("cancelled").speculation is None
    usage = Usage(speculation=SpeculationUsage(mode="serial", counters=COUNTERS))
    completion.tokens_out(3, usage)
    completion.tokens_out(1, None)
    done = completion.completed("lines").speculation
    assert done == SpeculationReport(mode="serial", counts=speculation.counts(COUNTERS))


def test_plain_decoding_is_told_as_off():
    completion = Completion()
    completion.usage(Usage())
    assert completion.completed("stop").speculation == SpeculationReport(mode="off")


def test_the_status_of_an_engine():
    assert speculation.status(EngineStatus(state="loading")) is None
    planner = PlannerPlan(
        plain_ms=10.123456,
        target_ms={1: 10.0, 4: 11.5},
        tokens_per_second=100.0,
        tokens_per_round=2.0,
        speedup=1.9,
        last_size=5,
        expected_gain=0.5,
        rounds={"plain": 1, "speculative": 3},
        sources={"draft": SourcePlan(kind="draft", worth=0.2, step_ms={1: 1.0})},
    )
    engine = EngineStatus(
        state="ready",
        drafts=Drafts(
            mode="async",
            models=[
                DraftModel(
                    name="/d",
                    state="failed",
                    own_process=True,
                    weight_bytes=3_000_000,
                    kv_bytes=40_000,
                    restarts=2,
                    problem="It is lost.",
                )
            ],
            tuned="2026-01-02T03:04:05",
            planners={"async": planner},
        ),
        speculated={"async": COUNTERS},
    )
    told = speculation.status(engine)
    assert told is not None
    assert (told.mode, told.tuned) == ("async", "2026-01-02T03:04:05")
    [draft] = told.drafts
    assert (draft.name, draft.state, draft.restarts) == ("/d", "failed", 2)
    assert (draft.weight_mb, draft.message) == (3.0, "It is lost.")
    assert told.totals == {"async": speculation.counts(COUNTERS)}
    assert told.planners["async"].plain_ms == 10.1235
    assert told.planners["async"].target_ms == {1: 10.0, 4: 11.5}
    assert told.planners["async"].sources["draft"].worth == 0.2
