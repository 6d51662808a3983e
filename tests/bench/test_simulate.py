"""`swiftspec bench simulate`: the fit, what is put in, and what is handed out."""

import json
from pathlib import Path

import pytest

from swiftspec_daemon.bench import simulate as module
from swiftspec_daemon.bench.simulate import PARALLEL, SERIAL, Effort, Simulated
from swiftspec_daemon.cli.app import main


@pytest.fixture(scope="module")
def made() -> Simulated:
    phases: list[float] = []
    effort = Effort(tokens=120, tolerance=0.05, spreads=(0.0,))
    made = module.simulate(effort, lambda phase, fraction: phases.append(fraction))
    assert phases == sorted(phases)
    assert 0 <= phases[0] <= phases[-1] < 1
    return made


@pytest.mark.parametrize("wanted", [0.1, 0.5, 0.95])
def test_fit_finds_where_a_rising_function_has_a_value(wanted: float):
    found = module.fit(lambda x: x**3, wanted, 1e-3)
    assert found**3 == pytest.approx(wanted, rel=1e-3)


def test_the_serial_row_is_fitted_and_the_parallel_one_predicted(made: Simulated):
    for prediction in made.predictions:
        rate = prediction.serial.outcome.tokens_per_second
        assert rate == pytest.approx(SERIAL.rate, rel=0.05)
        # A draft that is right as often gains by working while the target does.
        assert 1.1 < prediction.ratio < 1.8
    assert [prediction.passes for prediction in made.predictions] == [1, 2]


def test_the_reading_is_chosen_by_the_serial_row_alone(made: Simulated):
    other = next(p for p in made.predictions if p is not made.chosen)
    assert made.chosen.length_error < other.length_error
    assert made.chosen.passes == 2  # one level a pass cannot give what the table says


def test_row_and_notes(made: Simulated):
    (row,) = made.rows
    assert row.name == "simulate.swiftspec_table7.parallel_vs_serial"
    assert row.value == made.chosen.ratio
    assert row.baseline == pytest.approx(1.37)
    assert row.ratio == pytest.approx(made.chosen.ratio / 1.37)
    text = "\n".join(made.notes)
    error = made.chosen.parallel.outcome.tokens_per_second / PARALLEL.rate - 1
    assert f"{100 * error:+.1f} % from the paper's 274" in text
    assert "With spread 0 instead of the assumed 0.5" in text
    assert "says 6 or 7" in text  # 10.48 ms over 1.625 ms
    assert list(made.by_size) == [4, 8, 16]


def test_steps_are_tried_until_they_bring_nothing():
    on = module.hardware(SERIAL, 1)
    best = module.best_steps(module.simulate_serial, on, module.agreement(0.05, 0.0), 100)
    assert best.steps == 1
    assert list(best.by_steps) == [1, 2, 3, 4]


def test_the_command_writes_table_json_and_plots(
    made: Simulated,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setattr(module, "simulate", lambda effort, progress: made)
    file, out = tmp_path / "simulate.json", tmp_path / "out"
    assert main(["bench", "simulate", "--quick", "--json", str(file), "--out", str(out)]) == 0
    (row,) = json.loads(file.read_text())["rows"]
    assert row["value"] == made.chosen.ratio
    plots = ["simulate.sizes.png", "simulate.steps.png"]
    assert sorted(plot.name for plot in out.iterdir()) == plots
    shown = capsys.readouterr()
    assert "parallel_vs_serial" in shown.out
    assert "Choice of bs" in shown.err
