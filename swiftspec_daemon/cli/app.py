"""Puts the commands together, and turns every failure into one line and an exit status.

Knows which commands there are; what they do is in their own modules.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from swiftspec_daemon import __version__, logs
from swiftspec_daemon.cli import console, usage
from swiftspec_daemon.errors import SwiftSpecError, UsageError

UNEXPECTED = 70
"""Exit status after an error that should not have happened (EX_SOFTWARE of sysexits.h)."""

EXIT_STATUSES = (
    "[bold]Exit status[/]: 0 done · 1 failed, or doctor found a problem · 2 wrong argument, "
    "setting or position · 3 no daemon runs · 4 a daemon runs already · 5 the port is in use · "
    "6 the token is refused · 7 the model cannot be found, fetched or run · 8 the engine failed · "
    "9 the other side does not speak our protocol · 70 unexpected error (see swiftspec logs) · "
    "130 interrupted by Ctrl-C"
)

_GROUPS = {
    "models": "Models: list, fetch, inspect, verify.",
    "bench": "Benchmarks: tables, plots and JSON.",
}
"""Groups of commands that are imported only when they are asked for."""


def main(arguments: Sequence[str]) -> int:
    """Run one command line; the exit status."""
    arguments = list(arguments)
    if sys.stdout is None:  # closed by whoever started us
        _quiet_stdout()
    debug = os.environ.get("SWIFTSPEC_DEBUG", "") not in ("", "0")
    if "--debug" in arguments[:1]:
        arguments.pop(0)
        debug = True
    try:
        commands = build(arguments) if _GROUPS.keys() & set(arguments) else app
        ended = commands(args=arguments, prog_name="swiftspec", standalone_mode=False)
    except SystemExit as end:
        return _status_of(end)
    except usage.PARSE_ERRORS as error:
        problem = usage.describe(error)
        if problem is not None:
            console.show_error(problem)
        return UsageError.exit_code
    except typer.Abort:
        return 130
    except SwiftSpecError as error:
        if debug:
            raise
        console.show_error(error)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _quiet_stdout()
        return 1
    except OSError as error:
        if debug:
            raise
        _quiet_stdout()
        console.show_error(_of_system(error))
        return 1
    except Exception as error:
        if debug:
            raise
        _report_unexpected(error)
        return UNEXPECTED
    return ended if isinstance(ended, int) else 0


def build(arguments: Sequence[str]) -> typer.Typer:
    """The command line; a group of commands is real only if `arguments` ask for it."""
    from swiftspec_daemon.cli import complete, daemon, doctor, logbook, run, token, tune

    app = typer.Typer(
        name="swiftspec",
        help="A local daemon that streams inline code completions.",
        epilog=EXIT_STATUSES,
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    app.command(rich_help_panel="Start here")(run.run)
    # `-:3:1` is a place in standard input, no option
    stdin = {"ignore_unknown_options": True}
    app.command(rich_help_panel="Start here", context_settings=stdin)(complete.complete)
    app.command(rich_help_panel="Start here")(doctor.doctor)
    app.command(rich_help_panel="The daemon")(daemon.serve)
    app.command(rich_help_panel="The daemon")(daemon.status)
    app.command(rich_help_panel="The daemon")(daemon.stop)
    app.command(rich_help_panel="The daemon")(logbook.logs)
    app.add_typer(token.app, name="token", rich_help_panel="The daemon")
    app.command(rich_help_panel="The daemon")(tune.tune)
    app.command("lsp", rich_help_panel="Editors")(_bridge)
    asked = next((word for word in arguments if not word.startswith("-")), "")
    for name, summary in _GROUPS.items():
        app.add_typer(_group(name, asked), name=name, help=summary, rich_help_panel="More")
    app.command(rich_help_panel="More")(version)
    return app


def version() -> None:
    """Print the version."""
    print(__version__)


def _group(name: str, asked: str) -> typer.Typer:
    if name != asked:
        return typer.Typer()
    app: typer.Typer = importlib.import_module(f"swiftspec_daemon.cli.{name}").app
    return app


def _options(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version and exit.",
            is_eager=True,
            callback=lambda wanted: _print_version_and_exit() if wanted else None,
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks; also by SWIFTSPEC_DEBUG=1.")
    ] = False,
) -> None:
    del show_version, debug  # done by the callback, and by main before it comes here


def _print_version_and_exit() -> None:
    version()
    raise typer.Exit


def _bridge() -> None:
    """Speak the Language Server Protocol over standard input and output, for editors."""
    # `swiftspec lsp` is dispatched in __main__; this serves the help.
    raise typer.Exit(2)


def _status_of(end: SystemExit) -> int:
    if end.code is None:
        return 0
    return end.code if isinstance(end.code, int) else 1


def _quiet_stdout() -> None:
    """Keep the interpreter from complaining at exit about a pipe that is closed."""
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115


def _of_system(error: OSError) -> SwiftSpecError:
    """What the system refused: a full disk, a folder that is read-only."""
    reason = error.strerror or str(error)
    if error.filename is None:
        return SwiftSpecError(f"The system refused: {reason}.", "Look at disk space and rights.")
    return SwiftSpecError(f"{error.filename}: {reason}.", "Look at disk space and rights there.")


def _report_unexpected(error: Exception) -> None:
    from swiftspec_daemon.settings import LogSettings

    try:
        file = logs.command_log()
        logs.setup(LogSettings(), file)
        logging.getLogger(__name__).error("unexpected error", exc_info=error)
        where = f"The details are in {file}."
    except OSError:
        where = "Run again with SWIFTSPEC_DEBUG=1."
    summary = f"{type(error).__name__}: {error}".splitlines()[0]
    console.show_error(SwiftSpecError(f"Something unexpected happened ({summary}).", where))


app = build(())
"""All commands; groups without what is in them."""
