"""`swiftspec logs`: the daemon's log."""

from __future__ import annotations

from typing import Annotated

import typer


def logs(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as lines come.")] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, help="How many of the last lines.")
    ] = 50,
) -> None:
    """Show the daemon's log. It holds no text of yours."""
    from swiftspec_daemon import logs as files
    from swiftspec_daemon.cli.console import note, write_text

    file = files.daemon_log()
    shown = files.tail(file, lines)
    if not shown and not follow:
        note(f"There is nothing in {file} yet.")
    for line in shown:
        write_text(line + "\n")
    failure = files.last_failure()
    if failure and not follow:
        note("The last start in the background failed:")
        for line in failure:
            note(line)
    if follow:
        for line in files.follow(file):
            write_text(line + "\n")
