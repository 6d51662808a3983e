"""Whatever a client sends is answered, and the server and the connection go on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time

import pytest
import websockets
from completion_fakes import FakeTokenizer, answer

from swiftspec_daemon.protocol.messages import Delta
from swiftspec_daemon.server.connection import Connection
from swiftspec_daemon.server.hub import Hub
from swiftspec_daemon.server.outbox import Outbox
from swiftspec_daemon.server.shelf import Shelf
from swiftspec_daemon.server.websocket import WebSocketEndpoint
from swiftspec_daemon.settings import Settings

LIMIT = 4 * 1024 * 1024


async def still_works(client, id="still"):
    await client.open("x = ", uri="file:///still.py")
    done = await client.complete(0, 4, uri="file:///still.py", id=id)
    assert done["text"] == "foo(1)\n    return x"


def prompt_of(server):
    request = server.engine.requests[-1]
    return FakeTokenizer().decode(request.prompt) + request.required.decode("utf-8", "replace")


# --- messages -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("", "protocol_error"),
        ("nonsense", "protocol_error"),
        ("{", "protocol_error"),
        ("[]", "protocol_error"),
        ("null", "protocol_error"),
        ("{}", "protocol_error"),
        ('{"type":3}', "protocol_error"),
        ('{"type":"explode"}', "unknown_message"),
        ('{"type":"\\ud800","id":3}', "protocol_error"),
        ('{"type":"welcome","protocol":1}', "unknown_message"),
        ('{"type":"open","uri":"u"}', "protocol_error"),
        ('{"type":"open","uri":7,"text":""}', "protocol_error"),
        ('{"type":"cancel","id":{}}', "protocol_error"),
        ('{"type":"change","uri":"u","version":"1"}', "protocol_error"),
        ('{"type":"hello"}', "protocol_error"),
        ('{"type":"open","uri":"u","text":"\\ud83d"', "protocol_error"),
        ('{"type":"shown","x":' + "[" * 50_000 + "]" * 50_000 + "}", "protocol_error"),
        ("1" * 100_000, "protocol_error"),
        (b'{"type":"cancel","id":1}', "protocol_error"),
        (b"\x00\xff", "protocol_error"),
    ],
)
async def test_what_is_no_message_is_answered_by_an_error(server, frame, code):
    client = await server.connect()
    await client.connection.send(frame)
    error = await client.receive()
    assert (error["type"], error["code"]) == ("error", code)
    assert error["message"].endswith(".")
    await still_works(client)


async def test_an_error_names_the_request_it_belongs_to(server):
    client = await server.connect()
    await client.send(type="complete", id="mine", uri="u")
    assert (await client.receive())["id"] == "mine"
    await client.send(type="explode", id=5)
    assert (await client.receive())["id"] == 5


async def test_unknown_fields_are_ignored(server):
    client = await server.connect()
    await client.send(type="open", uri="u", text="x = ", version=1, colour={"deep": [1]})
    done = await client.complete(0, 4, uri="u", mood="good")
    assert done["reason"] == "stop"


async def test_text_that_is_not_utf8_closes_this_connection_alone(server):
    client, other = await server.connect(), await server.connect()
    await client.connection.send(b"\xff\xfe", text=True)
    await client.connection.wait_closed()
    assert client.connection.close_code == 1007
    await still_works(other)


async def test_a_huge_message_closes_this_connection_alone(server):
    client, other = await server.connect(), await server.connect()
    with contextlib.suppress(websockets.ConnectionClosed):  # before all of it is sent
        await client.open("x" * LIMIT)
    await client.connection.wait_closed()
    assert client.connection.close_code == 1009
    await still_works(other)


async def test_the_limit_is_kept_whatever_the_server_does(server):
    """Servers other than ours may let larger messages through."""
    received = asyncio.Queue()
    received.put_nowait({"type": "websocket.connect"})
    received.put_nowait({"type": "websocket.receive", "text": " " * (LIMIT + 1)})
    sent = []

    async def send(message):
        sent.append(message)

    hub = Hub(server.service, server.engine, Settings())
    endpoint = WebSocketEndpoint(hub)
    endpoint._largest = LIMIT
    await endpoint({"type": "websocket", "headers": []}, received.get, send)
    assert [m["type"] for m in sent] == ["websocket.accept", "websocket.close"]
    assert sent[-1]["code"] == 1009


# --- hello --------------------------------------------------------------------------------------


async def test_the_first_message_must_be_hello(server):
    client = await server.connect(hello=False)
    await client.open("x = ")
    error = await client.receive()
    assert (error["code"], "hello" in error["message"]) == ("protocol_error", True)
    await client.send(type="hello")
    assert (await client.receive())["type"] == "welcome"
    await still_works(client)


async def test_a_second_hello_is_refused(server):
    client = await server.connect(encoding="utf-8")
    await client.send(type="hello", position_encodings=["utf-32"])
    assert (await client.receive())["type"] == "error"
    await still_works(client)


async def test_an_older_protocol_is_refused_and_a_newer_client_is_served(server):
    client = await server.connect(hello=False)
    await client.send(type="hello", protocol=0)
    assert (await client.receive())["type"] == "error"
    await client.send(type="hello", protocol=7)
    assert (await client.receive())["protocol"] == 1


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (None, "utf-16"),
        ([], "utf-16"),
        (["utf-7"], "utf-16"),
        (["utf-7", "utf-8"], "utf-8"),
        (["utf-32", "utf-8"], "utf-32"),
    ],
)
async def test_position_encodings_are_negotiated(server, offered, chosen):
    client = await server.connect(hello=False)
    fields = {} if offered is None else {"position_encodings": offered}
    await client.send(type="hello", **fields)
    welcome = await client.receive()
    assert welcome["position_encoding"] == chosen
    assert "streaming" in welcome["capabilities"]


# --- documents ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("encoding", "character"), [("utf-8", 17), ("utf-16", 11), ("utf-32", 10)])
async def test_positions_count_in_the_negotiated_units(server, encoding, character):
    client = await server.connect(encoding=encoding)
    await client.open('x = "你好😀", y')
    await client.complete(0, character, trigger="invoked")
    assert prompt_of(server) == 'x = "你好😀",'
    await client.change(((0, 5), (0, character), "z"), version=2)
    await client.complete(0, 6, id=2, trigger="invoked")
    assert prompt_of(server) == 'x = "z'


async def test_a_document_whose_name_has_half_a_character_is_completed(server):
    client = await server.connect()
    for uri in ("file:///\ud800.py", "file:///\\ud800.py"):
        await client.open("x = ", uri=uri)
        assert (await client.complete(0, 4, uri=uri, id=uri))["reason"] == "stop"
    first, second = (request.sequence for request in server.engine.requests)
    assert first != second


@pytest.mark.parametrize("seed", [2**63, -(2**63) - 1, 2**70, -(2**70)])
async def test_seeds_beyond_64_bits_are_refused(server, seed):
    client = await server.connect()
    await client.open("x = ")
    done = await client.complete(0, 4, seed=seed)
    assert (done["reason"], done["code"]) == ("error", "invalid_request")
    assert "64 bits" in done["message"]
    await still_works(client)


async def test_a_clients_name_cannot_write_into_the_log(server, caplog):
    with caplog.at_level(logging.INFO):
        client = await server.connect(hello=False)
        await client.send(type="hello", client="a\nERROR forged \x1b[31m \ud800")
        await client.receive()
    [line] = [message for message in caplog.messages if "forged" in message]
    assert line.isascii()
    assert line.isprintable()


async def test_lone_surrogates_survive(server):
    client = await server.connect()
    await client.open("a = '\ud83d'\nb = ")
    await client.change(((0, 0), (0, 1), "\udc00"), version=2)
    assert (await client.complete(1, 4))["reason"] == "stop"
    assert prompt_of(server) == "\ufffd = '\ufffd'\nb = "
    await client.change(((0, 0), (1, 4), "x = '\ude00"), version=3)
    assert (await client.complete(0, 6, id=2))["reason"] == "stop"
    uri = "file:///\ud83d.py"
    await client.complete(0, 0, uri=uri, id=3)


async def test_an_empty_document(server):
    client = await server.connect()
    await client.open("")
    done = await client.complete(0, 0)
    assert (done["reason"], done.get("text", "")) == ("empty", "")
    assert "no text before the cursor" in done["message"]
    await client.open("\n\n", version=2)
    assert (await client.complete(1, 0, id=2))["reason"] == "empty"
    await still_works(client)


async def test_the_end_of_a_document_without_a_line_end(server):
    client = await server.connect()
    await client.open("def f():\n    x = foo")
    assert (await client.complete(1, 11))["text"] == "foo(1)\n    return x"


@pytest.mark.parametrize(
    "position", [(10**6, 0), (2, 0), (-1, 0), (0, -1), (2**40, 2**40), (-(2**40), 5)]
)
async def test_positions_outside_the_document_are_told(server, position):
    client = await server.connect()
    await client.open("one\ntwo")
    done = await client.complete(*position)
    assert (done["reason"], done["code"]) == ("error", "document_error")
    await still_works(client)


async def test_a_character_beyond_its_line_means_the_lines_end(server):
    client = await server.connect()
    await client.open("one\ntwo")
    await client.complete(0, 10**6)
    assert prompt_of(server) == "one"


async def test_crlf_never_becomes_a_lone_carriage_return(serve):
    async with serve(answer("a\nb\r\nc")) as server:
        client = await server.connect()
        await client.open("one\r\ntwo = ")
        await client.ask(1, 6)
        messages = await client.answer()
        deltas = "".join(m["text"] for m in messages if m["type"] == "delta")
        assert deltas == messages[-1]["text"] == "a\r\nb\r\nc"


async def test_a_document_that_is_not_open(server):
    client = await server.connect()
    done = await client.complete(0, 0, uri="file:///never.py")
    assert (done["reason"], done["code"]) == ("error", "document_error")
    assert "open" in done["hint"]
    await client.change(((0, 0), (0, 0), "x"), version=2, uri="file:///never.py")
    error = await client.receive()
    assert (error["code"], error["uri"]) == ("document_error", "file:///never.py")
    await client.send(type="close", uri="file:///never.py")
    await still_works(client)


@pytest.mark.parametrize("version", [5, 4, -1])
async def test_a_version_that_does_not_grow_asks_for_the_document_anew(server, version):
    client = await server.connect()
    await client.open("one", version=5)
    await client.change(((0, 0), (0, 0), "x"), version=version)
    error = await client.receive()
    assert (error["code"], error["uri"]) == ("document_error", "file:///a.py")
    assert "open" in error["hint"]
    # Nothing is completed on a text that may be wrong, and one request to open is enough.
    await client.change(((0, 0), (0, 0), "y"), version=99)
    done = await client.complete(0, 1)
    assert (done["reason"], done["code"]) == ("error", "document_error")
    await client.open("x = ", version=6)
    assert (await client.complete(0, 4, id=2))["reason"] == "stop"


async def test_versions_may_jump(server):
    client = await server.connect()
    await client.open("one", version=1)
    await client.change(((0, 0), (0, 3), "x = "), version=100)
    assert (await client.complete(0, 4, version=100))["reason"] == "stop"


async def test_a_completion_of_another_version_is_refused(server):
    client = await server.connect()
    await client.open("x = ", version=3)
    for id, version in enumerate((2, 4)):
        done = await client.complete(0, 4, id=id, version=version)
        assert (done["reason"], done["code"]) == ("error", "document_error")
    assert (await client.complete(0, 4, id=9, version=3))["reason"] == "stop"


async def test_a_negative_edit_asks_for_the_document_anew(server):
    client = await server.connect()
    await client.open("x = ")
    await client.change(((0, 0), (0, 1), "y"), ((0, -1), (0, 0), "z"), version=2)
    assert (await client.receive())["code"] == "document_error"
    await still_works(client)


async def test_the_whole_text_at_once(server):
    client = await server.connect()
    await client.open("one")
    await client.send(type="change", uri="file:///a.py", version=2, text="x = ")
    assert (await client.complete(0, 4, version=2))["reason"] == "stop"
    assert prompt_of(server) == "x = "


@pytest.mark.parametrize(
    ("text", "position", "seen"),
    [
        ("x " * 1_000_000, (0, 1_500_001), "x " * 50 + "x"),
        ("var a='é';" * 200_000, (0, 1_500_003), "var a='é';" * 10 + "var"),
        ("    value = 1\n" * 100_000, (99_999, 13), "    value = 1\n    value = 1"),
    ],
    ids=["2 MB line", "2 MB line, not ASCII", "100,000 lines"],
)
async def test_large_documents_are_typed_into_and_completed(server, text, position, seen):
    client = await server.connect()
    await client.open(text)
    await client.complete(*position)
    line, character = position
    began = time.process_time()
    for key in range(20):
        place = (line, character + key)
        await client.change((place, place, "y"), version=key + 2)
        await client.complete(line, character + key + 1, id=key, trigger="invoked")
    # Both ends of the connection, the completion included; generous for slow machines.
    assert (time.process_time() - began) / 20 < 0.1
    assert prompt_of(server).endswith(seen + "y" * 20)
    assert len(prompt_of(server)) <= 2 * 1536


async def test_many_documents_are_bounded(server, monkeypatch):
    monkeypatch.setattr(Shelf.__init__, "__defaults__", (3, 100))
    client = await server.connect()
    for number in range(3):
        await client.open("x", uri=f"u{number}")
    await client.open("x", uri="u3")
    error = await client.receive()
    assert (error["code"], error["uri"]) == ("document_error", "u3")
    await client.open("y" * 200, uri="u0")
    assert "too large" in (await client.receive())["message"]


# --- slow and broken clients --------------------------------------------------------------------


async def test_a_client_that_does_not_read_is_given_up(server):
    hub = Hub(server.service, server.engine, Settings())
    blocked = asyncio.Event()
    received = asyncio.Queue()
    closed = []

    async def send(message):
        if message["type"] == "websocket.send":
            blocked.set()
            await asyncio.Event().wait()
        closed.append(message)

    received.put_nowait({"type": "websocket.connect"})
    hello = json.dumps({"type": "hello"})
    received.put_nowait({"type": "websocket.receive", "text": hello})
    for _ in range(2000):
        received.put_nowait({"type": "websocket.receive", "text": hello})
    async with asyncio.timeout(30):
        await WebSocketEndpoint(hub)({"type": "websocket", "headers": []}, received.get, send)
    assert blocked.is_set()
    assert closed[-1]["type"] == "websocket.close"
    assert closed[-1]["code"] == 1013
    assert hub.status().connections == 0


async def test_an_overflow_cancels_what_runs(serve):
    async with serve(answer("abcdef", delay_s=3600, batch=4)) as server:
        hub = Hub(server.service, server.engine, Settings())

        async def send(_):
            raise AssertionError("nothing is sent here")

        connection = Connection(hub, Outbox(send))
        for message in (
            {"type": "hello"},
            {"type": "open", "uri": "u", "text": "x = "},
            {"type": "complete", "id": 1, "uri": "u", "position": {"line": 0, "character": 4}},
        ):
            connection.receive(json.dumps(message))
        async with asyncio.timeout(30):
            while not server.engine.requests:  # noqa: ASYNC110
                await asyncio.sleep(0)
            connection.close()
            while server.service.running:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert server.engine.cancelled == [1]


async def test_the_outbox_keeps_order_and_bounds():
    sent = []

    async def send(text):
        sent.append(text)

    outbox = Outbox(send, most_waiting=3)
    for number in range(3):
        outbox.put(Delta(id=number, text=""))
    assert not outbox.overflowed.is_set()
    outbox.put(Delta(id=3, text=""))
    assert outbox.overflowed.is_set()
    task = asyncio.create_task(outbox.run())
    while len(sent) < 3:  # noqa: ASYNC110
        await asyncio.sleep(0)
    task.cancel()
    assert [json.loads(text)["id"] for text in sent] == [0, 1, 2]
