"""Rows, their JSON form, the table and the plots."""

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from swiftspec_daemon.bench import report
from swiftspec_daemon.errors import UsageError

SAMPLES = [4.0, 1.0, 2.0, 3.0, 5.0, 6.0, 7.0, 8.0, 9.0, 100.0]


def two_rows() -> report.Report:
    rows = [
        report.row("basics.first_line_ms", SAMPLES, "ms", baseline=11.0),
        report.Row(name="basics.rss_mb.daemon", value=51.25, unit="MB"),
    ]
    return report.report(rows)


def test_row_is_median_p90_and_ratio():
    row = report.row("basics.first_line_ms", SAMPLES, "ms", baseline=11.0)
    assert (row.value, row.p90, row.n, row.ratio) == (5.5, 9.0, 10, 0.5)


def test_one_sample_has_no_p90():
    assert report.row("x", [3.0], "s").p90 is None


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60), st.integers(1, 100))
def test_percentile_is_the_nearest_rank(samples: list[float], percent: int):
    value = report.percentile(samples, percent)
    assert value in samples
    at_or_below = sum(sample <= value for sample in samples)
    below = sum(sample < value for sample in samples)
    assert 100 * at_or_below >= percent * len(samples) > 100 * below


def test_json_leaves_out_what_makes_no_sense(tmp_path: Path):
    file = tmp_path / "made" / "basics.json"
    report.write_json(two_rows(), file)
    read = json.loads(file.read_text())
    assert set(read) == {"machine", "versions", "command", "rows"}
    first, second = read["rows"]
    assert first == {
        "name": "basics.first_line_ms",
        "value": 5.5,
        "unit": "ms",
        "baseline": 11.0,
        "ratio": 0.5,
        "n": 10,
        "p90": 9.0,
    }
    assert second == {"name": "basics.rss_mb.daemon", "value": 51.25, "unit": "MB"}
    assert read["machine"]["logical_cores"] >= 1
    assert read["versions"]["python"].startswith("3.")


def test_json_that_cannot_be_written_is_a_clear_error(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        report.write_json(two_rows(), tmp_path / "file" / "basics.json")


def test_table_shows_every_row_and_the_machine():
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(report.table(two_rows()))
    text = console.export_text()
    assert "basics.first_line_ms" in text
    assert "5.5" in text
    assert "51.2" in text
    assert "logical" in text


def test_markdown_quotes_the_command():
    made = two_rows()
    text = report.markdown(made)
    assert "| basics.first_line_ms | 5.5 | 9 | ms | 10 |" in text
    assert made.command in text


def test_plots_are_drawn_for_rows_with_samples(tmp_path: Path):
    pytest.importorskip("matplotlib")
    files = report.plot(two_rows(), {"basics.first_line_ms": SAMPLES}, tmp_path / "out")
    assert [file.name for file in files] == ["basics.first_line_ms.png"]
    assert files[0].read_bytes().startswith(b"\x89PNG")


def test_plots_without_matplotlib_say_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("matplotlib.backends.backend_agg", "matplotlib.figure", "matplotlib"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    with pytest.raises(UsageError) as caught:
        report.plot(two_rows(), {"basics.first_line_ms": SAMPLES}, tmp_path)
    assert "pip install" in caught.value.hint
