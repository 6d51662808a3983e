"""Which texts the engine is told of, and when."""

from __future__ import annotations

import asyncio

import pytest
from completion_fakes import FakeTokenizer, answer

from swiftspec_daemon.completion.events import CompletionOptions
from swiftspec_daemon.completion.open_files import MOST_FILES, MOST_TEXT
from swiftspec_daemon.completion.service import CompletionService
from swiftspec_daemon.documents import Document
from swiftspec_daemon.engine.messages import Remember
from swiftspec_daemon.engine.scripted import ScriptedEngine
from swiftspec_daemon.errors import ModelError
from swiftspec_daemon.settings import Settings, SpeculationSettings


class World:
    """A service on a scripted engine, and what the engine has been told."""

    def __init__(self, mode="auto", **engine_options):
        self.engine = ScriptedEngine(answer("a", **engine_options))
        self.tokenizer = FakeTokenizer()
        settings = Settings(speculation=SpeculationSettings(mode=mode))
        self.service = CompletionService(self.engine, lambda: self.tokenizer, settings)
        self.files = self.service.open_files

    def open(self, name, text="x = 1\n"):
        document = Document(text, uri=f"file:///{name}", version=1)
        self.files.opened(document)
        return document

    def ask(self, document, client=1):
        self.files.completing(document, client)
        options = CompletionOptions()
        return self.service.complete(document, len(document), options, sequence=document.uri)

    async def complete(self, document, client=1):
        async for _ in self.ask(document, client):
            pass

    async def told(self):
        """What has been told since the last call, files by their names."""
        async with asyncio.timeout(30):
            await self.files.settled()
        told, self.engine.informed = self.engine.informed, []
        return [
            (told.text_id, self.tokenizer.decode(told.tokens))
            if isinstance(told, Remember)
            else told.text_id
            for told in told
        ]


async def ready(**options):
    world = World(**options)
    await world.engine.ready()
    await world.service.prepare()
    return world


A, B = "'file:///a'", "'file:///b'"


async def test_a_file_is_sent_when_it_is_opened():
    world = await ready()
    world.open("a", "x = 1\r\ny = 2\r\n")
    assert await world.told() == [(A, "x = 1\ny = 2\n")]


async def test_typing_sends_nothing_and_going_on_elsewhere_sends_what_changed():
    world = await ready()
    a, b = world.open("a"), world.open("b")
    await world.told()
    for version in range(2, 6):
        a.replace("x = 1\n" + "y" * version, version)
        await world.complete(a)
    assert await world.told() == []
    await world.complete(b)
    assert await world.told() == [(A, "x = 1\nyyyyy")]
    await world.complete(a)
    await world.complete(b)
    assert await world.told() == []  # nothing has changed since


async def test_two_clients_in_two_files_do_not_leave_them():
    world = await ready()
    a, b = world.open("a"), world.open("b")
    await world.told()
    for version in (2, 3):
        for client, document in enumerate((a, b)):
            document.replace("z", version)
            await world.complete(document, client)
    assert await world.told() == []


async def test_closed_files_are_forgotten():
    world = await ready()
    a = world.open("a")
    other = world.open("a", "other")
    await world.told()
    world.files.closed(other)
    assert await world.told() == []  # one client has it open still
    world.files.closed(a)
    assert await world.told() == [A]
    world.files.closed(a)
    assert await world.told() == []


async def test_a_file_that_is_closed_before_it_was_sent_is_not_sent():
    world = await ready()
    encoded = world.tokenizer.encoded
    world.files.closed(world.open("a"))
    assert await world.told() == [A]
    assert world.tokenizer.encoded == encoded


async def test_no_completion_waits_for_a_file():
    world = await ready(first_delay_s=3600)
    a, b = world.open("a"), world.open("b")
    await world.told()
    a.replace("changed", 2)
    world.ask(a)
    running = world.ask(b)
    await asyncio.sleep(0.02)
    before = world.tokenizer.encoded
    await asyncio.sleep(0.02)
    assert world.tokenizer.encoded == before
    assert world.engine.informed == []
    running.cancel()
    world.service.cancel(a.uri)
    assert await world.told() == [(A, "changed")]


async def test_requests_name_their_document():
    world = await ready()
    await world.complete(world.open("a"))
    await world.complete(Document("x = ", uri=""))
    assert [request.text_id for request in world.engine.requests] == [A, ""]


async def test_a_new_worker_is_told_again():
    world = World()
    world.open("a")
    world.open("b")
    assert await world.told() == []  # nobody to tell
    await world.engine.ready()
    assert [name for name, _ in await world.told()] == [A, B]
    await world.engine.unload()
    await world.engine.ready()
    assert [name for name, _ in await world.told()] == [A, B]


async def test_size_and_number_are_bounded():
    world = World()
    world.open("large", "value = 1\n" * MOST_TEXT)
    await world.engine.ready()
    [(_, text)] = await world.told()
    assert text == ("value = 1\n" * MOST_TEXT)[:MOST_TEXT]
    await world.engine.unload()
    for number in range(MOST_FILES + 5):
        world.open(str(number))
    await world.engine.ready()
    told = [name for name, _ in await world.told()]
    assert told == [f"'file:///{number}'" for number in range(5, MOST_FILES + 5)]


async def test_nothing_without_speculation():
    world = await ready(mode="off")
    a, b = world.open("a"), world.open("b")
    await world.complete(a)
    a.replace("y", 2)
    encoded = world.tokenizer.encoded
    await world.complete(b)
    world.files.closed(a)
    assert await world.told() == []
    assert world.tokenizer.encoded - encoded < 10  # the prompt alone


@pytest.mark.parametrize("error", [ModelError("No such tokenizer."), RuntimeError("x = 1")])
async def test_a_tokenizer_that_fails_harms_nothing_and_logs_no_text(error, caplog):
    world = await ready()

    def fail(text, *, space=True):
        raise error

    encode, world.tokenizer.encode = world.tokenizer.encode, fail
    world.open("a")
    assert await world.told() == []
    assert "x = 1" not in caplog.text
    world.tokenizer.encode = encode
    world.open("b")
    assert await world.told() == [(B, "x = 1\n")]
