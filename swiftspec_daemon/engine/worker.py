"""The engine worker process: `python -m swiftspec_daemon.engine.worker PARENT_PID CONFIG_JSON`.

Frames of `engine.messages` come in on standard input and go out on standard output. One thread
reads commands; the main thread loads the model, then computes, and takes in new commands between
two steps. Ends when standard input does. Knows nothing of how steps are chosen.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections import deque

import msgspec

from swiftspec_daemon.engine import tuning
from swiftspec_daemon.engine.config import WorkerConfig
from swiftspec_daemon.engine.core import EngineCore
from swiftspec_daemon.engine.drafts import loading as drafts
from swiftspec_daemon.engine.drafts.report import DraftReporter
from swiftspec_daemon.engine.drafts.speculator import Speculator
from swiftspec_daemon.engine.generation import Vocabulary
from swiftspec_daemon.engine.loading import LoadedModel, open_model
from swiftspec_daemon.engine.messages import (
    Command,
    Event,
    Failed,
    Loading,
    Ready,
    decode_command,
    encode,
)
from swiftspec_daemon.errors import ProtocolError, SwiftSpecError, in_one_line
from swiftspec_daemon.parallel.frames import read_frames, write_all
from swiftspec_daemon.parallel.lifeline import (
    claim_standard_output,
    end_at_once,
    start_reader,
    tie_to_parent,
)

log = logging.getLogger("swiftspec_daemon.engine.worker")

_PROGRESS_INTERVAL_S = 0.05


class Inbox:
    """Commands on their way from the reading thread to the computing one."""

    def __init__(self) -> None:
        self._commands: deque[Command] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, command: Command) -> None:
        with self._changed:
            self._commands.append(command)
            self._changed.notify()

    def close(self) -> None:
        """No more will come: the parent is gone or wants us to end."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    @property
    def closed(self) -> bool:
        return self._closed

    def take(self, *, wait: bool, timeout_s: float | None = None) -> list[Command]:
        """All commands that are there; with `wait`, at least one unless the inbox is closed or
        `timeout_s` is over."""
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: self._commands or self._closed, timeout_s)
            taken = list(self._commands)
            self._commands.clear()
            return taken


class Outbox:
    """Events on their way to the daemon. Used by the main thread only."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._last_progress = 0.0

    def emit(self, event: Event) -> None:
        write_all(self._descriptor, encode(event))

    def fail(self, code: str, message: str, hint: str) -> None:
        """The last event of a worker that cannot go on."""
        with contextlib.suppress(BrokenPipeError):
            self.emit(Failed(code=code, message=message, hint=hint))

    def progress(self, phase: str, fraction: float) -> None:
        """`engine.backend.Progress`; passes on at most 20 a second."""
        now = time.monotonic()
        if now - self._last_progress >= _PROGRESS_INTERVAL_S:
            self._last_progress = now
            self.emit(Loading(phase=phase, fraction=min(max(fraction, 0.0), 1.0)))


def main(arguments: list[str]) -> int:
    """Run the worker; its exit status."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    parent, config_json = arguments
    tie_to_parent(int(parent))
    outbox = Outbox(claim_standard_output())
    inbox = Inbox()
    start_reader(lambda: _read_commands(inbox))
    try:
        asked = msgspec.json.decode(config_json, type=WorkerConfig)
        plain = asked.speculation.mode == "off"
        config = tuning.with_tuning(asked)
        core, reporter = _load(config, outbox, plain=plain)
        _serve(core, inbox, reporter)
    except BrokenPipeError:
        return 0  # the daemon has gone; nobody is left to tell
    except SwiftSpecError as error:
        outbox.fail(error.code, error.message, error.hint)
        return 1
    except Exception as error:  # the edge of the process: say what happened, then end
        log.exception("the worker failed")
        message = f"The engine worker failed: {type(error).__name__}: {in_one_line(error)}"
        outbox.fail("engine_error", message, "See `swiftspec logs`.")
        return 1
    return 0


def _read_commands(inbox: Inbox) -> None:
    """Fill the inbox until standard input ends. Runs in a thread of its own."""
    try:
        for body in read_frames(sys.stdin.fileno()):
            try:
                inbox.put(decode_command(body))
            except msgspec.DecodeError as error:
                log.error("a command could not be understood and is ignored: %s", error)
    except ProtocolError as error:
        log.error("%s Ending.", error)
    except OSError as error:
        log.error("standard input cannot be read: %s", error.strerror)
    finally:
        inbox.close()


def _load(
    config: WorkerConfig, outbox: Outbox, *, plain: bool
) -> tuple[EngineCore, DraftReporter | None]:
    """Load the model, warm it up and say that it is ready. `plain`: there is no speculation, also
    not for requests that ask for it."""
    started = time.perf_counter()
    outbox.progress("starting", 0.0)
    model = open_model(config, outbox.progress)
    speculator = None if plain else _speculator(config, model, outbox)
    core = EngineCore(
        model.backend,
        Vocabulary.build(model.token_bytes, model.eos_ids, model.backend.vocab),
        slots=config.kv_slots,
        queue_limit=config.queue_limit,
        step_budget_ms=config.step_budget_ms,
        clock=time.perf_counter,
        emit=outbox.emit,
        speculator=speculator,
    )
    outbox.progress("warming up", 1.0)
    core.warm_up()
    reporter = None
    if speculator is not None:
        tuned = config.measured.made if config.measured is not None else ""
        reporter = DraftReporter(speculator, outbox.emit, time.monotonic, tuned)
        reporter.say()
    outbox.emit(_ready(model, config, load_ms=(time.perf_counter() - started) * 1e3))
    return core, reporter


def _speculator(config: WorkerConfig, model: LoadedModel, outbox: Outbox) -> Speculator:
    outbox.progress("timing the model", 1.0)
    speculator = Speculator(
        config.speculation,
        drafts.target_times(model.backend, config),
        drafts.supply(config, outbox.progress),
        time.perf_counter,
        max_rows=model.backend.max_rows,
    )
    speculator.warm_up()
    return speculator


def _ready(model: LoadedModel, config: WorkerConfig, load_ms: float) -> Ready:
    backend = model.backend
    return Ready(
        model=model.name,
        backend=backend.name,
        kernels=backend.kernels,
        vocab=backend.vocab,
        context=backend.context,
        slots=config.kv_slots,
        load_ms=load_ms,
        weight_bytes=backend.weight_bytes,
        kv_bytes=backend.kv_bytes(backend.context) * config.kv_slots,
    )


def _serve(core: EngineCore, inbox: Inbox, reporter: DraftReporter | None) -> None:
    """Steps, with commands taken in between them, until the end of input or an unload."""
    while not inbox.closed and not (core.unloading and not core.busy):
        patience_s = None if reporter is None else reporter.wait_s
        for command in inbox.take(wait=not core.busy, timeout_s=patience_s):
            core.receive(command)
        if not inbox.closed:
            worked = core.busy
            core.step()
            if reporter is not None:
                reporter.update(worked=worked, idle=not core.busy)


if __name__ == "__main__":
    end_at_once(main(sys.argv[1:]))
