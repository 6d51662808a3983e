"""`swiftspec bench`: measures, and shows a table, JSON and plots.

Knows how figures are shown; what is measured is in `swiftspec_daemon.bench`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swiftspec_daemon.cli.progress import progress as _progress

if TYPE_CHECKING:
    from swiftspec_daemon.bench.basics import Figures

JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write the rows as JSON there.")
]
PlotFolder = Annotated[
    Path | None, typer.Option("--out", metavar="FOLDER", help="Draw the plots there.")
]
Quick = Annotated[
    bool, typer.Option("--quick", help="Few repetitions: to see that it runs, not to quote.")
]
Draw = Callable[[Path], list[Path]]

app = typer.Typer(no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Measure this machine: tables, plots and JSON."""


@app.command()
def basics(json_file: JsonFile = None, out: PlotFolder = None, quick: Quick = False) -> None:
    """The basic figures: start, speed, time to the first line, overheads, memory.

    Takes about two minutes. Daemons of its own are started; yours is left alone.
    """
    import asyncio

    from swiftspec_daemon.bench.basics import Amounts, measure

    few = Amounts(starts=2, decodes=2, new_tokens=32, prefills=2, keystrokes=10, blocks=5)
    figures: Figures
    with _progress() as show:
        figures = asyncio.run(measure(few if quick else Amounts(), show))
    _present(figures, json_file, out)


@app.command()
def simulate(json_file: JsonFile = None, out: PlotFolder = None, quick: Quick = False) -> None:
    """Reproduce the SwiftSpec paper's parallel tree on a virtual clock, from its inputs.

    Measures no machine: the result is the same everywhere. Takes some minutes.
    """
    from swiftspec_daemon.bench.basics import Figures
    from swiftspec_daemon.bench.simulate import QUICK, Effort
    from swiftspec_daemon.bench.simulate import simulate as run
    from swiftspec_daemon.bench.simulate_plots import plot

    with _progress() as show:
        made = run(QUICK if quick else Effort(), show)
    figures = Figures(rows=made.rows, notes=made.notes)
    _present(figures, json_file, out, lambda folder: plot(made, folder))


def _present(
    figures: Figures, json_file: Path | None, out: Path | None, draw: Draw | None = None
) -> None:
    """Table and notes; JSON and plots where they are wished for."""
    from swiftspec_daemon.bench import report
    from swiftspec_daemon.cli.console import note, print_table
    from swiftspec_daemon.errors import UsageError

    made = report.report(figures.rows)
    print_table(report.table(made))
    for text in figures.notes:
        note(text)
    if json_file is not None:
        report.write_json(made, json_file)
        note(f"The rows are in {json_file}.")
    if out is not None:
        try:
            files = report.plot(made, figures.samples, out)
            files += draw(out) if draw is not None else []
            note(f"{len(files)} plots are in {out}.")
        except UsageError as error:
            note(str(error))
