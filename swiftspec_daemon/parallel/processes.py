"""A worker process as its parent sees it: start, frames both ways, log lines, and a sure end.

The worker's standard input and output carry frames, its standard error goes to our log. Knows
nothing of what the frames mean. Tested on Linux; written for macOS and Windows too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from swiftspec_daemon.parallel.frames import receive_frame

log = logging.getLogger(__name__)

_LOG_LINE_CHARACTERS = 500
_ENVIRONMENT = {
    "PYTHONSAFEPATH": "1",  # a file of the user's named like a library must not be imported
    "OMP_WAIT_POLICY": "PASSIVE",  # idle compute threads sleep
}


@dataclass(frozen=True, slots=True)
class StopTimes:
    """How long each rung of the ladder may take, in seconds."""

    ask: float = 1.0
    """From the polite request (and the end of standard input) to terminate."""
    terminate: float = 0.5
    """From terminate to kill."""


class WorkerProcess:
    """One running worker. Made by `start`; always `stop` it, also when it died by itself."""

    def __init__(self, process: asyncio.subprocess.Process, name: str) -> None:
        self._process = process
        self._name = name
        self._end_logged = False
        self._last_lines: deque[str] = deque(maxlen=20)
        self._log_task = asyncio.create_task(self._forward_log())

    @classmethod
    async def start(cls, module: str, arguments: Sequence[str], *, name: str) -> WorkerProcess:
        """Run `python -m module arguments...` with this interpreter. Raises OSError.

        In a session of its own, so that a terminal's Ctrl-C reaches the parent alone.
        """
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=os.environ | _ENVIRONMENT,
            start_new_session=os.name == "posix",
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
        log.info("%s: process %d started", name, process.pid)
        return cls(process, name)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs; minus the signal's number if one ended it."""
        return self._process.returncode

    @property
    def last_log_line(self) -> str:
        """What it last wrote on standard error, or ""."""
        return self._last_lines[-1] if self._last_lines else ""

    def send(self, frame: bytes) -> None:
        """Queue a whole frame; does nothing when the worker is gone."""
        stdin = self._process.stdin
        if stdin is not None and not stdin.is_closing():
            stdin.write(frame)

    async def receive(self) -> bytes | None:
        """The body of the worker's next frame; None when it has closed its output.

        Raises ProtocolError.
        """
        stdout = self._process.stdout
        return None if stdout is None else await receive_frame(stdout)

    async def ends_within(self, seconds: float) -> bool:
        """Whether it ends within so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._process.wait()
        return self._process.returncode is not None

    async def stop(self, ask: bytes | None = None, times: StopTimes | None = None) -> int:
        """End it: the frame `ask` and end of input, then terminate, then kill. Its exit status."""
        times = times or StopTimes()
        if self._process.returncode is None:
            if ask is not None:
                self.send(ask)
            if self._process.stdin is not None:
                self._process.stdin.close()
            if not await self.ends_within(times.ask):
                log.warning("%s: process %d does not end, terminating it", self._name, self.pid)
                self._signal(kill=False)
                if not await self.ends_within(times.terminate):
                    log.warning("%s: process %d does not end, killing it", self._name, self.pid)
                    self._signal(kill=True)
        status = await self._process.wait()
        await self._log_task
        if not self._end_logged:
            self._end_logged = True
            log.info("%s: process %d ended with status %d", self._name, self.pid, status)
        return status

    def kill(self) -> None:
        """End it at once; `stop` must still be awaited."""
        self._signal(kill=True)

    def _signal(self, *, kill: bool) -> None:
        with contextlib.suppress(ProcessLookupError):
            if kill:
                self._process.kill()
            else:
                self._process.terminate()

    async def _forward_log(self) -> None:
        stderr = self._process.stderr
        if stderr is None:
            return
        rest = b""
        while chunk := await stderr.read(1 << 16):
            *lines, rest = (rest + chunk).replace(b"\r", b"\n").split(b"\n")
            for line in lines:
                self._log_line(line)
            rest = rest[-_LOG_LINE_CHARACTERS:]
        self._log_line(rest)

    def _log_line(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").strip()[:_LOG_LINE_CHARACTERS]
        if text:
            self._last_lines.append(text)
            log.info("%s: %s", self._name, text)
