"""The draft's process as the target's worker sees it: start, messages both ways, and a sure end.

Never lets the target wait: a draft that is loading, dead or stuck simply has no tree, and a new
one is started in its place, less often each time it fails. Knows nothing of trees or requests.
POSIX only; elsewhere `available` is False and drafts run in the target's process.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Literal

import msgspec

from swiftspec_daemon.engine.drafts.codec import decode_to_target, encode
from swiftspec_daemon.engine.drafts.config import DraftConfig
from swiftspec_daemon.errors import EngineError, ProtocolError, in_one_line
from swiftspec_daemon.parallel.channel import ChannelClosed, FrameChannel
from swiftspec_daemon.speculation.pairing_messages import (
    DraftAlive,
    DraftFailed,
    DraftReady,
    ToDraft,
    ToTarget,
    Tree,
)

log = logging.getLogger(__name__)

DRAFT_MODULE = "swiftspec_daemon.engine.drafts.worker"
DraftState = Literal["stopped", "loading", "ready", "failed"]
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 60.0
"""Before a lost draft is started again: twice as long each time, from the first to the longest."""
_PROVEN_S = 30.0
"""A draft that has served for so long is lost by accident; the next one is started soon again."""


class DraftProcess:
    """One draft worker at a time, started again when it is lost."""

    available = os.name == "posix"

    def __init__(
        self,
        config: DraftConfig,
        *,
        clock: Callable[[], float] = time.monotonic,
        hang_s: float = 5.0,
    ) -> None:
        """`hang_s`: a draft that owes an answer for so long is given up."""
        self.state: DraftState = "stopped"
        self.ready: DraftReady | None = None
        self.problem = ""
        """Why there is no draft, for people."""
        self.restarts = 0
        """Processes that were started in place of lost ones."""
        self._started = False
        self._config = config
        self._clock = clock
        self._hang_s = hang_s
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: FrameChannel | None = None
        self._owed_since: float | None = None
        self._ready_since = 0.0
        self._next_start = -math.inf
        self._wait_s = _FIRST_WAIT_S
        self._dead: list[subprocess.Popen[bytes]] = []

    @property
    def name(self) -> str:
        """The draft that it is to run."""
        return self._config.draft

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def ensure_started(self) -> bool:
        """Start it if it is not running and may be; whether a new process was started now."""
        self._reap()
        if self._process is not None or self._clock() < self._next_start:
            return False
        self._start()
        return self._process is not None

    def send(self, message: ToDraft) -> None:
        """Send, and expect that something comes back. Never waits: what a busy draft has no room
        for goes out when `receive` is called."""
        if self._channel is None:
            return
        try:
            self._channel.post(encode(message))
        except ChannelClosed:
            self.receive(0.0)  # its last words, if there are any
            if self._channel is not None:
                self._lost("its process has ended")
            return
        if self._owed_since is None:
            self._owed_since = self._clock()

    def receive(self, timeout_s: float) -> list[Tree]:
        """Trees that have come, waiting up to `timeout_s` for a message."""
        if self._channel is None:
            return []
        try:
            bodies = self._channel.receive(timeout_s)
            messages = [decode_to_target(body) for body in bodies]
        except ChannelClosed:
            self._lost("its process has ended")
            return []
        except (ProtocolError, msgspec.DecodeError) as error:
            self._lost(f"it sent what cannot be understood ({in_one_line(error, 80)})")
            return []
        for message in messages:
            if self._channel is not None:  # what comes before its last words counts
                self._note(message)
        self._look_for_hang()
        return [message for message in messages if isinstance(message, Tree)]

    def misbehaved(self, what: str) -> None:
        """It sent what makes no sense: give it up."""
        if self._channel is not None:
            self._lost(what)

    def stop(self) -> None:
        """End it for good."""
        self._end()
        self.state = "stopped"
        self._next_start = math.inf
        for process in self._dead:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=1.0)

    def _start(self) -> None:
        arguments = [str(os.getpid()), msgspec.json.encode(self._config).decode()]
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", DRAFT_MODULE, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=None,  # the target worker's, which the daemon logs
            )
        except OSError as error:
            self._failed(f"cannot be started: {error.strerror}")
            return
        to_draft, from_draft = process.stdin, process.stdout
        assert to_draft is not None
        assert from_draft is not None
        self.restarts += self._started
        self._started = True
        self._process = process
        self._channel = FrameChannel(os.dup(from_draft.fileno()), os.dup(to_draft.fileno()))
        to_draft.close()
        from_draft.close()
        self._owed_since = None
        self.state = "loading"
        log.info("draft worker: process %d started", process.pid)

    def _note(self, message: ToTarget) -> None:
        self._owed_since = None  # whatever it says, it lives; each round asks anew
        match message:
            case DraftReady():
                self.ready, self.state, self.problem = message, "ready", ""
                self._ready_since = self._clock()
            case DraftAlive(problem=problem):
                if problem:
                    self.note_problem(problem)
            case DraftFailed():
                loading = self.state == "loading"
                self._failed(f"{message.message} {message.hint}".strip())
                if loading and message.code != EngineError.code:  # the same again would follow
                    self._next_start = math.inf

    def note_problem(self, problem: str) -> None:
        """Why it does not draft although it lives; logged where it is not known yet."""
        if problem != self.problem:
            log.warning("draft worker: %s", problem)
            self.problem = problem

    def _look_for_hang(self) -> None:
        if self.state != "ready" or self._owed_since is None:
            return
        if self._clock() - self._owed_since > self._hang_s:
            self._lost(f"it has not answered for {self._hang_s:g} s")

    def _lost(self, why: str) -> None:
        self._failed(f"The draft worker is lost: {why}. A new one is started.")

    def _failed(self, problem: str) -> None:
        log.warning("draft worker: %s", problem)
        self._end()
        if self.state == "ready" and self._clock() - self._ready_since > _PROVEN_S:
            self._wait_s = _FIRST_WAIT_S
        self.state, self.problem = "failed", problem
        self._next_start = self._clock() + self._wait_s
        self._wait_s = min(2 * self._wait_s, _LONGEST_WAIT_S)

    def _end(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            self._dead.append(self._process)
            self._process = None
        self.ready = None
        self._owed_since = None

    def _reap(self) -> None:
        self._dead = [process for process in self._dead if process.poll() is None]
