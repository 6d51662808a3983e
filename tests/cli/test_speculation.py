"""Lines about speculation, and where they are shown."""

import json
import os
import signal
import sys

import pytest

from swiftspec_daemon.cli.speculation import describe, status_rows
from swiftspec_daemon.protocol.speculation import (
    DraftStatus,
    PlannerStatus,
    SourceStatus,
    SpeculationCounts,
    SpeculationReport,
    SpeculationStatus,
)

COUNTS = SpeculationCounts(
    rounds=10,
    tokens=26,
    tokens_per_verification=2.6,
    proposed=31,
    accepted=14,
    tried_at=[10, 8],
    accepted_at=[8, 6],
    fall_ins=3,
    fall_outs=1,
)


def test_the_line_about_a_request():
    report = SpeculationReport(mode="serial", counts=COUNTS)
    expected = "speculation: serial, 2.6 tokens a verification, 14 of 31 drafts accepted"
    assert describe(report) == expected
    assert describe(SpeculationReport(mode="off")) == "speculation: off"


def test_the_rows_of_status():
    planner = PlannerStatus(
        plain_ms=10,
        target_ms={1: 10, 8: 14.5},
        tokens_per_second=170,
        tokens_per_round=2.5,
        speedup=1.7,
        last_size=6,
        expected_gain=0.4,
        rounds={"plain": 2, "speculative": 8, "probe": 0},
        sources={"draft": SourceStatus(kind="draft", worth=0.5)},
    )
    status = SpeculationStatus(
        mode="async",
        drafts=[DraftStatus(name="small", state="failed", own_process=True, restarts=2,
                            message="It is lost.")],
        tuned="2026-01-02T03:04:05",
        totals={"async": COUNTS, "ngram": SpeculationCounts()},
        planners={"async": planner},
    )  # fmt: skip
    assert status_rows(status) == {
        "speculation": "async with draft small, tuned on 2026-01-02",
        "draft": "small: failed, in a process of its own, lost 2 times. It is lost.",
        "with async": "2.6 tokens a verification; 14 of 31 drafts accepted; "
        "by position 80% 75%; fall-in 75%",
        "planner, async": "1.70 times plain of late; a step of the model 10.0 ms, of 8 tokens "
        "14.5 ms; rounds: 2 plain, 8 speculative; tokens a round gained: draft +0.50",
    }


def test_a_draft_that_is_there_twice_is_named_once():
    """In the model's process for serial requests, and in one of its own for asynchronous ones."""
    drafts = [DraftStatus(name="small", state="ready"), DraftStatus(name="more", state="ready")]
    beside = DraftStatus(name="small", state="ready", own_process=True)
    rows = status_rows(SpeculationStatus(mode="serial", drafts=[*drafts, beside]))
    assert rows == {
        "speculation": "serial with draft small and more",
        "draft": "small: ready, in the model's process",
        "draft 2": "more: ready, in the model's process",
        "draft, async": "small: ready, in a process of its own",
    }


def test_the_rows_without_a_draft():
    status = SpeculationStatus(mode="ngram", message="There is no folder x.")
    assert status_rows(status) == {
        "speculation": "ngram (look-up in the text)",
        "no draft": "There is no folder x.",
    }


@pytest.mark.skipif(
    sys.platform == "win32", reason="the daemons of these tests are ended by signals of POSIX"
)
def test_complete_status_and_doctor_tell_it(swiftspec, wait):
    swiftspec.settings |= {"speculation.mode": "serial", "speculation.draft": "toy:wrong=0.1"}
    (swiftspec.folder / "a.py").write_text("one two one two one two one ")
    done = swiftspec("complete", "a.py", "--timings", "--max-tokens", "20", "--max-lines", "9")
    assert done.stderr.splitlines()[-1].startswith("speculation: serial, ")
    as_json = ["complete", "a.py", "--json", "--max-tokens", "9"]
    told = json.loads(swiftspec(*as_json).stdout)["speculation"]
    assert told["mode"] == "serial"
    assert told["counts"]["rounds"] > 0
    assert set(told["counts"]) == set(SpeculationCounts.__struct_fields__)
    plain = json.loads(swiftspec(*as_json, "--speculation", "off").stdout)["speculation"]
    assert plain["mode"] == "off"

    def counted():
        return json.loads(swiftspec("status", "--json").stdout)["speculation"]["totals"]

    assert wait(counted)["serial"]["rounds"] > told["counts"]["rounds"]
    assert "serial with draft toy" in swiftspec("status").stdout
    assert "serial with draft toy" in swiftspec("doctor").stdout


@pytest.mark.skipif(os.name != "posix", reason="drafts in processes of their own need POSIX")
def test_a_draft_process_and_its_loss_are_in_plain_sight(swiftspec, daemon_with_draft, wait):
    def draft(**wanted):
        def look():
            status = json.loads(swiftspec("status", "--json").stdout)
            drafts = (status["speculation"] or {"drafts": []})["drafts"]
            fits = drafts and all(drafts[0][name] == value for name, value in wanted.items())
            return (drafts[0], status["memory_mb"]) if fits else None

        return wait(look)

    first, memory = draft(state="ready", restarts=0)
    assert first["own_process"]
    assert memory["draft"] > 1
    os.kill(first["pid"], signal.SIGKILL)
    second, _ = draft(state="ready", restarts=1)
    assert second["pid"] != first["pid"]
    assert "draft        toy:: ready, in a process of its own" in swiftspec("status").stdout
    assert "lost 1 time" in swiftspec("doctor").stdout


@pytest.fixture
def daemon_with_draft(swiftspec):
    """A running daemon whose draft has a process of its own."""
    swiftspec.settings |= {"speculation.mode": "async", "speculation.draft": "toy:"}
    process = swiftspec.start("serve")
    swiftspec.wait_record()
    yield process
    process.kill()
    process.communicate()
