"""The timing process: `python -m swiftspec_daemon.engine.timing_worker PARENT CONFIG THREADS N`.

Loads a target and its first draft with each number of threads, times their forward passes and
says what it found on standard output. Knows nothing of requests.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from swiftspec_daemon.engine import timing, tuning
from swiftspec_daemon.engine.backend import Backend
from swiftspec_daemon.engine.config import Measured, WorkerConfig
from swiftspec_daemon.engine.drafts import loading as drafts
from swiftspec_daemon.engine.drafts.config import DraftConfig
from swiftspec_daemon.engine.loading import open_model
from swiftspec_daemon.engine.messages import Failed, Loading
from swiftspec_daemon.engine.timing import Timed, TimingEvent, encode
from swiftspec_daemon.errors import SwiftSpecError, in_one_line
from swiftspec_daemon.parallel.frames import write_all
from swiftspec_daemon.parallel.lifeline import (
    claim_standard_output,
    end_at_once,
    tie_to_parent,
)
from swiftspec_daemon.settings import SpeculationSettings

log = logging.getLogger("swiftspec_daemon.engine.timing_worker")


def main(arguments: list[str]) -> int:
    """Run the process; its exit status."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    parent, config_json, threads, repeats = arguments
    tie_to_parent(int(parent))
    output = claim_standard_output()

    def say(event: TimingEvent) -> None:
        write_all(output, encode(event))

    try:
        config = msgspec.json.decode(config_json, type=WorkerConfig)
        say(_measure(config, [int(count) for count in threads.split(",")], int(repeats), say))
    except SwiftSpecError as error:
        say(Failed(code=error.code, message=error.message, hint=error.hint))
        return 1
    except Exception as error:  # the edge of the process: say what happened, then end
        log.exception("timing failed")
        message = f"Timing failed: {type(error).__name__}: {in_one_line(error)}"
        say(Failed(code="engine_error", message=message))
        return 1
    return 0


def _measure(
    config: WorkerConfig, threads: list[int], repeats: int, say: Callable[[TimingEvent], None]
) -> Timed:
    def progress(phase: str, fraction: float) -> None:
        say(Loading(phase=phase, fraction=fraction))

    draft = next(iter(drafts.names(config)), "")
    target_ms: dict[int, dict[int, float]] = {}
    draft_ms: dict[int, dict[int, float]] = {}
    problem = ""
    for done, count in enumerate(threads):
        own = msgspec.structs.replace(config, threads=count)
        with_threads = f"{count} thread{'' if count == 1 else 's'}"
        backend = open_model(own, progress).backend
        progress(f"timing the model with {with_threads}", done / len(threads))
        target_ms[count] = _step_ms(backend, timing.TARGET_ROWS, repeats)
        if not draft or problem:
            continue
        plain = msgspec.structs.replace(own, speculation=SpeculationSettings())
        try:
            loaded = drafts.load(DraftConfig(draft=draft, target=plain, threads=count), progress)
        except SwiftSpecError as error:
            problem = str(error)
            continue
        progress(f"timing its draft with {with_threads}", (done + 0.5) / len(threads))
        draft_ms[count] = _step_ms(loaded.backend, timing.DRAFT_ROWS, repeats)
    measured = Measured(
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        target_ms=target_ms,
        draft=draft if draft_ms else "",
        draft_ms=draft_ms,
    )
    return Timed(key=tuning.key_of(config), measured=measured, problem=problem)


def _step_ms(backend: Backend, rows: tuple[int, ...], repeats: int) -> dict[int, float]:
    times = drafts.step_times(backend, rows, repeats=repeats)
    return {count: seconds * 1e3 for count, seconds in times.items()}


if __name__ == "__main__":
    end_at_once(main(sys.argv[1:]))
