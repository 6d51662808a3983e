"""`swiftspec bench basics`, once, with few repetitions, on the default model."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from swiftspec_daemon.bench import basics
from swiftspec_daemon.bench.basics import Amounts, Figures
from swiftspec_daemon.cli.app import main
from swiftspec_daemon.errors import EngineError

NAMES = {
    *("basics.ready_s", "basics.decode_tok_s", "basics.prefill_tok_s", "basics.first_line_ms"),
    *("basics.websocket_ms", "basics.lsp_ms"),
    *("basics.rss_mb.daemon", "basics.rss_mb.worker", "basics.rss_mb.bridge"),
}
FEW = Amounts(starts=1, decodes=1, new_tokens=8, prefills=1, keystrokes=3, blocks=1)


@pytest.mark.model
@pytest.mark.timeout(400)
async def test_every_figure_is_measured(home: Path, share_models: Callable[[Path], None]):
    share_models(home)
    phases: list[str] = []
    figures = await basics.measure(FEW, lambda phase, fraction: phases.append(phase))
    values = {row.name: row.value for row in figures.rows}
    assert values.keys() == NAMES
    for name in NAMES - {"basics.websocket_ms", "basics.lsp_ms"}:  # differences may be negative
        assert values[name] > 0, name
    assert values["basics.rss_mb.bridge"] <= 60
    assert {"decoding", "prefilling", "starting the daemon", "typing"} <= set(phases)


def test_nothing_measured_is_an_error():
    with pytest.raises(EngineError, match=r"basics\.ready_s"):
        Figures().add("basics.ready_s", [], "s")


def test_the_command_writes_table_json_and_plots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    async def measure(amounts: Amounts, progress: basics.Progress) -> Figures:
        assert amounts.starts == 2
        progress("decoding", 0.5)
        figures = Figures(notes=["a note"])
        figures.add("basics.decode_tok_s", [90.0, 100.0, 110.0], "tokens/s")
        return figures

    monkeypatch.setattr(basics, "measure", measure)
    file, out = tmp_path / "basics.json", tmp_path / "out"
    assert main(["bench", "basics", "--quick", "--json", str(file), "--out", str(out)]) == 0
    (row,) = json.loads(file.read_text())["rows"]
    expected = {"name": "basics.decode_tok_s", "value": 100.0, "unit": "tokens/s", "n": 3}
    assert row == expected | {"p90": 110.0}
    assert [plot.name for plot in out.iterdir()] == ["basics.decode_tok_s.png"]
    shown = capsys.readouterr()
    assert "basics.decode_tok_s" in shown.out
    assert "decoding" in shown.err
    assert "a note" in shown.err
