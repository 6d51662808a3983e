"""What all connections share: the service, who is connected, and status messages.

Knows no sockets.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from typing import Protocol

import psutil

from swiftspec_daemon import __version__
from swiftspec_daemon.completion import speculation
from swiftspec_daemon.completion.service import CompletionService
from swiftspec_daemon.engine.interface import Engine, EngineStatus
from swiftspec_daemon.protocol.messages import ModelStatus, Status
from swiftspec_daemon.settings import Settings


class Member(Protocol):
    """A connection, as the hub sees it."""

    @property
    def document_count(self) -> int: ...

    def model_changed(self) -> None:
        """The model's state, the progress of loading or a draft model's state has changed."""


class Hub:
    """One for each daemon."""

    def __init__(self, service: CompletionService, engine: Engine, settings: Settings) -> None:
        self.service = service
        self.settings = settings
        self._engine = engine
        self._started = time.monotonic()
        self._members: set[Member] = set()
        self._names = itertools.count(1)
        self._known = self._announced()
        engine.on_status(self._engine_changed)

    def join(self, member: Member) -> int:
        """A number that no other connection has."""
        self._members.add(member)
        return next(self._names)

    def leave(self, member: Member) -> None:
        self._members.discard(member)

    @property
    def ready(self) -> bool:
        """Whether completions are served at once."""
        return self._engine.status.state == "ready"

    def status(self, memory_mb: dict[str, float] | None = None) -> Status:
        """The state of everything, as of now."""
        return Status(
            version=__version__,
            pid=os.getpid(),
            uptime_s=round(time.monotonic() - self._started, 3),
            model=self.model_status(),
            connections=len(self._members),
            documents=sum(member.document_count for member in self._members),
            counters=self.service.statistics.counters(),
            memory_mb=memory_mb or {},
            speculation=speculation.status(self._engine.status),
        )

    async def full_status(self) -> Status:
        """With memory figures, which take some milliseconds to gather."""
        engine = self._engine.status
        pids: dict[str, int | None] = {"daemon": os.getpid(), "worker": engine.worker_pid}
        for model in engine.drafts.models if engine.drafts else []:
            if model.own_process:
                pids["draft"] = model.pid
        return self.status(await asyncio.to_thread(_memory_mb, pids))

    def model_status(self) -> ModelStatus:
        """The engine's state in the wire's words."""
        status = self._engine.status
        ready = status.ready
        return ModelStatus(
            name=ready.model if ready else self.settings.model.target,
            state=status.state,
            phase=status.phase,
            fraction=round(status.fraction, 3),
            backend=ready.backend if ready else "",
            kernels=ready.kernels if ready else "",
            context=ready.context if ready else 0,
            message=status.message,
            hint=status.hint,
        )

    def _announced(self) -> object:
        """What subscribers hear about when it changes."""
        drafts = self._engine.status.drafts
        return self.model_status(), drafts and (drafts.mode, drafts.models, drafts.problem)

    def _engine_changed(self, _: EngineStatus) -> None:
        known = self._announced()
        if known == self._known:
            return
        self._known = known
        for member in list(self._members):
            member.model_changed()


def _memory_mb(pids: dict[str, int | None]) -> dict[str, float]:
    """Proportional set size in 10^6 bytes; resident size where the system has no such figure."""
    memory = {}
    for name, pid in pids.items():
        try:
            info = psutil.Process(pid).memory_full_info() if pid is not None else None
        except psutil.Error:  # it has just ended, or is not ours to look at
            continue
        if info is not None:
            memory[name] = round(getattr(info, "pss", info.rss) / 1e6, 1)
    return memory
