"""The daemon's side of an engine worker: starts it when needed, sends requests, sorts the answers.

Implements `engine.interface.Engine` over one worker process. Everything runs on one event loop.
Knows nothing of models or of scheduling; the worker decides what runs when.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import AsyncGenerator, Callable

import msgspec

from swiftspec_daemon.engine.config import WorkerConfig
from swiftspec_daemon.engine.interface import EngineStatus
from swiftspec_daemon.engine.messages import (
    Cancel,
    Drafts,
    Event,
    Failed,
    Finished,
    Forget,
    Generate,
    Loading,
    Ready,
    Remember,
    Speculation,
    Tokens,
    Unload,
    Usage,
    decode_event,
    encode,
)
from swiftspec_daemon.engine.recovery import BackOff, error_from_code
from swiftspec_daemon.errors import EngineError, ProtocolError, SwiftSpecError, UsageError
from swiftspec_daemon.parallel.processes import StopTimes, WorkerProcess
from swiftspec_daemon.speculation.counters import SpeculationCounters

log = logging.getLogger(__name__)

WORKER_MODULE = "swiftspec_daemon.engine.worker"
_Answer = Tokens | Finished | SwiftSpecError


class EngineClient:
    """One engine worker, started at the first request and again when it was lost or unloaded."""

    def __init__(
        self,
        config: WorkerConfig,
        *,
        idle_unload_s: float = 0.0,
        stop_times: StopTimes | None = None,
        back_off: BackOff | None = None,
    ) -> None:
        """`idle_unload_s`: free the model's memory after so long without a request; 0 never."""
        self._config = config
        self._idle_unload_s = idle_unload_s
        self._stop_times = stop_times
        self._back_off = back_off or BackOff()
        self._status = EngineStatus(state="unloaded")
        self._callbacks: list[Callable[[EngineStatus], None]] = []
        self._drafts: Drafts | None = None
        self._speculated: dict[Speculation, SpeculationCounters] = {}
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Queue[_Answer]] = {}
        self._worker: WorkerProcess | None = None
        self._ready: asyncio.Future[Ready] | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._unloading: asyncio.Task[None] | None = None
        self._drained = asyncio.Event()
        self._drained.set()
        self._idle_timer: asyncio.TimerHandle | None = None
        self._stopped = False

    # --- the interface ----------------------------------------------------------------------

    async def start(self) -> None:
        """Begin loading; returns at once, or when an unload that is under way is done.

        Raises the last failure's error while the back-off lasts.
        """
        while self._ensure_started() is None and self._unloading is not None:
            await asyncio.shield(self._unloading)

    async def ready(self) -> Ready:
        """Wait until requests are served. Raises EngineError or ModelError when that fails."""
        while True:
            future = self._ensure_started()
            if future is not None:
                return await asyncio.shield(future)
            if self._unloading is not None:
                await asyncio.shield(self._unloading)

    async def generate(self, request: Generate) -> AsyncGenerator[Tokens | Finished, None]:
        """Tokens as they are decided, then exactly one Finished. See `interface.Engine`."""
        worker = await self._serving_worker()
        request = msgspec.structs.replace(request, id=next(self._ids))
        # Before it counts as running: what cannot be sent would never be answered.
        frame = _frame(request)
        queue: asyncio.Queue[_Answer] = asyncio.Queue()
        self._answers[request.id] = queue
        self._running_changed()
        worker.send(frame)
        finished = False
        try:
            while not finished:
                answer = await queue.get()
                if isinstance(answer, SwiftSpecError):
                    finished = True
                    raise answer
                finished = isinstance(answer, Finished)
                yield answer
        finally:
            if not finished and request.id in self._answers:
                worker.send(encode(Cancel(id=request.id)))

    async def _serving_worker(self) -> WorkerProcess:
        while True:
            await self.ready()
            if self._worker is not None and self._unloading is None:
                return self._worker

    def inform(self, command: Remember | Forget) -> None:
        """See `interface.Engine`."""
        if self._status.state == "ready" and self._worker is not None and self._unloading is None:
            self._worker.send(encode(command))

    async def unload(self) -> None:
        """Free the model's memory once running requests are finished."""
        if self._unloading is None and self._supervisor is not None:
            self._unloading = asyncio.create_task(self._unload())
        if self._unloading is not None:
            await asyncio.shield(self._unloading)

    async def stop(self) -> None:
        """End for good; running requests end as cancelled."""
        self._stopped = True
        self._cancel_idle_timer()
        for request in list(self._answers):
            usage = Usage()
            self._deliver(request, Finished(id=request, reason="cancelled", usage=usage))
        if self._worker is not None:
            await self._worker.stop(encode(Unload()), self._stop_times)
        if self._supervisor is not None:
            await asyncio.shield(self._supervisor)
        if self._unloading is not None:
            await asyncio.shield(self._unloading)

    @property
    def status(self) -> EngineStatus:
        return self._status

    def on_status(self, callback: Callable[[EngineStatus], None]) -> None:
        """Call back, on the event loop, at each change of state and each step of loading."""
        self._callbacks.append(callback)

    # --- the worker's life ------------------------------------------------------------------

    def _ensure_started(self) -> asyncio.Future[Ready] | None:
        """The future of readiness; None while the old worker is being unloaded."""
        if self._stopped:
            raise EngineError("The engine is stopped.")
        if self._unloading is not None:
            return None
        if self._ready is None:
            loop = asyncio.get_running_loop()
            self._back_off.check(loop.time(), self._lost())
            self._ready = loop.create_future()
            self._set_status(EngineStatus(state="loading", phase="starting"))
            self._supervisor = loop.create_task(self._supervise(self._ready))
        return self._ready

    async def _supervise(self, ready: asyncio.Future[Ready]) -> None:
        """One worker from its start to its end."""
        error: SwiftSpecError | None = None
        try:
            self._worker = await WorkerProcess.start(
                WORKER_MODULE,
                [str(os.getpid()), msgspec.json.encode(self._config).decode()],
                name="engine worker",
            )
            if not self._stopped:
                error = await self._receive_events(self._worker, ready)
        except OSError as failure:
            error = EngineError(f"The engine worker cannot be started: {failure.strerror}.")
        except ProtocolError as failure:
            error = EngineError(f"The engine worker answers nonsense: {failure.message}")
            if self._worker is not None:
                self._worker.kill()
        except Exception as failure:  # whoever waits must be told, whatever it was
            log.exception("engine: supervising the worker failed")
            error = EngineError(f"The engine failed: {type(failure).__name__}: {failure}.")
        if self._worker is not None:
            status = await self._worker.stop(times=self._stop_times)
            if error is None and self._unloading is None and not self._stopped:
                error = self._crash(self._worker, status)
        self._ended(ready, error)

    async def _receive_events(
        self, worker: WorkerProcess, ready: asyncio.Future[Ready]
    ) -> SwiftSpecError | None:
        """Sort the worker's events until it closes its output. The error it named, if any."""
        error: SwiftSpecError | None = None
        while (body := await worker.receive()) is not None:
            try:
                event = decode_event(body)
            except msgspec.DecodeError as failure:
                raise ProtocolError(str(failure)) from None
            if isinstance(event, Failed):
                error = error_from_code(event.code, event.message, event.hint)
            else:
                self._sort(event, worker, ready)
        return error

    def _sort(self, event: Event, worker: WorkerProcess, ready: asyncio.Future[Ready]) -> None:
        match event:
            case Loading(phase=phase, fraction=fraction):
                self._set_status(
                    EngineStatus(
                        state="loading", phase=phase, fraction=fraction, worker_pid=worker.pid
                    )
                )
            case Ready():
                status = EngineStatus(state="ready", ready=event, worker_pid=worker.pid)
                self._set_status(status)
                ready.set_result(event)
                self._running_changed()
            case Drafts():
                self._drafts = event
                self._set_status(self._status)
            case Tokens() | Finished():
                if isinstance(event, Finished):
                    self._count(event.usage)
                self._deliver(event.id, event)
                if isinstance(event, Finished) and event.reason != "error":
                    self._back_off.succeeded()

    def _ended(self, ready: asyncio.Future[Ready], error: SwiftSpecError | None) -> None:
        """The worker is gone: tell everybody who waits, and be ready for the next start."""
        self._worker = None
        self._supervisor = None
        self._ready = None
        self._drafts = None
        if error is None:
            self._set_status(EngineStatus(state="unloaded"))
        else:
            log.error("engine: %s", error)
            self._back_off.failed(asyncio.get_running_loop().time())
            self._set_status(
                EngineStatus(
                    state="failed", code=error.code, message=error.message, hint=error.hint
                )
            )
        if not ready.done():
            ready.set_exception(error or EngineError("The engine was stopped while it loaded."))
            ready.exception()  # nobody need be waiting
        for request in list(self._answers):
            self._deliver(request, error or self._lost())
        self._cancel_idle_timer()

    @staticmethod
    def _crash(worker: WorkerProcess, status: int) -> EngineError:
        how = f"by signal {-status}" if status < 0 else f"with status {status}"
        last = f" Its last words: {worker.last_log_line}" if worker.last_log_line else ""
        return EngineError(
            f"The engine worker ended unexpectedly {how}.{last}",
            "The next request starts it again; `swiftspec logs` has more.",
        )

    def _lost(self) -> SwiftSpecError:
        """The error of the last failure."""
        status = self._status
        if status.state == "failed":
            return error_from_code(status.code, status.message, status.hint)
        return EngineError("The engine worker was lost.", "Try again.")

    async def _unload(self) -> None:
        try:
            if self._ready is not None:
                await asyncio.wait([self._ready])
            await self._drained.wait()
            if self._worker is not None:
                await self._worker.stop(encode(Unload()), self._stop_times)
            if self._supervisor is not None:
                await asyncio.shield(self._supervisor)
        finally:
            self._unloading = None

    # --- requests ---------------------------------------------------------------------------

    def _deliver(self, request: int, answer: _Answer) -> None:
        """Pass an answer on; the last one ends the bookkeeping of its request."""
        queue = self._answers.get(request)
        if queue is None:
            return
        queue.put_nowait(answer)
        if not isinstance(answer, Tokens):
            del self._answers[request]
            self._running_changed()

    def _running_changed(self) -> None:
        running = len(self._answers)
        if running:
            self._drained.clear()
            self._cancel_idle_timer()
        else:
            self._drained.set()
            self._start_idle_timer()
        if self._status.state == "ready" and self._status.running != running:
            self._set_status(msgspec.structs.replace(self._status, running=running))

    def _start_idle_timer(self) -> None:
        self._cancel_idle_timer()
        if self._idle_unload_s > 0 and self._status.state == "ready" and not self._stopped:
            loop = asyncio.get_running_loop()
            self._idle_timer = loop.call_later(self._idle_unload_s, self._idle)

    def _cancel_idle_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _idle(self) -> None:
        self._idle_timer = None
        if self._unloading is None and not self._answers and self._supervisor is not None:
            log.info("engine: idle for %g s, unloading", self._idle_unload_s)
            self._unloading = asyncio.create_task(self._unload())

    def _count(self, usage: Usage) -> None:
        done = usage.speculation
        if done is not None:
            before = self._speculated.get(done.mode, SpeculationCounters())
            self._speculated[done.mode] = before + done.counters

    def _set_status(self, status: EngineStatus) -> None:
        status = msgspec.structs.replace(
            status, drafts=self._drafts, speculated=dict(self._speculated)
        )
        self._status = status
        for callback in self._callbacks:
            try:
                callback(status)
            except Exception:  # a listener's fault must not stop the engine
                log.exception("engine: a status callback failed")


def _frame(request: Generate) -> bytes:
    """Raises UsageError for values that no frame can carry."""
    try:
        return encode(request)
    except (OverflowError, UnicodeEncodeError) as error:
        raise UsageError(f"The engine cannot be sent this request: {error}.") from None
