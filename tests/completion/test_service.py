"""The service without a server: limits, context, superseding, timings."""

from __future__ import annotations

import asyncio
import threading

import msgspec
import pytest
from completion_fakes import FakeTokenizer, answer

from swiftspec_daemon.completion.allowance import Allowance
from swiftspec_daemon.completion.events import (
    Completed,
    CompletionOptions,
    FirstLineKnown,
    Limits,
    TextAdded,
)
from swiftspec_daemon.completion.service import CompletionService
from swiftspec_daemon.documents import Document
from swiftspec_daemon.engine.messages import Priority
from swiftspec_daemon.engine.scripted import SCRIPTED_READY, Answer, ScriptedEngine
from swiftspec_daemon.errors import UsageError
from swiftspec_daemon.settings import CompletionSettings, Settings


def make(script, *, tokenizer=None, settings=None, **engine_options):
    engine = ScriptedEngine(script, **engine_options)
    tokenizer = tokenizer or FakeTokenizer()
    return CompletionService(engine, lambda: tokenizer, settings or Settings()), engine


def ask(service, text="x = ", *, language="", sequence="s", **options):
    document = Document(text, language=language)
    return service.complete(document, len(text), CompletionOptions(**options), sequence=sequence)


async def events_of(completion):
    async with asyncio.timeout(30):
        return [event async for event in completion]


async def test_events():
    service, _ = make(answer("a\nb"))
    *events, last = await events_of(ask(service))
    assert [e.text for e in events if isinstance(e, TextAdded)] == ["a", "\nb"]
    assert [e.text for e in events if isinstance(e, FirstLineKnown)] == ["a"]
    assert isinstance(last, Completed)
    assert (last.reason, last.text) == ("stop", "a\nb")
    assert service.running == 0


async def test_iteration_ends_after_the_last_event():
    service, _ = make(answer("a"))
    completion = ask(service)
    await events_of(completion)
    assert await events_of(completion) == []


async def test_a_cancel_at_once_still_ends_with_an_event():
    service, engine = make(answer("a"))
    completion = ask(service)
    completion.cancel()
    [last] = await events_of(completion)
    assert last.reason == "cancelled"
    completion.cancel()
    assert engine.requests == []
    assert service.statistics.counters().cancelled == 1


async def test_superseding_is_by_sequence():
    service, engine = make(answer("abcdef", delay_s=3600, batch=4))
    first, other = ask(service, sequence="a"), ask(service, sequence="b")
    second = ask(service, sequence="a")
    assert (await events_of(first))[-1].reason == "superseded"
    assert service.running == 2
    for completion in (other, second):
        completion.cancel()
        assert (await events_of(completion))[-1].reason == "cancelled"
    await service.idle()
    assert service.running == 0
    assert service.statistics.counters().completions == 3
    assert engine.status.running == 0


async def test_the_text_is_the_one_at_the_time_of_asking():
    service, engine = make(answer("a"))
    document = Document("old = ")
    completion = service.complete(document, 6, CompletionOptions(), sequence="s")
    document.replace("new text", 1)
    await events_of(completion)
    assert FakeTokenizer().decode(engine.requests[0].prompt).startswith("old")


@pytest.mark.parametrize("context", [64, 100, 1000])
async def test_prompt_and_new_tokens_fit_the_context(context):
    ready = msgspec.structs.replace(SCRIPTED_READY, context=context)
    service, engine = make(answer("a"), ready_message=ready)
    for text in ("value = foo\n" * 1000, "foo(" + " " * 50, "x = 1"):
        await events_of(ask(service, text, max_tokens=4000))
    for request in engine.requests:
        assert len(request.prompt) + request.max_tokens <= context
        assert request.max_tokens >= context // 2


async def test_the_prompt_is_bounded_by_the_setting():
    settings = Settings(completion=CompletionSettings(prompt_tokens=50))
    service, engine = make(answer("a"), settings=settings)
    await events_of(ask(service, "x = 1\n" * 1000))
    assert 20 <= len(engine.requests[0].prompt) <= 50


@pytest.mark.parametrize(
    ("language", "stop"), [("python", [b"\n```"]), ("markdown", []), ("", [b"\n```"])]
)
async def test_fences_are_text_in_prose(language, stop):
    service, engine = make(answer("a\n```\nb"))
    last = (await events_of(ask(service, language=language)))[-1]
    assert engine.requests[0].stop == stop
    assert last.text == ("a" if stop else "a\n```\nb")


async def test_long_text_is_encoded_beside_the_event_loop():
    threads = []

    class Watched(FakeTokenizer):
        def encode(self, text, *, space=True):
            threads.append((len(text), threading.current_thread() is threading.main_thread()))
            return super().encode(text, space=space)

    settings = Settings(completion=CompletionSettings(prompt_tokens=10_000))
    service, _ = make(
        answer("a"),
        tokenizer=Watched(),
        settings=settings,
        ready_message=msgspec.structs.replace(SCRIPTED_READY, context=20_000),
    )
    await service.prepare()
    text = "value = foo(1)\n" * 600
    await events_of(ask(service, text))
    assert any(length > 4096 for length, _ in threads)
    assert not any(length > 4096 and in_main for length, in_main in threads)
    threads.clear()
    await events_of(ask(service, text + "y"))
    assert all(in_main and length < 4096 for length, in_main in threads)


async def test_usage_of_a_text_that_we_end_is_known():
    service, engine = make(answer("a\nb\nc\n", delay_s=0.001))
    last = (await events_of(ask(service, max_lines=2)))[-1]
    assert last.reason == "lines"
    assert engine.cancelled == [1]
    timings = last.timings
    assert timings.prompt_tokens == len(engine.requests[0].prompt)
    assert timings.new_tokens == 4
    assert 0 < timings.first_token_ms <= timings.first_line_ms <= timings.total_ms
    assert timings.decode_ms > 0


async def test_an_engine_that_drops_a_request_is_an_error():
    service, _ = make(lambda request: Answer(ids=[], reason="dropped"))
    last = (await events_of(ask(service)))[-1]
    assert (last.reason, last.code) == ("error", "engine_error")


@pytest.mark.parametrize("text", ["x = ", "x =", "value", "x = 1\n    ", "x = 1"])
@pytest.mark.parametrize("batch", [1, 3, 100])
@pytest.mark.parametrize("limit", [1, 3, 5])
async def test_max_tokens_is_what_the_user_sees(text, batch, limit):
    """Tokens by which healing writes again what stands there take nothing from it."""

    def script(request):
        healed = FakeTokenizer().encode(request.required.decode())
        return Answer(ids=[*healed, *b"abcdefgh"], batch=batch)

    service, engine = make(script)
    last = (await events_of(ask(service, text, max_tokens=limit)))[-1]
    assert (last.reason, last.text) == ("length", "abcdefgh"[:limit])
    assert last.timings.new_tokens == limit
    assert service.statistics.counters().new_tokens == limit
    await service.idle()
    assert engine.status.running == 0


def test_a_token_counts_once_it_writes_beyond_what_is_required():
    tokens = FakeTokenizer()
    by_text = {tokens.token_bytes(token): token for token in range(259, 275)}
    healed = [by_text[b" ="], by_text[b"return"]]
    allowance = Allowance(tokens, required=len(b" =ret"), limit=2)
    assert allowance.take(healed) == (healed, 1)  # the second one ends beyond them
    assert allowance.take([65, 66, 67]) == ([65], 1)
    assert allowance.used_up
    assert allowance.take([68]) == ([], 0)


async def test_waiting_for_the_model_is_told_apart():
    service, _ = make(answer("a\nb"), load_s=0.2)
    cold = (await events_of(ask(service)))[-1].timings
    assert 200 <= cold.loading_ms <= cold.first_token_ms <= cold.total_ms
    warm = (await events_of(ask(service)))[-1].timings
    assert warm.loading_ms < 200


async def test_times_are_told_to_the_microsecond():
    service, _ = make(answer("a\nb", delay_s=0.001))
    timings = (await events_of(ask(service)))[-1].timings
    times = [getattr(timings, n) for n in timings.__struct_fields__ if n.endswith("_ms")]
    assert len(times) >= 7
    assert times == [round(time, 3) for time in times]


def test_options_and_settings_are_put_together():
    settings = CompletionSettings(max_tokens=11, max_lines=3, temperature=0.5, seed=7)
    limits = Limits.of(CompletionOptions(), settings)
    assert (limits.max_tokens, limits.max_lines, limits.temperature, limits.seed) == (11, 3, 0.5, 7)
    assert limits.priority is Priority.AUTOMATIC
    options = CompletionOptions("invoked", max_tokens=10**9, max_lines=10**9, temperature=0, seed=0)
    limits = Limits.of(options, settings)
    assert (limits.max_tokens, limits.max_lines) == (4096, 1000)
    assert (limits.temperature, limits.seed, limits.priority) == (0, 0, Priority.INVOKED)


@pytest.mark.parametrize(
    "options", [{"max_tokens": 0}, {"max_lines": -1}, {"temperature": float("nan")}]
)
async def test_senseless_options_leave_the_running_completion_alone(options):
    service, _ = make(answer("abcdef", delay_s=3600, batch=4))
    running = ask(service)
    with pytest.raises(UsageError):
        ask(service, **options)
    assert service.running == 1
    running.cancel()
    assert (await events_of(running))[-1].reason == "cancelled"


@pytest.mark.parametrize(
    ("before", "after", "automatic", "invoked"),
    [
        ("foo(", ")", True, True),
        ("foo(", "):  ", True, True),
        ("if (x", ") {", True, True),
        ("x = ", "", True, True),
        ("x = ", " + 1", False, True),
        ("", "@dataclass", False, True),
        ("lo", "ad(self):", False, False),
        ("éa", "ß", False, False),
    ],
)
@pytest.mark.parametrize("trigger", ["automatic", "invoked"])
async def test_code_to_the_right_of_the_cursor(before, after, automatic, invoked, trigger):
    service, engine = make(answer("a"))
    document = Document("pass\n" + before + after)
    options = CompletionOptions(trigger=trigger)
    completion = service.complete(document, 5 + len(before), options, sequence="s")
    last = (await events_of(completion))[-1]
    asked = {"automatic": automatic, "invoked": invoked}[trigger]
    assert len(engine.requests) == asked
    assert (last.reason == "empty" and "right of the cursor" in last.message) != asked
