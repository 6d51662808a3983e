"""`swiftspec tune`, from the measurement to the daemon that uses it."""

import json
import sys

import pytest

from swiftspec_daemon.bench.tuning import Outcome
from swiftspec_daemon.cli.tune import describe, modes_table, steps_table
from swiftspec_daemon.engine.config import Measured
from swiftspec_daemon.engine.tuned import Setup, Tuned, TunedKey

SETUPS = [
    Setup(mode="off", threads=2, draft_threads=1, tokens_per_second=100.0, speedup=1.0),
    Setup(mode="async", threads=1, draft_threads=1, tokens_per_second=160.0, speedup=1.6),
]
KEY = TunedKey(processor="p", cores=2, kernels="k", backend="auto", model="m", draft="d")


def cells(table):
    columns = [[str(column.header), *column.cells] for column in table.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def test_the_tables():
    measured = Measured(
        made="", target_ms={1: {1: 10.0, 4: 12.5}}, draft="d", draft_ms={1: {1: 1.0}}
    )
    found = Tuned(key=KEY, name="m", mode="async", setups=SETUPS, measured=measured)
    outcome = Outcome(found, SETUPS, prompts=3)
    assert cells(steps_table(outcome)) == [
        ["threads", "1", "4"],
        ["model, 1", "10.00", "12.50"],
        ["draft, 1", "1.00", ""],
    ]
    assert cells(modes_table(outcome)) == [
        ["speculation", "tokens/s", "against plain", ""],
        ["off with 2 threads", "100.0", "1.00", ""],
        ["async with 1 thread, 1 of the draft", "160.0", "1.60", "chosen"],
    ]


@pytest.mark.skipif(
    sys.platform == "win32", reason="the daemons of these tests are ended by signals of POSIX"
)
def test_a_draft_that_pays_is_found_told_and_used(swiftspec, wait):
    """It costs a hundredth of its target and is never wrong."""
    swiftspec.settings |= {
        "model.target": "toy:step_ms=20",
        "speculation.draft": "toy:step_ms=0.2",
    }
    assert "no (`swiftspec tune` does it)" in swiftspec("doctor").stdout
    done = swiftspec("tune", "--seconds", "0", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    chosen = Setup(**told["chosen"])
    assert chosen.mode in ("serial", "async")
    assert {"off", "ngram", "serial"} <= {setup["mode"] for setup in told["setups"]}
    assert told["measured"]["target_ms"]["1"]["1"] >= 20
    made = told["measured"]["made"]
    assert f"{made[:10]}: {describe(chosen)}" in swiftspec("doctor").stdout
    assert swiftspec("serve", "--background").returncode == 0

    def speculation():
        return json.loads(swiftspec("status", "--json").stdout)["speculation"]

    used = wait(speculation)
    assert (used["mode"], used["tuned"]) == (chosen.mode, made)


def test_wrong_arguments_are_refused(swiftspec, monkeypatch):
    done = swiftspec("tune", "--seconds", "-1")
    assert done.returncode == 2
    assert "--seconds must be a number from 0" in done.stderr
    done = swiftspec("tune", "--model", "toy:colour=red")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "colour" in done.stderr
