"""Tokens per second of an engine through its worker: plain decoding and prefill.

Times are taken in the daemon's place, so they hold the way to the worker and back. Knows token ids
only.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from swiftspec_daemon.engine.interface import Engine
from swiftspec_daemon.engine.messages import Finished, Generate, Priority, Tokens
from swiftspec_daemon.errors import EngineError

PREFILL_TOKENS = 512


async def decode_tok_s(engine: Engine, prompt: Sequence[int], new_tokens: int) -> float:
    """Tokens per second after the first one, greedy and without speculation.

    The first token carries the prefill and is left out; so is its time. Raises EngineError if the
    model ends early.
    """
    request = Generate(
        id=0,
        prompt=list(prompt),
        max_tokens=new_tokens,
        priority=Priority.INVOKED,
        sequence="bench decode",
        speculation="off",
    )
    arrivals: list[tuple[float, int]] = []
    async for event in engine.generate(request):
        if isinstance(event, Tokens):
            arrivals.append((time.perf_counter(), len(event.ids)))
        else:
            _check(event)
    decoded = sum(count for _, count in arrivals[1:])
    if decoded < new_tokens // 2:
        raise EngineError(f"The model ended after {decoded} tokens, too few to measure.")
    return decoded / (arrivals[-1][0] - arrivals[0][0])


async def prefill_tok_s(engine: Engine, prompt: Sequence[int], sequence: str) -> float:
    """Prompt tokens per second. Raises EngineError if some of the prompt was cached.

    `sequence` names a document; each call needs a prompt whose first token is new to the engine.
    """
    request = Generate(
        id=0,
        prompt=list(prompt),
        max_tokens=0,
        priority=Priority.INVOKED,
        sequence=sequence,
        speculation="off",
    )
    started = time.perf_counter()
    async for event in engine.generate(request):
        if isinstance(event, Finished):
            _check(event)
            if event.usage.cached_tokens:
                raise EngineError(f"{event.usage.cached_tokens} prompt tokens were cached.")
    return len(prompt) / (time.perf_counter() - started)


def _check(finished: Finished) -> None:
    if finished.reason not in ("stop", "length"):
        text = finished.message or finished.reason
        raise EngineError(f"The engine did not finish a request of the benchmark: {text}.")
