"""One message of each kind."""

from __future__ import annotations

from swiftspec_daemon.protocol.messages import (
    Accepted,
    Cancel,
    ChangeDocument,
    CloseDocument,
    Complete,
    Counters,
    Delta,
    Done,
    Edit,
    Error,
    FirstLine,
    GetStatus,
    Hello,
    ModelStatus,
    OpenDocument,
    Position,
    Rejected,
    Shown,
    Status,
    Timings,
    Welcome,
)
from swiftspec_daemon.protocol.speculation import (
    DraftStatus,
    PlannerStatus,
    SourceStatus,
    SpeculationCounts,
    SpeculationReport,
    SpeculationStatus,
)

PLANNER = PlannerStatus(
    plain_ms=9.5,
    target_ms={1: 9.5, 8: 12.0},
    tokens_per_second=150.0,
    tokens_per_round=2.5,
    speedup=1.5,
    last_size=4,
    expected_gain=0.5,
    rounds={"plain": 1},
    sources={"ngram": SourceStatus(kind="lookup", worth=0.5, acceptance=[[0.5, 0.1]])},
)

FROM_CLIENT = [
    Hello(client="a/1", position_encodings=["utf-8", "utf-16"]),
    OpenDocument(uri="u", text="a\r\nb", version=1, language="c"),
    ChangeDocument(
        uri="u", version=2, edits=[Edit(start=Position(0, 0), end=Position(0, 1), text="x")]
    ),
    ChangeDocument(uri="u", version=3, text=""),
    CloseDocument(uri="u"),
    Complete(id="a", uri="u", position=Position(1, 2), version=2, trigger="invoked", seed=3),
    Cancel(id=1),
    Shown(id=1),
    Accepted(id=1, characters=3),
    Rejected(id=1),
    GetStatus(subscribe=True),
]
FROM_SERVER = [
    Welcome(protocol=1, server="s", position_encoding="utf-16", capabilities=["streaming"]),
    Delta(id=1, text="é"),
    FirstLine(id=1, text="x"),
    Done(
        id=1,
        reason="stop",
        text="x",
        timings=Timings(total_ms=1.5, new_tokens=3),
        speculation=SpeculationReport(mode="ngram", counts=SpeculationCounts(rounds=2, tokens=3)),
    ),
    Status(
        version="1",
        pid=2,
        uptime_s=3.0,
        model=ModelStatus(name="m", state="ready"),
        counters=Counters(shown=1),
        speculation=SpeculationStatus(
            mode="async",
            drafts=[DraftStatus(name="d", state="ready", own_process=True, pid=7)],
            totals={"async": SpeculationCounts(rounds=2, accepted_lengths=[1, 0, 1])},
            planners={"async": PLANNER},
        ),
    ),
    Error(code="c", message="m", id="x"),
]
