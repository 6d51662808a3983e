"""The long measurement of `swiftspec tune`: which threads and which kind of speculation are
fastest for a model and its draft on this machine, on a few shipped prompts.

Real workers, as the daemon runs them, side by side; every prompt goes to each of them in turn.
Knows what is measured and in which order; what is remembered, and how, is `engine.tuned`'s.
"""

from __future__ import annotations

import asyncio
import importlib.resources
import os
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from swiftspec_daemon.engine import timing, tuned
from swiftspec_daemon.engine.client import EngineClient
from swiftspec_daemon.engine.config import Measured, WorkerConfig
from swiftspec_daemon.engine.interface import EngineStatus
from swiftspec_daemon.engine.messages import Finished, Generate, Priority, Speculation, Tokens
from swiftspec_daemon.engine.tuned import Setup, Tuned
from swiftspec_daemon.errors import EngineError
from swiftspec_daemon.models import default
from swiftspec_daemon.server.tokenizers import load_tokenizer

KINDS = ("code", "edit", "prose")
NEW_TOKENS = 48
_MOST_PROMPT = 1024
_REPEATS = 5
_AS_FAST = 1.03
"""Fewer threads are taken where they are as fast: the machine has other things to do."""
_MOST_SPLITS = 4
_DRAFT_START_S = 120.0

Progress = Callable[[str, float], None]


class Candidate(NamedTuple):
    """A way of decoding that is tried."""

    mode: Speculation
    threads: int
    draft_threads: int


@dataclass
class Outcome:
    """What was found, and whence."""

    tuned: Tuned
    setups: list[Setup]
    """Of every candidate that could be measured."""
    prompts: int = 0
    """That every candidate continued."""
    notes: list[str] = field(default_factory=list)


async def tune(config: WorkerConfig, seconds: float, progress: Progress) -> Outcome:
    """Measure for about so many seconds once models are loaded; every candidate continues one
    prompt at least. Nothing is remembered yet. Raises SwiftSpecError.

    Threads that `config` names are kept to.
    """
    if config.model == default.NAME:
        await asyncio.to_thread(default.fetch, progress)
    cores = tuned.usable_cores()
    counts = [config.threads] if config.threads else thread_counts(cores)
    timed = await timing.measure_steps(config, counts, _REPEATS, progress)
    notes = [f"No draft model: {timed.problem}"] if timed.problem else []
    tried = candidates(timed.measured, cores, os.name == "posix")
    rates, prompts = await _race(config, timed.measured, tried, seconds, progress, notes)
    setups = setups_of(rates)
    best = tuned.best_of_each_mode(setups)
    found = Tuned(
        key=timed.key,
        name=config.model,
        mode=tuned.best_mode(setups),
        setups=best,
        measured=timed.measured,
    )
    return Outcome(found, setups, prompts, notes)


def thread_counts(cores: int) -> list[int]:
    """Numbers of threads to try: all up to 8, then doubling, and all cores."""
    few = [*range(1, min(cores, 8) + 1)]
    more = [count for count in (16, 32, 64, 128, 256) if count < cores]
    return [*few, *more, *([cores] if cores > 8 else [])]


def candidates(measured: Measured, cores: int, processes: bool) -> list[Candidate]:
    """What is worth trying: each mode with the threads that are fastest for a plain step, and the
    draft in a process of its own (`processes`: possible here) with several splits of the cores.
    """
    target = measured.target_ms
    fastest = min(times[1] for times in target.values())
    threads = min(count for count, times in target.items() if times[1] <= _AS_FAST * fastest)
    found = [Candidate("off", threads, 1), Candidate("ngram", threads, 1)]
    if not measured.draft:
        return found
    found.append(Candidate("serial", threads, 1))
    if processes:
        splits = [(count, max(1, cores - count)) for count in target if count < max(2, cores)]
        splits.sort(key=lambda split: target[split[0]][1])
        found += [Candidate("async", *split) for split in splits[:_MOST_SPLITS]]
    return found


def setups_of(rates: dict[Candidate, list[float]]) -> list[Setup]:
    """Medians over prompts; `rates` are tokens per second, prompt by prompt, "off" first."""
    plain = next(found for candidate, found in rates.items() if candidate.mode == "off")
    return [
        Setup(
            mode=candidate.mode,
            threads=candidate.threads,
            draft_threads=candidate.draft_threads,
            tokens_per_second=round(statistics.median(found), 3),
            speedup=round(statistics.median(a / b for a, b in zip(found, plain, strict=True)), 4),
        )
        for candidate, found in rates.items()
    ]


# --- prompt by prompt ---------------------------------------------------------------------------


async def _race(
    config: WorkerConfig,
    measured: Measured,
    tried: Sequence[Candidate],
    seconds: float,
    progress: Progress,
    notes: list[str],
) -> tuple[dict[Candidate, list[float]], int]:
    """Tokens per second of each candidate, prompt by prompt, and the number of prompts."""
    texts = await asyncio.to_thread(_prompts, config.model)
    async with AsyncExitStack() as stack:
        engines: dict[Candidate, EngineClient] = {}
        for number, candidate in enumerate(tried):
            progress(f"loading: {_label(candidate)}", number / len(tried))
            engine = EngineClient(_config(config, measured, candidate))
            stack.push_async_callback(engine.stop)
            problem = await _load(engine, candidate)
            if problem:
                notes.append(f"{_label(candidate)} is left out: {problem}")
            else:
                engines[candidate] = engine
        rates: dict[Candidate, list[float]] = {candidate: [] for candidate in engines}
        deadline = time.monotonic() + seconds
        done = 0
        for number, prompt in enumerate(texts):
            if done and time.monotonic() >= deadline:
                break
            progress("comparing", max(number / len(texts), 1 - _left(deadline, seconds)))
            found = {}
            order = list(engines)
            for candidate in order[number % len(order) :] + order[: number % len(order)]:
                found[candidate] = await _rate(engines[candidate], prompt, str(number))
            if all(found.values()):
                done += 1
                for candidate, rate in found.items():
                    rates[candidate].append(rate)
    if not done:
        raise EngineError(
            "The model ends every shipped prompt at once: there is nothing to compare."
        )
    return rates, done


def _left(deadline: float, seconds: float) -> float:
    return min(1.0, max(0.0, deadline - time.monotonic()) / max(seconds, 1e-9))


def _config(config: WorkerConfig, measured: Measured, candidate: Candidate) -> WorkerConfig:
    asked = msgspec.structs.replace(
        config.speculation, mode=candidate.mode, draft_threads=candidate.draft_threads
    )
    return msgspec.structs.replace(
        config, threads=candidate.threads, speculation=asked, measured=measured
    )


async def _load(engine: EngineClient, candidate: Candidate) -> str:
    """Wait for the model and its draft. Why the draft cannot be used, or ""."""
    await engine.ready()
    changed = asyncio.Event()

    def changes(_: EngineStatus) -> None:
        changed.set()

    engine.on_status(changes)
    try:
        async with asyncio.timeout(_DRAFT_START_S):
            while True:
                drafts = engine.status.drafts
                if candidate.mode == "off" or drafts is None or candidate.mode == "ngram":
                    return ""
                if drafts.problem or drafts.mode != candidate.mode:
                    return drafts.problem or "there is no draft model for it."
                states = {model.state: model.problem for model in drafts.models}
                if "failed" in states:
                    return states["failed"]
                if set(states) == {"ready"}:
                    return ""
                await changed.wait()
                changed.clear()
    except TimeoutError:
        return "its draft model does not load."


async def _rate(engine: EngineClient, prompt: list[int], name: str) -> float:
    """Tokens per second after the first ones, greedy; 0 if there are none."""
    ready = await engine.ready()
    most = max(1, min(_MOST_PROMPT, ready.context - NEW_TOKENS))
    request = Generate(
        id=0,
        prompt=prompt[-most:],
        max_tokens=NEW_TOKENS,
        priority=Priority.INVOKED,
        sequence=f"tune {name}",
    )
    counts: list[int] = []
    usage = None
    async for event in engine.generate(request):
        if isinstance(event, Tokens):
            counts.append(len(event.ids))
        elif isinstance(event, Finished):
            if event.reason == "error":
                raise EngineError(f"The engine did not continue a prompt: {event.message}")
            usage = event.usage
    after = sum(counts[1:])
    if usage is None or not after or usage.decode_ms <= 0:
        return 0.0
    return after / usage.decode_ms * 1e3


def _prompts(model: str) -> list[list[int]]:
    """The shipped prompts as tokens, the kinds taking turns."""
    data = importlib.resources.files("swiftspec_daemon.bench").joinpath("data/prompts.json")
    shipped = msgspec.json.decode(data.read_bytes(), type=dict[str, list[dict[str, str]]])
    tokenizer = load_tokenizer(model)
    turns = zip(*(shipped[kind] for kind in KINDS), strict=False)
    texts = [prompt["text"] for turn in turns for prompt in turn]
    return [tokenizer.encode(text) for text in texts]


def _label(candidate: Candidate) -> str:
    threads = f"{candidate.mode}, {_threads(candidate.threads)}"
    if candidate.mode != "async":
        return threads
    return f"{threads}, {_threads(candidate.draft_threads)} of the draft"


def _threads(count: int) -> str:
    return f"{count} thread{'' if count == 1 else 's'}"


__all__ = ["Candidate", "Outcome", "candidates", "setups_of", "thread_counts", "tune"]
