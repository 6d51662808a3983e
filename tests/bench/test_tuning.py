"""The long measurement on toys: what is tried, and that what comes out is what was seen."""

import pytest

from swiftspec_daemon.bench import tuning
from swiftspec_daemon.bench.tuning import Candidate, candidates, setups_of, thread_counts
from swiftspec_daemon.engine import timing
from swiftspec_daemon.engine.config import Measured, WorkerConfig
from swiftspec_daemon.errors import ModelError
from swiftspec_daemon.settings import SpeculationSettings


def test_threads_to_try():
    assert thread_counts(1) == [1]
    assert thread_counts(4) == [1, 2, 3, 4]
    assert thread_counts(12) == [1, 2, 3, 4, 5, 6, 7, 8, 12]
    assert thread_counts(64) == [1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64]


def measured(draft="d", **target):
    times = {int(count[1:]): {1: ms} for count, ms in target.items()}
    return Measured(made="", target_ms=times, draft=draft)


def test_without_a_draft_there_are_two_ways():
    found = candidates(measured("", t1=10.0, t2=6.0), 2, processes=True)
    assert found == [Candidate("off", 2, 1), Candidate("ngram", 2, 1)]


def test_the_cores_are_split_between_target_and_draft():
    times = {"t1": 10.0, "t2": 6.0, "t3": 5.0, "t4": 4.0}
    found = candidates(measured(**times), 4, processes=True)
    assert found == [
        Candidate("off", 4, 1),
        Candidate("ngram", 4, 1),
        Candidate("serial", 4, 1),
        Candidate("async", 3, 1),
        Candidate("async", 2, 2),
        Candidate("async", 1, 3),
    ]
    assert candidates(measured(**times), 4, processes=False) == found[:3]


def test_one_core_is_shared():
    assert candidates(measured(t1=10.0), 1, processes=True)[-1] == Candidate("async", 1, 1)


def test_fewer_threads_where_they_are_as_fast():
    assert candidates(measured("", t1=10.0, t2=9.9), 2, processes=True)[0].threads == 1


def test_medians_prompt_by_prompt():
    off, serial = Candidate("off", 2, 1), Candidate("serial", 2, 1)
    [plain, fast] = setups_of({off: [10.0, 20.0, 40.0], serial: [15.0, 10.0, 80.0]})
    assert (plain.mode, plain.tokens_per_second, plain.speedup) == ("off", 20.0, 1.0)
    assert (fast.mode, fast.tokens_per_second, fast.speedup) == ("serial", 15.0, 1.5)


async def test_a_model_that_does_not_load_is_one_error():
    with pytest.raises(ModelError, match=r"."):
        await tuning.tune(WorkerConfig(model="toy:fail_load=1"), 0, lambda *_: None)


async def test_a_draft_that_does_not_load_is_left_out_with_a_note(tmp_path):
    asked = SpeculationSettings(draft=str(tmp_path / "nowhere"))
    config = WorkerConfig(model="toy:", threads=1, speculation=asked)
    outcome = await tuning.tune(config, 0, lambda *_: None)
    assert [setup.mode for setup in outcome.setups] == ["off", "ngram"]
    assert outcome.notes[0].startswith("No draft model: ")
    assert outcome.prompts == 1
    [times] = outcome.tuned.measured.target_ms.values()
    assert tuple(times) == timing.TARGET_ROWS
    assert all(ms > 0 for ms in times.values())
    assert outcome.tuned.measured.draft_ms == {}
