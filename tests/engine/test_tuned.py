"""What tuning remembers: what is chosen, for what it holds, and what a worker makes of it."""

import msgspec
import pytest

from swiftspec_daemon import paths
from swiftspec_daemon.engine import tuned, tuning
from swiftspec_daemon.engine.client import EngineClient
from swiftspec_daemon.engine.config import Measured, WorkerConfig
from swiftspec_daemon.engine.drafts import loading as drafts
from swiftspec_daemon.engine.drafts.config import DraftConfig
from swiftspec_daemon.engine.toy import ToyBackend, ToyOptions
from swiftspec_daemon.engine.tuned import Setup, Tuned
from swiftspec_daemon.errors import ModelError
from swiftspec_daemon.settings import SpeculationSettings

TARGET, DRAFT = "toy:step_ms=1", "toy:wrong=0.1"
CONFIG = WorkerConfig(model=TARGET, speculation=SpeculationSettings(draft=DRAFT))
MEASURED = Measured(
    made="2026-01-02T03:04:05+00:00",
    target_ms={1: {1: 10.0, 8: 14.0}, 2: {1: 6.0, 8: 9.0}},
    draft=DRAFT,
    draft_ms={1: {1: 1.0}, 2: {1: 0.7}},
)


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("SWIFTSPEC_HOME", str(tmp_path))


def setup(mode, speedup, threads=2, draft_threads=1):
    return Setup(
        mode=mode,
        threads=threads,
        draft_threads=draft_threads,
        tokens_per_second=100 * speedup,
        speedup=speedup,
    )


def entry(mode="serial", config=CONFIG):
    setups = [setup("off", 1.0), setup("serial", 1.5), setup("async", 1.4, 1, 3)]
    return Tuned(
        key=tuning.key_of(config), name=config.model, mode=mode, setups=setups, measured=MEASURED
    )


@pytest.mark.parametrize(
    ("speedups", "mode"),
    [
        ({"off": 1.0}, "off"),
        ({"off": 1.0, "ngram": 0.97}, "off"),
        ({"off": 1.0, "ngram": 1.01, "serial": 1.015}, "off"),  # not worth it
        ({"off": 1.0, "ngram": 1.2, "serial": 1.21, "async": 1.22}, "ngram"),
        ({"off": 1.0, "ngram": 1.1, "serial": 1.4, "async": 1.6}, "async"),
    ],
)
def test_the_fastest_mode_unless_a_simpler_one_is_nearly_as_fast(speedups, mode):
    setups = [setup(name, speedup) for name, speedup in reversed(speedups.items())]
    assert tuned.best_mode(setups) == mode


def test_the_best_split_of_a_mode():
    slow, fast = setup("async", 1.1, 1, 3), setup("async", 1.3, 2, 2)
    assert tuned.best_of_each_mode([fast, slow, setup("off", 1.0)]) == [setup("off", 1.0), fast]


def test_what_is_remembered_is_found_again():
    assert tuning.find(CONFIG) == (None, "")
    assert tuned.remember(entry()) == paths.tuned_file()
    tuned.remember(entry("async"))  # in its place
    assert tuning.find(CONFIG) == (entry("async"), "")
    assert len(tuned.read()[0]) == 1
    other = msgspec.structs.replace(CONFIG, model="toy:vocab=290")
    assert tuning.find(other) == (None, "")
    tuned.remember(entry(config=other))
    assert tuning.find(CONFIG)[0] == entry("async")
    assert len(list(paths.state_dir().iterdir())) == 1  # nothing is left beside it


@pytest.mark.parametrize("changed", ["processor", "cores", "kernels", "backend", "model", "draft"])
def test_what_was_measured_elsewhere_is_ignored_with_a_note(changed):
    found = entry()
    value = 999 if changed == "cores" else "another"
    key = msgspec.structs.replace(found.key, **{changed: value})
    tuned.remember(msgspec.structs.replace(found, key=key))
    used, note = tuning.find(CONFIG)
    assert used is None
    assert "out of date" in note
    assert tuning.with_tuning(CONFIG) == CONFIG


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff\xfe", b'{"version": 1, "tuned": [{}]}',
                b'{"version": 2, "tuned": []}']
)  # fmt: skip
def test_a_damaged_file_is_ignored_with_a_note_and_replaced(content):
    paths.tuned_file().write_bytes(content)
    used, note = tuning.find(CONFIG)
    assert used is None
    assert "is ignored" in note
    assert tuning.with_tuning(CONFIG) == CONFIG
    tuned.remember(entry())
    assert tuning.find(CONFIG) == (entry(), "")


def test_settings_that_say_nothing_get_what_was_found():
    got = tuned.applied(CONFIG, entry("async"))
    assert (got.threads, got.speculation.mode, got.speculation.draft_threads) == (1, "async", 3)
    assert got.speculation.draft == DRAFT
    assert got.measured == MEASURED


def test_settings_that_say_something_are_kept():
    asked = SpeculationSettings(mode="serial", draft=DRAFT, draft_threads=2)
    config = msgspec.structs.replace(CONFIG, threads=5, speculation=asked)
    got = tuned.applied(config, entry("async"))
    assert (got.threads, got.speculation) == (5, asked)
    only_mode = msgspec.structs.replace(config, threads=0)
    assert tuned.applied(only_mode, entry("async")).threads == 2  # those of serial


def test_a_mode_that_was_not_tried_keeps_its_threads():
    config = msgspec.structs.replace(CONFIG, speculation=SpeculationSettings(mode="ngram"))
    got = tuned.applied(config, entry())
    assert (got.threads, got.speculation.mode, got.measured) == (0, "ngram", MEASURED)


def test_tables_take_the_place_of_measuring_at_start():
    class Unmeasured(ToyBackend):
        def speculate(self, cache, tokens, parents):
            raise AssertionError("it was measured")

    backend = Unmeasured(ToyOptions())
    config = msgspec.structs.replace(CONFIG, threads=2, measured=MEASURED)
    assert drafts.target_times(backend, config) == pytest.approx({1: 0.006, 8: 0.009})
    with pytest.raises(AssertionError, match="measured"):  # other threads than were measured
        drafts.target_times(backend, msgspec.structs.replace(config, threads=3))
    loaded = drafts.load(DraftConfig(draft=DRAFT, target=config, threads=2), lambda *_: None)
    assert loaded.step_s == pytest.approx({1: 0.0007})
    other = drafts.load(DraftConfig(draft="toy:", target=config, threads=2), lambda *_: None)
    assert set(other.step_s) > {1}


@pytest.mark.parametrize("mode", ["serial", "off"])
async def test_a_worker_uses_it(mode):
    tuned.remember(entry(mode))
    engine = EngineClient(CONFIG)
    try:
        await engine.ready()
        told = engine.status.drafts
        assert (told.mode, told.tuned) == (mode, MEASURED.made)
    finally:
        await engine.stop()


def test_a_model_that_is_not_there_has_no_key(tmp_path):
    config = WorkerConfig(model=str(tmp_path / "nowhere"))
    with pytest.raises(ModelError):
        tuning.key_of(config)
    assert tuning.find(config) == (None, "")
