"""Durations of forward passes, target and draft, by rows and threads, measured in a process of
its own (`timing_worker`). Knows that process's messages, and neither models nor what is chosen.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import msgspec

from swiftspec_daemon.engine.config import Measured, WorkerConfig
from swiftspec_daemon.engine.messages import Failed, Loading
from swiftspec_daemon.engine.recovery import error_from_code
from swiftspec_daemon.engine.tuned import TunedKey
from swiftspec_daemon.errors import EngineError
from swiftspec_daemon.parallel.processes import WorkerProcess

TIMING_MODULE = "swiftspec_daemon.engine.timing_worker"
TARGET_ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
DRAFT_ROWS = (1, 2, 4, 8, 16)


class Timed(msgspec.Struct, kw_only=True, frozen=True, tag_field="type", tag="timed"):
    """The process's last message."""

    key: TunedKey
    measured: Measured
    problem: str = ""
    """Why there is no draft, for people."""


TimingEvent = Loading | Timed | Failed
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(TimingEvent)


def encode(event: TimingEvent) -> bytes:
    """One frame."""
    body = _encoder.encode(event)
    return len(body).to_bytes(4, "little") + body


async def measure_steps(
    config: WorkerConfig,
    threads: Sequence[int],
    repeats: int,
    progress: Callable[[str, float], None],
) -> Timed:
    """Seconds of passes with each number of threads: the best of `repeats`.

    Raises ModelError, EngineError.
    """
    arguments = [
        str(os.getpid()),
        msgspec.json.encode(config).decode(),
        ",".join(map(str, threads)),
        str(repeats),
    ]
    worker = await WorkerProcess.start(TIMING_MODULE, arguments, name="timing worker")
    try:
        while (body := await worker.receive()) is not None:
            match _decoder.decode(body):
                case Loading(phase=phase, fraction=fraction):
                    progress(phase, fraction)
                case Timed() as timed:
                    return timed
                case Failed(code=code, message=message, hint=hint):
                    raise error_from_code(code, message, hint)
    except msgspec.DecodeError as error:
        raise EngineError(f"The timing worker answers nonsense: {error}.") from None
    finally:
        worker.kill()
        await worker.stop()
    last = f" Its last words: {worker.last_log_line}" if worker.last_log_line else ""
    raise EngineError(f"The timing worker ended unexpectedly.{last}")
