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
def decode(
    json_file: JsonFile = None,
    out: PlotFolder = None,
    prompts: Annotated[
        int, typer.Option(min=1, metavar="N", help="Prompts of each kind; 48 are there.")
    ] = 48,
    pairs: Annotated[
        int, typer.Option(min=1, metavar="N", help="Times that each prompt is compared.")
    ] = 1,
    kinds: Annotated[
        str, typer.Option(metavar="KIND,...", help="Of code, edit and prose.")
    ] = "code,edit,prose",
    target: Annotated[
        str, typer.Option(metavar="MODEL", help="As the setting model.target.")
    ] = "default",
    draft: Annotated[
        str, typer.Option(metavar="MODEL", help="As the setting speculation.draft.")
    ] = "default",
    threads: Annotated[
        int, typer.Option(min=0, metavar="N", help="0: the fastest for plain decoding.")
    ] = 0,
    quick: Quick = False,
) -> None:
    """Speculation against plain decoding: n-gram, chain, serial tree and asynchronous tree.

    Every text must be the same with all of them. Nothing else should run meanwhile.
    """
    from swiftspec_daemon.bench import decode as bench
    from swiftspec_daemon.bench import decode_figures, decode_prompts
    from swiftspec_daemon.errors import UsageError

    asked = tuple(dict.fromkeys(kind.strip() for kind in kinds.split(",")))
    if not set(asked) <= set(decode_prompts.KINDS):
        raise UsageError(
            f"{kinds} are no kinds of prompts.",
            "Name some of code, edit and prose, with commas between them.",
        )
    options = bench.Options(
        target=target,
        draft=draft,
        kinds=asked,
        prompts=min(prompts, 2) if quick else prompts,
        pairs=1 if quick else pairs,
        new_tokens=16 if quick else decode_prompts.NEW_TOKENS,
        threads=threads,
    )
    with _progress() as show:
        measured = bench.measure(options, show)
    figures = decode_figures.figures(measured)
    _present(figures, json_file, out, lambda folder: decode_figures.plot(measured, folder))


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
