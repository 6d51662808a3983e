"""Time from a keystroke to the first line of its completion, over a client's websocket.

Types the sample of `keystrokes` into a document that the daemon has open; knows nothing of how the
daemon was started or what engine it has.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from swiftspec_daemon.bench.keystrokes import URI, WRITTEN, keystrokes
from swiftspec_daemon.client import AsyncClient, Done, FirstLine
from swiftspec_daemon.errors import EngineError

WARM_UP = 3


@dataclass
class Typing:
    """What was measured while the sample was typed."""

    first_line_ms: list[float] = field(default_factory=list)
    """From sending the change until the first line was complete, by keystroke."""
    empty: int = 0
    """Keystrokes to which the daemon had nothing to suggest; they are not in the times."""


async def type_sample(
    client: AsyncClient, *, every: int, count: int, progress: Callable[[], None]
) -> Typing:
    """Type `count` insertions of `every` characters and ask after each one, as an editor does.

    The completion goes on until the first line is there, and is then cancelled by typing on. The
    first `WARM_UP` keystrokes, which prefill the document, are not counted.
    """
    await client.open(URI, WRITTEN, 0, "python")
    measured = Typing()
    for number, (edit, cursor) in enumerate(keystrokes(every)):
        if number >= count + WARM_UP:
            break
        started = time.perf_counter()
        await client.change(URI, number + 1, [edit])
        completion = await client.complete(URI, cursor)
        elapsed_ms: float | None = None
        async for event in completion:
            if isinstance(event, FirstLine):
                elapsed_ms = 1e3 * (time.perf_counter() - started)
                await completion.cancel()
                continue
            if isinstance(event, Done):
                if event.reason == "error":
                    raise EngineError(f"A completion failed: {event.message}", event.hint)
                if elapsed_ms is None and event.text:
                    elapsed_ms = 1e3 * (time.perf_counter() - started)
        if number >= WARM_UP:
            progress()
            if elapsed_ms is None:
                measured.empty += 1
            else:
                measured.first_line_ms.append(elapsed_ms)
    await client.close_document(URI)
    return measured
