"""The basic figures: start, decode and prefill speed, time to the first line, overheads, memory.

Measures the default model on this machine as users run it: real daemons, real workers, real
bridges, in homes of their own. Knows what is measured and in which order; how is in the modules
beside it.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from swiftspec_daemon.bench import daemons, engine_speed, overhead, typing_latency
from swiftspec_daemon.bench.keystrokes import URI, WRITTEN
from swiftspec_daemon.bench.language_client import LanguageClient
from swiftspec_daemon.bench.memory import pss_mb
from swiftspec_daemon.bench.report import Row, row
from swiftspec_daemon.client import AsyncClient
from swiftspec_daemon.engine.client import EngineClient
from swiftspec_daemon.engine.config import WorkerConfig
from swiftspec_daemon.errors import EngineError
from swiftspec_daemon.models import catalog, default
from swiftspec_daemon.protocol.messages import Position
from swiftspec_daemon.settings import ModelSettings

SCRIPTED = ("-m", "swiftspec_daemon.bench.scripted_daemon")
"""Arguments of the interpreter for a daemon with a scripted engine."""

Progress = Callable[[str, float], None]
"""Is told what is being done and, for a progress bar, which fraction of it is done."""


@dataclass(frozen=True)
class Amounts:
    """How often things are measured."""

    starts: int = 5
    decodes: int = 5
    new_tokens: int = 128
    prefills: int = 7
    keystrokes: int = 120
    every: int = 3
    """Characters of a keystroke: the completions of a line being typed, not all alike."""
    blocks: int = 60
    """Of `overhead.BLOCK` keystrokes each way."""


@dataclass
class Figures:
    """Rows, and the samples behind them for plots, by the row's name."""

    rows: list[Row] = field(default_factory=list)
    samples: dict[str, list[float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, name: str, samples: list[float], unit: str) -> None:
        """A row of samples. Raises EngineError if there are none."""
        if not samples:
            raise EngineError(f"Nothing was measured for {name}.")
        self.samples[name] = samples
        self.rows.append(row(name, samples, unit))


async def measure(amounts: Amounts, progress: Progress) -> Figures:
    """All basic figures; the default model is fetched first if it is not there.

    Raises SwiftSpecError.
    """
    await asyncio.to_thread(default.fetch, lambda phase, part: progress(phase, part))
    figures = Figures()
    await _engine(figures, amounts, progress)
    await _starts(figures, amounts, progress)
    await _first_line_and_memory(figures, amounts, progress)
    await _overheads(figures, amounts, progress)
    return figures


async def _engine(figures: Figures, amounts: Amounts, progress: Progress) -> None:
    """Decode and prefill through an engine worker, without a daemon."""
    progress("loading the default model", 0)
    tokenizer = await asyncio.to_thread(catalog.open_tokenizer, catalog.resolve(default.NAME))
    prompt = tokenizer.encode(WRITTEN)
    engine = EngineClient(WorkerConfig.from_settings(ModelSettings()))
    try:
        vocab = (await engine.ready()).vocab
        decode: list[float] = []
        for number in range(amounts.decodes + 1):
            rate = await engine_speed.decode_tok_s(engine, prompt, amounts.new_tokens)
            decode += [rate] if number else []  # the first one warms up
            progress("decoding", number / amounts.decodes)
        prefill: list[float] = []
        order = random.Random(0)
        for number in range(amounts.prefills + 1):
            # The first token differs from all earlier ones, so that nothing of it is cached.
            ids = [number + vocab // 2, *order.choices(prompt, k=engine_speed.PREFILL_TOKENS - 1)]
            rate = await engine_speed.prefill_tok_s(engine, ids, f"prefill {number}")
            prefill += [rate] if number else []
            progress("prefilling", number / amounts.prefills)
    finally:
        await engine.stop()
    figures.add("basics.decode_tok_s", decode, "tokens/s")
    figures.add("basics.prefill_tok_s", prefill, "tokens/s")


async def _starts(figures: Figures, amounts: Amounts, progress: Progress) -> None:
    """From the start of the daemon's process until it is ready, the model converted before."""

    def one_start() -> float:
        with daemons.running() as daemon:
            return daemon.ready_s

    times = []
    for number in range(amounts.starts):
        progress("starting the daemon", number / amounts.starts)
        times.append(await asyncio.to_thread(one_start))
    figures.add("basics.ready_s", times, "s")


async def _first_line_and_memory(figures: Figures, amounts: Amounts, progress: Progress) -> None:
    done = 0

    def key_typed() -> None:
        nonlocal done
        done += 1
        progress("typing", done / amounts.keystrokes)

    progress("typing", 0)
    async with _daemon(daemons.SERVE) as (daemon, client, bridge):
        typed = await typing_latency.type_sample(
            client, every=amounts.every, count=amounts.keystrokes, progress=key_typed
        )
        await bridge.open(URI, WRITTEN)
        await bridge.inline_completion(URI, Position(line=WRITTEN.count("\n"), character=0))
        worker = _worker_pid(daemon.record.pid)
        memory = {"daemon": daemon.record.pid, "worker": worker, "bridge": bridge.pid}
        used = {name: pss_mb(pid) for name, pid in memory.items()}
    figures.add("basics.first_line_ms", typed.first_line_ms, "ms")
    if typed.empty:
        figures.notes.append(
            f"first_line_ms: {typed.empty} of {amounts.keystrokes} keystrokes had no suggestion "
            "and are not counted."
        )
    for name, megabytes in used.items():
        figures.rows.append(Row(name=f"basics.rss_mb.{name}", value=megabytes, unit="MB (PSS)"))


async def _overheads(figures: Figures, amounts: Amounts, progress: Progress) -> None:
    done = 0

    def block_typed() -> None:
        nonlocal done
        done += 1
        progress("typing three ways", done / amounts.blocks)

    progress("typing three ways", 0)
    async with _daemon(SCRIPTED) as (_, client, bridge):
        ways = await overhead.measure(client, bridge, blocks=amounts.blocks, progress=block_typed)
    for name, upper, lower in (
        ("basics.websocket_ms", ways.websocket, ways.in_process),
        ("basics.lsp_ms", ways.language_server, ways.websocket),
    ):
        added = statistics.median(upper) - statistics.median(lower)
        figures.rows.append(Row(name=name, value=added, unit="ms", n=len(upper)))
    figures.notes.append(
        "websocket_ms, lsp_ms: differences of medians; from change to whole completion it took "
        f"{statistics.median(ways.in_process):.2f} ms in the process, "
        f"{statistics.median(ways.websocket):.2f} ms over the websocket, "
        f"{statistics.median(ways.language_server):.2f} ms over the language server."
    )


@asynccontextmanager
async def _daemon(
    arguments: tuple[str, ...],
) -> AsyncIterator[tuple[daemons.Daemon, AsyncClient, LanguageClient]]:
    """A daemon with a websocket client and a language server that uses it."""
    context = daemons.running(arguments)
    daemon = await asyncio.to_thread(context.__enter__)
    try:
        command = [sys.executable, "-P", "-m", "swiftspec_daemon", "lsp", "--no-start"]
        async with AsyncClient.connect(url=daemon.url, token=daemon.token) as client:
            bridge = await LanguageClient.start(command, daemon.environment)
            try:
                yield daemon, client, bridge
                await bridge.stop()
            finally:
                await bridge.kill()
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)


def _worker_pid(daemon_pid: int) -> int:
    """The daemon's engine worker. Raises EngineError if there is none."""
    import psutil

    for child in psutil.Process(daemon_pid).children():
        return int(child.pid)
    raise EngineError("The daemon has no engine worker.", "Did it unload its model?")
