"""Completions over a real websocket: streaming, superseding, cancelling, positions, feedback."""

from __future__ import annotations

import asyncio

import pytest
from completion_fakes import EOS, FIM, FakeTokenizer, answer

from swiftspec_daemon.engine.messages import Priority
from swiftspec_daemon.engine.scripted import Answer
from swiftspec_daemon.errors import EngineError, ModelNotFound


def slow(text, **options):
    """An answer that never ends: the first tokens reach behind the cursor, the rest takes hours."""
    options = {"delay_s": 3600, "batch": 4} | options
    return answer(text, **options)


async def test_a_completion_streams_then_ends(server):
    client = await server.connect()
    await client.open("x = ")
    await client.ask(0, 4)
    messages = await client.answer()
    assert {m["type"] for m in messages[:-1]} == {"delta", "first_line"}
    deltas = [m["text"] for m in messages if m["type"] == "delta"]
    done = messages[-1]
    assert "".join(deltas) == done["text"] == "foo(1)\n    return x"
    assert len(deltas) > 2
    assert done["reason"] == "stop"
    first = [m["type"] for m in messages].index("first_line")
    assert messages[first]["text"] == "foo(1)"
    assert "".join(m["text"] for m in messages[:first]).startswith("foo(1)")
    assert done["timings"]["total_ms"] >= done["timings"]["first_line_ms"] > 0
    assert done["timings"]["new_tokens"] == 20
    assert done["timings"]["prompt_tokens"] == len(server.engine.requests[0].prompt)


async def test_the_engine_is_asked_for_the_text_before_the_cursor(server):
    client = await server.connect()
    await client.open("import os\r\n\r\ndef f():\r\n    x = \r\n")
    await client.complete(3, 8, trigger="invoked", max_tokens=7, temperature=0.5, seed=9)
    [request] = server.engine.requests
    said = FakeTokenizer().decode(request.prompt) + request.required.decode()
    assert said == "import os\n\ndef f():\n    x = "
    assert request.priority is Priority.INVOKED
    assert (request.temperature, request.seed) == (0.5, 9)
    assert request.stop_ids == [EOS]
    assert 7 <= request.max_tokens <= 20


async def test_the_engine_is_asked_for_the_sampling_that_was_asked_for(server):
    client = await server.connect()
    await client.open("x = ")
    wanted = {
        "top_k": 5,
        "top_p": 0.9,
        "min_p": 0.1,
        "repetition_penalty": 1.2,
        "speculation": "ngram",
    }
    await client.complete(0, 4, temperature=0.5, **wanted)
    await client.complete(0, 4)
    first, second = server.engine.requests
    assert {name: getattr(first, name) for name in wanted} == wanted
    plain = {
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "speculation": "auto",
    }
    assert {name: getattr(second, name) for name in wanted} == plain


async def test_text_comes_in_the_files_line_ends(server):
    client = await server.connect()
    await client.open("a\r\nx = ")
    done = await client.complete(1, 4)
    assert done["text"] == "foo(1)\r\n    return x"
    await client.open("a\nx = ", uri="file:///b.py")
    assert (await client.complete(1, 4, uri="file:///b.py"))["text"] == "foo(1)\n    return x"


async def test_lines_and_tokens_are_limited(serve):
    async with serve(answer("a\nb\nc\nd\n")) as server:
        client = await server.connect()
        await client.open("x = ")
        done = await client.complete(0, 4, max_lines=2)
        assert (done["text"], done["reason"]) == ("a\nb", "lines")
        done = await client.complete(0, 4, id=2, max_lines=1)
        assert (done["text"], done["reason"]) == ("a", "lines")
        assert server.engine.requests[-1].stop == [b"\n"]


async def test_max_tokens_ends_with_length(serve):
    async with serve(answer("abcdefgh" * 20)) as server:
        client = await server.connect()
        await client.open("x")
        done = await client.complete(0, 1, max_tokens=5)
        assert done["reason"] == "length"
        # Healing takes some tokens of its own.
        assert 5 <= len(done["text"]) <= 8


async def test_inside_a_line_only_this_line_is_completed(serve):
    async with serve(answer("a, b)\nmore\n")) as server:
        client = await server.connect()
        await client.open("foo()\nbar\n")
        done = await client.complete(0, 4)
        assert done["text"] == "a, b"
        assert server.engine.requests[0].stop == [b"\n"]


async def test_control_tokens_never_show(serve):
    async with serve(lambda r: Answer(ids=[*r.required, *b"ab", FIM, *b"cd"])) as server:
        client = await server.connect()
        await client.open("x")
        done = await client.complete(0, 1)
        assert (done["text"], done["reason"]) == ("ab", "stop")


async def test_nothing_to_suggest_says_why(serve):
    async with serve(answer("\n \n")) as server:
        client = await server.connect()
        await client.open("x = 1")
        done = await client.complete(0, 5)
        assert (done["reason"], done.get("text", "")) == ("empty", "")
        assert done["message"]


# --- superseding and cancelling -----------------------------------------------------------------


async def test_a_newer_completion_supersedes(serve):
    async with serve(slow("abcdef")) as server:
        client = await server.connect()
        await client.open("x = ")
        await client.ask(0, 4, id="old")
        while (await client.receive())["type"] != "delta":
            pass
        await client.ask(0, 4, id="new")
        done = (await client.answer("old"))[-1]
        assert done["reason"] == "superseded"
        assert server.engine.cancelled == [1]
        assert len(server.engine.requests) == 2


async def test_typing_fast_leaves_one_running(serve):
    async with serve(slow("abcdef")) as server:
        client = await server.connect()
        await client.open("")
        for key in range(30):
            await client.change(((0, key), (0, key), "x"), version=key + 2)
            await client.ask(0, key + 1, id=key)
        ended = set()
        while len(ended) < 29:
            message = await client.receive()
            if message["type"] == "done":
                assert message["reason"] == "superseded"
                ended.add(message["id"])
        assert ended == set(range(29))
        assert server.service.running == 1


async def test_documents_do_not_supersede_each_other(serve):
    async with serve(slow("abcdef")) as server:
        one, other = await server.connect(), await server.connect()
        for client in (one, other):
            await client.open("x = ")
            await client.open("x = ", uri="file:///b.py")
        await one.ask(0, 4, id=1)
        await one.ask(0, 4, id=2, uri="file:///b.py")
        await other.ask(0, 4, id=1)  # the same uri as another editor's
        for _ in range(2):
            await one.receive()
        await other.receive()
        assert server.service.running == 3
        assert len({request.sequence for request in server.engine.requests}) == 3


async def test_cancel(serve):
    async with serve(slow("abcdef")) as server:
        client = await server.connect()
        await client.open("x = ")
        await client.ask(0, 4)
        first = await client.receive()
        await client.send(type="cancel", id=1)
        done = (await client.answer())[-1]
        assert done["reason"] == "cancelled"
        assert done["text"] == first["text"]
        assert server.engine.cancelled == [1]
        assert (await client.complete(0, 4, id=1, max_tokens=1))["reason"] == "length"


async def test_cancelling_what_does_not_run_is_no_error(server):
    client = await server.connect()
    await client.send(type="cancel", id=99)
    await client.open("x = ")
    assert (await client.complete(0, 4))["reason"] == "stop"


async def test_closing_or_opening_the_document_cancels(serve):
    async with serve(slow("abcdef")) as server:
        client = await server.connect()
        await client.open("x = ")
        await client.ask(0, 4, id=1)
        await client.send(type="close", uri="file:///a.py")
        assert (await client.answer(1))[-1]["reason"] == "cancelled"
        await client.open("x = ")
        await client.ask(0, 4, id=2)
        await client.open("y = ")
        assert (await client.answer(2))[-1]["reason"] == "cancelled"


async def test_cancelling_while_loading_lets_the_load_go_on(serve):
    loaded = asyncio.Event()
    async with serve(answer("abc"), load_s=0.2) as server:
        server.engine.on_status(lambda s: s.state == "ready" and loaded.set())
        client = await server.connect()
        await client.open("x = ")
        await client.ask(0, 4)
        await client.send(type="cancel", id=1)
        assert (await client.answer())[-1]["reason"] == "cancelled"
        async with asyncio.timeout(30):
            await loaded.wait()
        assert (await client.complete(0, 4, id=2))["text"] == "abc"


async def test_a_used_id_is_refused_while_it_runs(serve):
    async with serve(slow("abcdef")) as server:
        client = await server.connect()
        await client.open("x = ")
        await client.ask(0, 4)
        await client.ask(0, 4)
        while (message := await client.receive())["type"] == "delta":
            pass
        assert (message["type"], message["code"]) == ("error", "invalid_request")
        assert message["id"] == 1


@pytest.mark.parametrize("count", [1, 20])
async def test_a_client_that_vanishes_cancels_its_completions(serve, count):
    async with serve(slow("abcdef")) as server:
        stayed = await server.connect()
        clients = [await server.connect() for _ in range(count)]
        for client in clients:
            await client.open("x = ")
            await client.ask(0, 4)
            await client.receive()
        for client in clients:
            client.connection.transport.abort()
        async with asyncio.timeout(30):
            while len(server.engine.cancelled) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert server.service.running == 0
        await stayed.open("x = ")
        await stayed.ask(0, 4)
        assert (await stayed.receive())["type"] == "delta"


# --- failures -----------------------------------------------------------------------------------


async def test_a_model_that_is_not_there_is_told(serve):
    error = ModelNotFound("There is no model x.", "Fetch it.")
    async with serve(answer("abc"), load_error=error) as server:
        client = await server.connect()
        await client.open("x = ")
        done = await client.complete(0, 4)
        assert done["reason"] == "error"
        assert (done["code"], done["message"], done["hint"]) == (
            "model_not_found", "There is no model x.", "Fetch it.",
        )  # fmt: skip


async def test_a_lost_worker_is_told_and_the_next_completion_runs(serve):
    answers = [Answer(ids=b"", fails=EngineError("The worker is lost.")), Answer(ids=b"x = foo")]
    async with serve(lambda request: answers.pop(0)) as server:
        client = await server.connect()
        await client.open("x = ")
        done = await client.complete(0, 4)
        assert (done["reason"], done["message"]) == ("error", "The worker is lost.")
        assert (await client.complete(0, 4, id=2))["reason"] in ("stop", "empty")


async def test_an_engine_that_refuses_is_told(serve):
    script = answer("", reason="error", code="overloaded", message="Try again later.")
    async with serve(script) as server:
        client = await server.connect()
        await client.open("x = ")
        done = await client.complete(0, 4)
        assert (done["code"], done["message"]) == ("overloaded", "Try again later.")


async def test_a_tokenizer_that_cannot_be_loaded_is_tried_again(serve):
    async with serve(answer("abc")) as server:
        good = server.service._load_tokenizer
        loads = []

        def bad():
            loads.append(1)
            raise ModelNotFound("No tokenizer.")

        server.service._load_tokenizer, server.service._loading = bad, None
        client = await server.connect()
        await client.open("x = ")
        assert (await client.complete(0, 4))["message"] == "No tokenizer."
        server.service._load_tokenizer = good
        assert (await client.complete(0, 4, id=2))["text"] == "abc"


async def test_a_broken_script_does_not_end_the_server(serve):
    async with serve(lambda request: 1 / 0) as server:
        client = await server.connect()
        await client.open("x = ")
        done = await client.complete(0, 4)
        assert (done["reason"], done["code"]) == ("error", "internal")
        assert "ZeroDivision" not in str(done)


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": 0},
        {"max_tokens": -5},
        {"max_lines": 0},
        {"temperature": -1},
        {"top_k": -1},
        {"top_p": 0},
        {"top_p": 1.5},
        {"min_p": 2},
        {"repetition_penalty": 0},
    ],
)
async def test_senseless_options_are_refused(server, fields):
    client = await server.connect()
    await client.open("x = ")
    done = await client.complete(0, 4, **fields)
    assert (done["reason"], done["code"]) == ("error", "invalid_request")


# --- feedback -----------------------------------------------------------------------------------


async def test_feedback_is_counted_once_for_each_completion(server):
    client = await server.connect()
    await client.open("x = ")
    for request in ("a", "b", "c"):
        await client.complete(0, 4, id=request)
    for _ in range(2):
        await client.send(type="shown", id="a")
        await client.send(type="accepted", id="a", characters=3)
        await client.send(type="accepted", id="a")
    await client.send(type="accepted", id="b", characters=3)
    await client.send(type="accepted", id="b", characters=5)
    await client.send(type="rejected", id="c")
    await client.send(type="rejected", id="never asked for")
    await client.send(type="get_status")
    counters = (await client.receive())["counters"]
    assert counters["completions"] == 3
    assert counters["shown"] == 1
    assert counters["accepted"] == 1
    assert counters["partly_accepted"] == 2
    assert counters["rejected"] == 1
    assert counters["new_tokens"] > 0
