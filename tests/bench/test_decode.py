"""`swiftspec bench decode` on toy pairs: who writes what, and what becomes of the seconds.

Nothing here depends on how long anything takes, but for a target that sleeps so long in each pass
that any draft pays.
"""

import json
from pathlib import Path

import pytest

from swiftspec_daemon.bench import decode, decode_figures, decode_prompts
from swiftspec_daemon.bench.decode import Measured, Options, Text
from swiftspec_daemon.bench.decode_engines import Contestant, Run, Target, Way
from swiftspec_daemon.bench.decode_trace import Recorder, TimedBackend, Trace
from swiftspec_daemon.cli.app import main
from swiftspec_daemon.engine import toy
from swiftspec_daemon.engine.config import WorkerConfig
from swiftspec_daemon.errors import EngineError, UsageError
from swiftspec_daemon.settings import SpeculationSettings
from swiftspec_daemon.speculation.counters import SpeculationCounters

PROMPT = toy.encode(b"def area(width, height):\n    return ")
SLOW = "toy:step_ms=4"


def quiet(phase: str, fraction: float) -> None:
    assert 0 <= fraction <= 1, phase


def target(model: str = "toy:", draft: str = "toy:") -> Target:
    speculation = SpeculationSettings(draft=draft)
    return Target(WorkerConfig(model=model, threads=1, speculation=speculation), quiet)


def naive(count: int) -> list[int]:
    """The toy's own text, a prefill for each token."""
    backend = toy.ToyBackend(toy.ToyOptions())
    tokens = list(PROMPT)
    for _ in range(count):
        logits = backend.append(backend.new_cache(512), tokens, logits=True)
        assert logits is not None
        tokens.append(int(logits[: len(toy.token_bytes())].argmax()))
    return tokens[len(PROMPT) :]


# --- texts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "kept"),
    [
        ([], 0),
        (list(range(64)), 64),
        ([7] * 20, 2),  # the sequence at 2 is the third of eight sevens
        ([*range(8), 50, *range(8), 51, *range(8), 52], 18),
        ([*range(8), 50, *range(8), 51, *range(7)], 25),  # the third is not complete
    ],
)
def test_a_text_is_cut_where_a_sequence_comes_for_the_third_time(tokens: list[int], kept: int):
    assert decode_prompts.cut(tokens) == kept


def test_there_are_enough_prompts_of_each_kind():
    prompts = decode_prompts.load("toy:", decode_prompts.KINDS, 48)
    for kind in decode_prompts.KINDS:
        assert sum(prompt.kind == kind for prompt in prompts) >= 40
    assert len({prompt.name for prompt in prompts}) == len(prompts)
    assert [p.kind for p in decode_prompts.load("toy:", ["edit", "code"], 2)] == (
        ["edit", "edit", "code", "code"]
    )


# --- engines -----------------------------------------------------------------------------------


def test_the_plain_engine_has_no_speculation_and_writes_the_models_text():
    engine = Contestant.plain(target())
    run = engine.run(PROMPT, 12)
    assert run.tokens == naive(12)
    assert run.speculation is None


@pytest.mark.parametrize(
    "way",
    [
        Way("ngram", "ngram", SpeculationSettings(draft="toy:", mode="ngram")),
        Way("serial", "serial", SpeculationSettings(draft="toy:", mode="serial")),
        Way(
            "chain",
            "serial",
            SpeculationSettings(draft="toy:", mode="serial", width=1, branching=1),
            look_up=False,
        ),
        Way("async", "async", SpeculationSettings(draft="toy:", mode="async")),
    ],
    ids=lambda way: way.name,
)
def test_each_engine_writes_the_same_text_in_its_own_way(way: Way):
    engine = Contestant.speculating(target(SLOW), way, quiet)
    try:
        for _ in range(3):
            run = engine.run(PROMPT, 24)
            assert run.tokens == naive(24)
            assert run.speculation is not None
            assert run.speculation.tokens == 24
    finally:
        engine.close()
    # The draft is the target itself.
    if way.name in ("serial", "chain"):
        assert run.speculation.rounds < 16
        assert set(run.speculation.accepted_by) <= {"ngram", "draft"}
    if way.name == "chain":
        assert set(run.speculation.accepted_by) == {"draft"}


def test_an_earlier_text_cannot_be_looked_up():
    """What a look-up finds is in the prompt: writing a text again makes it no easier."""
    way = Way("ngram", "ngram", SpeculationSettings(draft="none", mode="ngram"))
    engine = Contestant.speculating(target(SLOW, "none"), way, quiet)
    first, *others = [engine.run(PROMPT, 24) for _ in range(4)]
    assert first.speculation is not None
    for run in others:
        assert run.speculation is not None
        # 24 new tokens in few rounds would be foreseen from the text before.
        assert run.speculation.rounds >= 0.7 * first.speculation.rounds


@pytest.mark.parametrize("draft", ["toy:", "none"])
def test_the_worst_drafts_are_always_wrong(draft: str):
    settings = SpeculationSettings(draft=draft)
    engine = Contestant.worst(target(SLOW, draft), settings, quiet)
    assert engine.record is not None
    engine.record.tokens = [*PROMPT, *naive(40)]
    runs = [engine.run(PROMPT, 40) for _ in range(2)]
    for run in runs:
        assert run.tokens == naive(40)
    used = [run.speculation for run in runs if run.speculation is not None]
    assert sum(counters.proposed for counters in used) > 0
    assert [counters.accepted for counters in used] == [0, 0]


# --- the whole ---------------------------------------------------------------------------------


def options(**others: object) -> Options:
    base = {"target": SLOW, "draft": "none", "kinds": ("edit",), "prompts": 2, "threads": 1}
    return Options(**(base | {"new_tokens": 6} | others))  # type: ignore[arg-type]


def test_every_engine_meets_every_prompt():
    made = decode.measure(options(pairs=2), quiet)
    assert (made.auto, made.one_thread, made.trace) == ("ngram", [], None)
    by_engine: dict[str, list[str]] = {}
    for text in made.texts:
        by_engine.setdefault(text.name, []).append(text.prompt)
    twice = ["edit-00", "edit-00", "edit-01", "edit-01"]
    six_times = 3 * ["edit-00"] * 2 + 3 * ["edit-01"] * 2
    assert by_engine == {"ngram": twice, "worst": six_times, "plain again": six_times}
    for text in made.texts:
        assert text.run.tokens == text.baseline.tokens
        assert text.baseline.speculation is None
    assert any("no draft model" in reason for reason in made.skipped)
    assert any("async_vs_serial" in reason for reason in made.skipped)


def test_another_text_than_plain_decodings_is_an_error(monkeypatch: pytest.MonkeyPatch):
    real = Contestant.run

    def run(self: Contestant, prompt: list[int], new_tokens: int) -> Run:
        made = real(self, prompt, new_tokens)
        return (
            made._replace(tokens=[*made.tokens[:3], 5, *made.tokens[4:]])
            if (self.name == "ngram")
            else made
        )

    monkeypatch.setattr(Contestant, "run", run)
    with pytest.raises(EngineError, match=r"ngram decoding .* differ at token 3 of edit-00"):
        decode.measure(options(), quiet)


def text(prompt: str, name: str, seconds: float, kind: str = "code", **used: float) -> Text:
    counters = SpeculationCounters(**used) if used else None  # type: ignore[arg-type]
    return Text(kind, prompt, name, Run([1] * 10, seconds, counters), Run([1] * 10, 6.0, None))


def measured() -> Measured:
    made = Measured("serial", threads=2, async_threads=1)
    for prompt, seconds in (("a", 2.0), ("a", 3.0), ("a", 1.0), ("b", 6.0), ("c", 4.0)):
        made.texts.append(text(prompt, "serial", seconds, rounds=4, tokens=10, own_s=0.002))
        made.texts.append(text(prompt, "ngram", 6.0, rounds=10, tokens=10, own_s=0.001))
    made.texts += [text(p, "worst", 6.0, rounds=10, tokens=10, proposed=3) for p in "abc"]
    made.texts += [text(p, "plain again", 5.0) for p in "abc"]
    made.one_thread = [text("a", "async", 4.0, rounds=1, tokens=10)]
    made.trace = Trace([(0, 10), (20, 30)], [(5, 15), (22, 24), (40, 48)])
    return made


def test_figures_are_medians_of_each_prompts_median():
    found = decode_figures.figures(measured())
    rows = {row.name: row for row in found.rows}
    assert list(rows) == [
        "decode.code.speedup",
        "decode.worst.speedup",
        "decode.tokens_per_verification",
        "decode.scheduler_ms",
        "decode.async_vs_serial",
    ]
    code = rows["decode.code.speedup"]
    assert found.samples[code.name] == [3.0, 1.0, 1.5]  # of 3, 2 and 6; of 1; of 1.5
    assert (code.value, code.ratio, code.n, code.p90) == (1.5, 1.5, 3, 3.0)
    assert code.interval == [1.0, 3.0]
    assert rows["decode.worst.speedup"].value == 1.0
    assert rows["decode.tokens_per_verification"].value == 2.5
    assert rows["decode.scheduler_ms"].value == pytest.approx(0.5)
    assert rows["decode.async_vs_serial"].value == 1.5
    notes = "\n".join(found.notes)
    assert "code, ngram: 1.00× plain [1.00, 1.00]" in notes
    assert "of their 9 proposals 0 were accepted" in notes
    assert "against itself in the same rounds: 1.200×" in notes
    assert "35 % of the draft's computing time" in notes


def test_the_interval_narrows_with_more_samples():
    few = decode_figures.interval([0.9, 1.0, 1.1])
    many = decode_figures.interval([0.9, 1.0, 1.1] * 30)
    assert few == (0.9, 1.1)
    assert few[0] <= many[0] <= 1.0 <= many[1] <= few[1]
    assert many[1] - many[0] < few[1] - few[0]
    assert decode_figures.interval([2.0] * 5) == (2.0, 2.0)


def test_overlap_is_the_share_of_the_drafts_time():
    trace = measured().trace
    assert trace is not None
    assert trace.overlap == pytest.approx((5 + 2) / (10 + 2 + 8))
    assert Trace([], [(1, 2)]).overlap == 0
    assert Trace([(1, 2)], []).overlap == 0


def test_the_recorder_keeps_what_lies_within_the_text():
    recorder = Recorder()
    backend = TimedBackend(toy.ToyBackend(toy.ToyOptions()), recorder)
    cache = backend.new_cache(8)
    backend.append(cache, [1, 2], logits=False)
    backend.speculate(cache, [3, 4], [-1, 0])
    (start, middle), (later, end) = recorder.target
    assert start <= middle <= later <= end
    lines = [(start - 9, start - 3), (start, end), (end - 1, end + 5)]
    Path(recorder.draft_file).write_text("".join(f"{a} {b}\n" for a, b in lines) + "17")
    assert recorder.trace() == Trace(recorder.target, [(start, end)])


def test_the_command_writes_table_json_and_plots(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file, out = tmp_path / "decode.json", tmp_path / "out"
    model = ["--target", "toy:context=200", "--draft", "toy:context=200,wrong=0.2"]
    few = ["--quick", "--prompts", "1", "--threads", "1"]
    assert main(["bench", "decode", *few, *model, "--json", str(file), "--out", str(out)]) == 0
    shown = capsys.readouterr()
    rows = {row["name"]: row for row in json.loads(file.read_text())["rows"]}
    measured = [f"decode.{kind}.speedup" for kind in ("code", "edit", "prose", "worst")]
    measured += ["decode.tokens_per_verification", "decode.scheduler_ms"]
    if "async_vs_serial is not measured" not in shown.err:
        measured.append("decode.async_vs_serial")
        assert (out / "decode.trace.png").is_file()
    assert list(rows) == measured
    for name in measured:
        assert rows[name]["value"] > 0
    assert {"decode.speedups.png", "decode.lengths.png"} <= {plot.name for plot in out.iterdir()}
    for engine in ("ngram", "chain", "serial", "async"):
        assert f"code, {engine}: " in shown.err
    assert "synthetic" in shown.err


def test_unknown_kinds_are_refused(capsys: pytest.CaptureFixture[str]):
    assert main(["bench", "decode", "--kinds", "code,poem"]) == UsageError.exit_code
    assert "code,poem are no kinds of prompts" in capsys.readouterr().err
