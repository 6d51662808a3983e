"""`swiftspec tune`: finds out what is fastest on this machine, and remembers it.

Knows how findings are shown; what is measured is `swiftspec_daemon.bench.tuning`'s.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from swiftspec_daemon.bench.tuning import Outcome
    from swiftspec_daemon.engine.tuned import Setup


def tune(
    model: Annotated[
        str | None,
        typer.Option(help="A name from `swiftspec models list`, a folder, a GGUF file."),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(min=0, max=86400, help="Compare for so long once the models are loaded."),
    ] = 120.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure which threads and which speculation are fastest here, and remember it.

    The daemon uses what was found where settings leave it open: model.threads = 0 and
    speculation.mode = "auto". It holds for this machine, these kernels, this model and this draft.
    Nothing else should run meanwhile, and no daemon should be computing.

    Example: [bold]swiftspec tune --seconds 60[/]
    """
    import asyncio

    from swiftspec_daemon import settings
    from swiftspec_daemon.bench import tuning
    from swiftspec_daemon.cli.console import note, print_table, write_json
    from swiftspec_daemon.cli.daemon import setting_flags
    from swiftspec_daemon.cli.progress import progress
    from swiftspec_daemon.client import discovery
    from swiftspec_daemon.engine import tuned
    from swiftspec_daemon.engine.config import WorkerConfig

    loaded = settings.load(setting_flags(model=model, assignments=[]))
    config = WorkerConfig.from_settings(loaded.model, loaded.speculation)
    running = discovery.find() is not None
    with progress() as show:
        outcome = asyncio.run(tuning.tune(config, seconds, show))
    file = tuned.remember(outcome.tuned)
    if as_json:
        write_json(_as_json(outcome, file))
        return
    print_table(steps_table(outcome))
    print_table(modes_table(outcome))
    for text in outcome.notes:
        note(text)
    note(f"Remembered in {file}.")
    for text in _open_to(loaded):
        note(text)
    if running:
        note("A daemon is running: it uses this once it loads its model again (`swiftspec stop`).")


def describe(setup: Setup) -> str:
    """A way of decoding in a few words."""
    threads = f"{setup.threads} thread{'' if setup.threads == 1 else 's'}"
    if setup.mode == "async":
        threads += f", {setup.draft_threads} of the draft"
    return f"{setup.mode} with {threads}"


def steps_table(outcome: Outcome) -> Table:
    """Milliseconds of forward passes, a row for each number of threads."""
    from rich.table import Table

    measured = outcome.tuned.measured
    target, draft = measured.target_ms, measured.draft_ms
    rows = sorted({rows for times in (*target.values(), *draft.values()) for rows in times})
    table = Table(title="A forward pass in ms, by tokens that it runs at once")
    table.add_column("threads")
    for count in rows:
        table.add_column(str(count), justify="right")
    for name, found in (("model", target), ("draft", draft)):
        for threads, times in found.items():
            cells = [f"{times[count]:.2f}" if count in times else "" for count in rows]
            table.add_row(f"{name}, {threads}", *cells)
    return table


def modes_table(outcome: Outcome) -> Table:
    """Every way of decoding that was tried; the chosen one is marked."""
    from rich.table import Table

    table = Table(title=f"Decoding {outcome.prompts} prompts, medians")
    table.add_column("speculation")
    table.add_column("tokens/s", justify="right")
    table.add_column("against plain", justify="right")
    table.add_column("")
    chosen = outcome.tuned.setup(outcome.tuned.mode)
    for setup in outcome.setups:
        mark = "chosen" if setup == chosen else ""
        cells = (f"{setup.tokens_per_second:.1f}", f"{setup.speedup:.2f}")
        table.add_row(describe(setup), *cells, mark)
    return table


def _open_to(loaded: Any) -> list[str]:
    """Settings that keep what was found from being used."""
    notes = []
    if loaded.speculation.mode != "auto":
        notes.append(f'speculation.mode is "{loaded.speculation.mode}" and stays so; set "auto".')
    if loaded.model.threads:
        notes.append(f"model.threads is {loaded.model.threads} and stays so; set 0.")
    return notes


def _as_json(outcome: Outcome, file: Path) -> dict[str, Any]:
    found = outcome.tuned
    return {
        "model": found.name,
        "key": found.key,
        "chosen": found.setup(found.mode),
        "setups": outcome.setups,
        "prompts": outcome.prompts,
        "measured": found.measured,
        "notes": outcome.notes,
        "file": str(file),
    }
