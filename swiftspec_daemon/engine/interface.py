"""The engine as the daemon sees it: requests in, a stream of token ids out. No torch, no tensors.

`EngineClient` (in `client.py`) speaks to worker processes; `ScriptedEngine` (in `scripted.py`)
answers from a script, for tests and for measuring everything around the engine.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Literal, Protocol

import msgspec

from swiftspec_daemon.engine.messages import (
    Drafts,
    Finished,
    Forget,
    Generate,
    Ready,
    Remember,
    Speculation,
    Tokens,
)
from swiftspec_daemon.speculation.counters import SpeculationCounters

EngineState = Literal["unloaded", "loading", "ready", "failed"]


class EngineStatus(msgspec.Struct, kw_only=True, frozen=True):
    """What the engine is doing, for status messages and people."""

    state: EngineState
    phase: str = ""
    """While loading: what is being done."""
    fraction: float = 0.0
    """While loading: 0 to 1."""
    ready: Ready | None = None
    code: str = ""
    message: str = ""
    hint: str = ""
    worker_pid: int | None = None
    running: int = 0
    """Requests sent and not finished."""
    drafts: Drafts | None = None
    """What there is for speculation, as the worker said last; None without."""
    speculated: dict[Speculation, SpeculationCounters] = {}
    """What it did, over all finished requests and all workers, by mode."""


class Engine(Protocol):
    """One target model, resident, one request decoding at a time."""

    async def start(self) -> None:
        """Begin loading; returns at once. A loaded or loading engine is left as it is."""

    async def ready(self) -> Ready:
        """Wait until requests are served. Raises EngineError or ModelError when that fails."""

    def generate(self, request: Generate) -> AsyncGenerator[Tokens | Finished, None]:
        """Tokens as they are decided, then exactly one Finished.

        Loads the model if it is not loaded. Closing the generator cancels the request. The
        request's `id` is given by the engine (pass 0).
        Raises EngineError if the worker is lost.
        """

    def inform(self, command: Remember | Forget) -> None:
        """Tell a loaded engine of a text that drafts may copy from, or that it is gone.

        Returns at once. An engine that is not loaded is not told and, once loaded, knows none.
        """

    async def unload(self) -> None:
        """Free the model's memory; the next request loads it again."""

    async def stop(self) -> None:
        """End for good; running requests end as cancelled."""

    @property
    def status(self) -> EngineStatus: ...

    def on_status(self, callback: Callable[[EngineStatus], None]) -> None:
        """Call back, on the event loop, at each change of state and each step of loading."""
