"""What the websocket and the language server add to a completion, with an engine of no time.

The same keystrokes go three ways, in turns, so that all meet the same machine: as calls of the
completion service in this process, over a websocket, and over a language server that uses one.
Each time is from the change to the whole completion.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle, islice

from swiftspec_daemon.bench.keystrokes import URI, WRITTEN, keystrokes
from swiftspec_daemon.bench.language_client import LanguageClient
from swiftspec_daemon.bench.scripted_daemon import scripted_engine, scripted_service
from swiftspec_daemon.client import AsyncClient
from swiftspec_daemon.completion.events import Completed, CompletionOptions
from swiftspec_daemon.documents import Document
from swiftspec_daemon.errors import ProtocolError
from swiftspec_daemon.protocol.messages import Edit, Position
from swiftspec_daemon.settings import Settings

BLOCK = 10
"""Keystrokes that go one way before it is the next one's turn."""
WARM_UP = 3
"""Blocks of each way that are not counted."""

Way = Callable[[int, Edit, Position], Awaitable[str]]
"""Types one key and completes; gets the document's new version, the edit and the cursor."""


@dataclass
class Overhead:
    """Milliseconds from a change to the whole completion, by keystroke."""

    in_process: list[float] = field(default_factory=list)
    websocket: list[float] = field(default_factory=list)
    language_server: list[float] = field(default_factory=list)


async def measure(
    client: AsyncClient, server: LanguageClient, *, blocks: int, progress: Callable[[], None]
) -> Overhead:
    """Type `blocks` times `BLOCK` keys each way, after the warm-up. The daemon is a scripted one.

    Raises ProtocolError if a way does not answer as the others.
    """
    measured = Overhead()
    ways = [
        (_Typist(_in_process()), measured.in_process),
        (_Typist(await _websocket(client)), measured.websocket),
        (_Typist(await _language_server(server)), measured.language_server),
    ]
    for block in range(WARM_UP + blocks):
        answers = []
        for typist, times in ways:
            found, answer = await typist.type(BLOCK)
            answers.append(answer)
            if block >= WARM_UP:
                times.extend(found)
        if len(set(answers)) != 1:
            raise ProtocolError(f"The ways answer differently: {answers}.")
        if block >= WARM_UP:
            progress()
    return measured


class _Typist:
    """Types the sample one way, again from its beginning when it is at its end."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self._version = 0
        self._keys = _endless_keystrokes()

    async def type(self, count: int) -> tuple[list[float], str]:
        """Milliseconds of each key, and the last completion."""
        times: list[float] = []
        answer = ""
        for edit, cursor in islice(self._keys, count):
            self._version += 1
            started = time.perf_counter()
            answer = await self._way(self._version, edit, cursor)
            times.append(1e3 * (time.perf_counter() - started))
        return times, answer


def _endless_keystrokes() -> Iterator[tuple[Edit, Position]]:
    """The sample's keystrokes over and over; the first of each round takes the old text away."""
    keys = list(keystrokes())
    end = keys[-1][1]
    (first, cursor), *others = keys
    yield first, cursor
    yield from others
    again = Edit(start=first.start, end=end, text=first.text)
    yield from cycle([(again, cursor), *others])


def _in_process() -> Way:
    document = Document(WRITTEN, uri=URI, language="python")
    service = scripted_service(scripted_engine(), Settings())

    async def way(version: int, edit: Edit, cursor: Position) -> str:
        document.apply([edit], version, "utf-8")
        offset = document.offset(cursor, "utf-8")
        text = ""
        async for event in service.complete(document, offset, CompletionOptions(), sequence=URI):
            if isinstance(event, Completed):
                text = event.text
        return text

    return way


async def _websocket(client: AsyncClient) -> Way:
    await client.open(URI, WRITTEN, 0, "python")

    async def way(version: int, edit: Edit, cursor: Position) -> str:
        await client.change(URI, version, [edit])
        completion = await client.complete(URI, cursor)
        return (await completion.result()).text

    return way


async def _language_server(server: LanguageClient) -> Way:
    await server.open(URI, WRITTEN)

    async def way(version: int, edit: Edit, cursor: Position) -> str:
        await server.change(URI, version, edit)
        items = await server.inline_completion(URI, cursor)
        return str(items[0]["insertText"]) if items else ""

    return way
