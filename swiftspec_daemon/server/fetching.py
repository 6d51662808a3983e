"""The engine with its model's files: they are fetched first, if they are not there.

So that a daemon that starts in the background answers at once and reports the download as a phase
of loading. Knows neither where models come from nor how they run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncGenerator, Callable

from swiftspec_daemon.engine.interface import Engine, EngineStatus
from swiftspec_daemon.engine.messages import Finished, Forget, Generate, Ready, Remember, Tokens
from swiftspec_daemon.errors import EngineError, SwiftSpecError

_log = logging.getLogger(__name__)

RETRY_AFTER_S = 15.0
"""After a failed download, requests within this time get the same error at once."""

Fetch = Callable[[Callable[[str, float], None]], None]
"""Blocking; gets a callback for phase and fraction, which raises when it should give up.

Raises ModelError.
"""

_GIVE_UP_S = 3.0
"""How long `stop` waits for a download to notice."""


class FetchingEngine:
    """Implements `engine.interface.Engine` around another engine."""

    def __init__(self, engine: Engine, fetch: Fetch) -> None:
        self._engine = engine
        self._fetch = fetch
        self._fetched = False
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._status: EngineStatus | None = None
        self._failure: tuple[float, SwiftSpecError] | None = None
        self._callbacks: list[Callable[[EngineStatus], None]] = []
        engine.on_status(self._engine_changed)

    async def start(self) -> None:
        """Begin fetching and loading; returns at once."""
        if self._fetched:
            await self._engine.start()
        else:
            self._begin()

    async def ready(self) -> Ready:
        """Wait until requests are served. Raises EngineError or ModelError when that fails."""
        await self.files()
        return await self._engine.ready()

    async def files(self) -> None:
        """Wait until the model's files are there. Raises ModelError when they cannot be fetched."""
        if not self._fetched:
            await asyncio.shield(self._begin())

    def wait_files(self) -> None:
        """As `files`, for another thread than the event loop's, once `start` was called."""
        if self._fetched:
            return
        if self._loop is None:
            raise EngineError("The engine has not been started.")
        asyncio.run_coroutine_threadsafe(self.files(), self._loop).result()

    async def generate(self, request: Generate) -> AsyncGenerator[Tokens | Finished, None]:
        """See `engine.interface.Engine`."""
        await self.files()
        async with contextlib.aclosing(self._engine.generate(request)) as answers:
            async for answer in answers:
                yield answer

    def inform(self, command: Remember | Forget) -> None:
        """See `engine.interface.Engine`."""
        self._engine.inform(command)

    async def unload(self) -> None:
        """Free the model's memory; the next request loads it again."""
        await self._engine.unload()

    async def stop(self) -> None:
        """End for good. A download that runs gives up at its next step."""
        self._stopping = True
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_GIVE_UP_S)
            self._task.cancel()
        await self._engine.stop()

    @property
    def status(self) -> EngineStatus:
        return self._status or self._engine.status

    def on_status(self, callback: Callable[[EngineStatus], None]) -> None:
        """Call back, on the event loop, at each change of state and each step of loading."""
        self._callbacks.append(callback)

    def _begin(self) -> asyncio.Task[None]:
        self._loop = asyncio.get_running_loop()
        if self._failure is not None:
            when, error = self._failure
            if time.monotonic() - when < RETRY_AFTER_S:
                return asyncio.create_task(_fail(error))
        if self._task is None or self._task.done():
            self._failure = None
            self._report(EngineStatus(state="loading", phase="looking for the model's files"))
            self._task = asyncio.create_task(self._run(), name="fetch the model")
            self._task.add_done_callback(_retrieve)
        return self._task

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()

        def progress(phase: str, fraction: float) -> None:
            if self._stopping:
                raise _GivenUp
            status = EngineStatus(state="loading", phase=phase, fraction=fraction)
            loop.call_soon_threadsafe(self._report, status)

        try:
            await _in_thread(lambda: self._fetch(progress))
        except _GivenUp:
            raise EngineError("The engine is stopped.") from None
        except SwiftSpecError as error:
            self._failed(error)
            raise
        except Exception as error:
            _log.exception("fetching the model failed")
            failure = EngineError(f"The model could not be fetched: {error}.", "See the log.")
            self._failed(failure)
            raise failure from error
        self._fetched = True
        self._status = None
        if not self._stopping:
            await self._engine.start()

    def _failed(self, error: SwiftSpecError) -> None:
        _log.error("the model's files are not there: %s", error)
        self._failure = (time.monotonic(), error)
        self._report(
            EngineStatus(state="failed", code=error.code, message=error.message, hint=error.hint)
        )

    def _report(self, status: EngineStatus) -> None:
        if self._fetched:
            return  # a late step of the download
        self._status = status
        for callback in self._callbacks:
            callback(status)

    def _engine_changed(self, status: EngineStatus) -> None:
        if self._fetched:
            for callback in self._callbacks:
                callback(status)


class _GivenUp(Exception):
    """The daemon ends; nobody wants the files any more."""


async def _in_thread(work: Callable[[], None]) -> None:
    """Run blocking work. Not in the loop's executor: the process's end must not wait for it."""
    loop = asyncio.get_running_loop()
    finished: asyncio.Future[None] = loop.create_future()

    def settle(error: BaseException | None) -> None:
        if not finished.done():
            finished.set_exception(error) if error else finished.set_result(None)

    def run() -> None:
        error: BaseException | None = None
        try:
            work()
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(settle, error)

    threading.Thread(target=run, name="fetch the model", daemon=True).start()
    await finished


async def _fail(error: SwiftSpecError) -> None:
    raise type(error)(error.message, error.hint)


def _retrieve(task: asyncio.Task[None]) -> None:
    """Nobody may be waiting: the failure is in the status and in the log."""
    if not task.cancelled():
        task.exception()
