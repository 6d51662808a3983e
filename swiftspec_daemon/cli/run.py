"""`swiftspec run`: the whole system before the user's eyes, and then it goes on serving.

Knows the sample and how it is shown; the daemon is `swiftspec_daemon.server.run`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from importlib import resources
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from swiftspec_daemon.cli.foreground import SampleObserver

SAMPLE = "sample.txt"
"""Python source in the package's data; the cursor stands at its end."""
INTERRUPTED = 130
"""Exit status of `run --once` that was ended before the sample was completed."""
_URI = "file:///sample/sample.py"


def run(
    once: Annotated[bool, typer.Option("--once", help="End after the sample.")] = False,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Listen there; 0 for any free port.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="A name from `swiftspec models list`, a folder, a GGUF file.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any setting; repeatable."),
    ] = None,
) -> None:
    """Fetch the model, start the daemon, complete a sample, and go on serving until Ctrl-C.

    If a daemon runs already, that one completes the sample, with its own model and settings; ends
    with status 4 if others are asked for.
    """
    from swiftspec_daemon import settings
    from swiftspec_daemon.cli.console import messages
    from swiftspec_daemon.cli.daemon import setting_flags
    from swiftspec_daemon.client import discovery
    from swiftspec_daemon.errors import DaemonAlreadyRunning
    from swiftspec_daemon.server import run as daemon
    from swiftspec_daemon.server.tokenizers import check_model

    flags = setting_flags(port=port, model=model, assignments=set_ or [])
    loaded = settings.load(flags)
    running = discovery.find()
    if running is None:
        check_model(loaded.model.target)
        observer = _observer(once=once)
        status = daemon.serve(loaded, observer)
        # An orderly end, but not what was asked for.
        raise typer.Exit(status or (INTERRUPTED if once and not observer.shown else 0))
    name = discovery.read_status(running).model.name
    where = f"A daemon is already running: pid {running.pid}, port {running.port}, model {name}"
    if flags:
        raise DaemonAlreadyRunning(
            f"{where}. It keeps its settings; {_listed(flags)} cannot be set for it now.",
            "End it with `swiftspec stop` first, or leave the options out.",
        )
    messages().print(f"{where}; it completes this:", markup=False)
    asyncio.run(show_sample(running.url, running.token))


async def show_sample(url: str, token: str) -> None:
    """Complete the sample with a running daemon: text as it comes, then a line of timings.

    Raises what the request failed with.
    """
    from swiftspec_daemon.cli.complete import describe
    from swiftspec_daemon.cli.console import messages, write_text
    from swiftspec_daemon.client import AsyncClient, Delta, Done, Position, error_for

    text = sample_text()
    async with AsyncClient.connect(url=url, token=token, client_name="swiftspec-run") as client:
        await client.open(_URI, text, language="python")
        lines = text.split("\n")
        write_text(text, style="dim")
        position = Position(len(lines) - 1, len(lines[-1]))
        completion = await client.complete(_URI, position, trigger="invoked")
        try:
            async for event in completion:
                if isinstance(event, Delta):
                    write_text(event.text, style="bold green")
                elif isinstance(event, Done):
                    done = event
        finally:  # also when Ctrl-C ends it in the middle of a line
            write_text("\n")
    if done.reason == "error":
        raise error_for(done.code, done.message, done.hint)
    if done.timings is not None:
        messages().print(describe(done.timings), style="cyan")


def _listed(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def sample_text() -> str:
    """The sample up to the cursor."""
    file = resources.files("swiftspec_daemon") / "data" / SAMPLE
    return file.read_text("utf-8").rstrip("\n")


def _observer(*, once: bool) -> SampleObserver:
    """Made here, since the class needs the daemon's modules."""
    from swiftspec_daemon.cli.foreground import SampleObserver

    return SampleObserver(show_sample, once=once)
