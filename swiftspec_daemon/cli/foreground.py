"""What a daemon in the foreground says: where it serves, how loading goes, what failed.

On a terminal loading is a progress bar, else a line for each phase. Knows the engine's states;
runs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from swiftspec_daemon.cli.console import messages
from swiftspec_daemon.client.failures import error_for
from swiftspec_daemon.engine.interface import EngineStatus
from swiftspec_daemon.errors import SwiftSpecError
from swiftspec_daemon.protocol.record import Endpoint
from swiftspec_daemon.server.observer import Observer

ShowSample = Callable[[str, str], Awaitable[None]]
"""Completes the sample with the daemon at a URL with a token."""


SLOW = (
    "the native kernels are not built, so this is many times slower than it could be; "
    "`swiftspec doctor` says why and how to mend it"
)


STOPPED = "stopped by `swiftspec stop` or another program of yours"


class LoadingDisplay:
    """Shows the steps of loading a model, once per state or phase where there is no terminal.

    `failures`: shows them too, for whom does not raise them.
    """

    def __init__(self, console: Console, *, failures: bool = True) -> None:
        self._console = console
        self._failures = failures
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._last = ("unloaded", "")

    def show(self, status: EngineStatus) -> None:
        """Take a new status of the engine."""
        if status.state == "loading" and self._console.is_terminal:
            self._show_bar(status.phase or "loading", status.fraction)
        elif status.state != "loading":
            self.close()
        step = (status.state, status.phase if status.state == "loading" else "")
        if step == self._last:
            return
        self._last = step
        if status.state == "ready" and status.ready is not None:
            ready = status.ready
            self._console.print(
                f"model [bold]{escape(ready.model)}[/] is ready: {escape(ready.backend)}, "
                f"{escape(ready.kernels)}, {ready.context} tokens of context, "
                f"loaded in {ready.load_ms / 1000:.1f} s"
            )
            if ready.kernels.startswith("numpy"):
                self._console.print(f"[yellow]note:[/] {SLOW}")
        elif status.state == "failed" and self._failures:
            self._console.print(f"[bold red]model:[/] {escape(status.message)}")
            if status.hint:
                self._console.print(f"[dim]{escape(status.hint)}[/]")
        elif status.state == "loading" and not self._console.is_terminal:
            self._console.print(f"model: {escape(status.phase or 'loading')}")

    def close(self) -> None:
        """Take the bar off the terminal."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _show_bar(self, phase: str, fraction: float) -> None:
        if self._progress is None:
            self._progress = Progress(
                TextColumn("model: {task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TimeElapsedColumn(),
                console=self._console,
                transient=True,
            )
            self._task = self._progress.add_task(escape(phase), total=1.0)
            self._progress.start()
        if self._task is not None:
            self._progress.update(self._task, description=escape(phase), completed=fraction)


class ServeObserver(Observer):
    """For `swiftspec serve` in the foreground."""

    def __init__(self) -> None:
        self._console = messages()
        self._loading = LoadingDisplay(self._console)
        self._told_to_end = False
        self._early: list[EngineStatus] | None = []
        """Steps of loading that came before the address was said; None once it was."""

    async def serving(self, endpoint: Endpoint) -> bool:
        say_serving(self._console, endpoint)
        early, self._early = self._early or [], None
        for status in early:
            self._loading.show(status)
        return False

    def engine_changed(self, status: EngineStatus) -> None:
        if self._early is not None:
            self._early.append(status)
        else:
            self._loading.show(status)

    def told_to_end(self) -> None:
        self._told_to_end = True

    def ended(self) -> None:
        self._loading.close()
        if self._told_to_end:
            self._console.print(STOPPED)


class SampleObserver(Observer):
    """For `swiftspec run`: once the model is ready, the sample; then the daemon's address."""

    def __init__(self, show_sample: ShowSample, *, once: bool) -> None:
        self._console = messages()
        self._loading = LoadingDisplay(self._console, failures=False)
        self._show_sample = show_sample
        self._once = once
        self._loaded = asyncio.Event()
        self._failure: SwiftSpecError | None = None
        self._told_to_end = False
        self.shown = False
        """The whole sample has been completed."""

    def engine_changed(self, status: EngineStatus) -> None:
        self._loading.show(status)
        if status.state == "failed":
            self._failure = error_for(status.code, status.message, status.hint)
        if status.state in ("ready", "failed"):
            self._loaded.set()

    async def serving(self, endpoint: Endpoint) -> bool:
        await self._loaded.wait()
        if self._failure is not None:
            raise self._failure
        await self._show_sample(endpoint.url, endpoint.token)
        self.shown = True
        if not self._once:
            say_serving(self._console, endpoint)
        return self._once

    def told_to_end(self) -> None:
        self._told_to_end = True

    def ended(self) -> None:
        self._loading.close()
        if self._told_to_end:
            self._console.print(STOPPED)


def say_serving(console: Console, endpoint: Endpoint) -> None:
    """The line that says where the daemon is, and how to end it."""
    console.print(f"serving on [bold]{escape(endpoint.address)}[/], Ctrl-C ends")
