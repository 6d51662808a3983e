"""A bar for long work. Knows nothing of the work."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress() -> Iterator[Callable[[str, float], None]]:
    """A bar on a terminal, elsewhere a line for each phase; both on standard error."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from swiftspec_daemon.cli.console import messages, note

    console = messages()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    quiet = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=quiet) as bar:
        task = bar.add_task("starting", total=1.0)
        last = ""

        def show(phase: str, fraction: float) -> None:
            nonlocal last
            if quiet and phase != last:
                note(phase)
            last = phase
            bar.update(task, description=phase, completed=fraction)

        yield show
