"""The whole engine on the default model: no history changes a text, to the bit."""

import contextlib

import pytest

from swiftspec_daemon.engine.client import EngineClient
from swiftspec_daemon.engine.config import WorkerConfig
from swiftspec_daemon.engine.loading import open_model
from swiftspec_daemon.engine.messages import Finished, Generate, Priority, Tokens
from swiftspec_daemon.kernels.native.library import LibraryUnavailable, load
from swiftspec_daemon.models import catalog, no_progress
from swiftspec_daemon.speculation.sampling import SamplingParameters, pick

pytestmark = pytest.mark.model

CODE = '''"""Shapes and their areas."""

import math


class Circle:
    """A circle around the origin."""

    def __init__(self, radius: float) -> None:
        self.radius = radius

    def area(self) -> float:
        return math.pi * self.radius ** 2


class Square:
    def __init__(self, side: float) -> None:
'''
CONFIG = WorkerConfig(context=1024, threads=1, kv_slots=2)


@pytest.fixture(autouse=True)
def compiled_kernels():
    try:
        load()
    except LibraryUnavailable as error:
        pytest.skip(f"a text takes minutes without the compiled kernels: {error}")


@pytest.fixture
def model(home, share_models):
    share_models(home)
    return catalog.resolve("default")


@pytest.fixture
async def engine(model):
    client = EngineClient(CONFIG)
    await client.ready()
    yield client
    await client.stop()


def plain(prompt, count, temperature):
    """The next `count` tokens by the backend alone, a token at a time from an empty cache."""
    backend = open_model(CONFIG, no_progress).backend
    cache = backend.new_cache(CONFIG.context)
    sampling = SamplingParameters(temperature=temperature, seed=7)
    tokens = list(prompt)
    for token in prompt[:-1]:
        backend.append(cache, [token], logits=False)
    for _ in range(count):
        logits = backend.append(cache, tokens[-1:], logits=True)
        tokens.append(pick(logits, len(tokens), sampling))
    return tokens[len(prompt) :]


async def collect(engine, request):
    tokens = []
    async for event in engine.generate(request):
        if isinstance(event, Tokens):
            tokens += event.ids
    assert isinstance(event, Finished)
    return tokens, event


@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_no_history_changes_a_text(engine, model, temperature):
    tokenizer = catalog.open_tokenizer(model)
    prompt = tokenizer.encode(CODE)
    wanted = Generate(
        id=0, prompt=prompt, max_tokens=24, sequence="a", temperature=temperature, seed=7
    )
    expected = plain(prompt, 24, temperature)
    fresh, finished = await collect(engine, wanted)
    assert fresh == expected[: len(fresh)]
    assert finished.usage.cached_tokens == 0
    assert finished.usage.new_tokens == len(fresh) > 10

    # All of the prompt but its last token is there; then an edit and a cancel in the middle.
    again, finished = await collect(engine, wanted)
    assert again == fresh
    assert finished.usage.cached_tokens == len(prompt) - 1
    edited = tokenizer.encode(CODE.replace("origin", "point (0, 0)"))
    cancelled = Generate(id=0, prompt=edited, max_tokens=200, sequence="a", temperature=1.0)
    async with contextlib.aclosing(engine.generate(cancelled)) as events:
        said = (await anext(events)).ids
    _, finished = await collect(
        engine, Generate(id=0, prompt=[*edited, *said, 5], max_tokens=1, sequence="a")
    )
    assert finished.usage.cached_tokens >= len(edited)
    after, finished = await collect(engine, wanted)
    assert after == fresh
    assert 0 < finished.usage.cached_tokens < len(prompt) - 1

    # Suspended in the middle by requests that take the other slot, then its own.
    events = engine.generate(
        Generate(
            id=0, prompt=prompt, max_tokens=24, priority=Priority.RAW, temperature=temperature,
            seed=7,
        )
    )  # fmt: skip
    suspended = [*(await anext(events)).ids]
    for sequence in ("b", "c"):
        other = Generate(id=0, prompt=edited[5:60], max_tokens=3, sequence=sequence)
        await collect(engine, other)
    async for event in events:
        if isinstance(event, Tokens):
            suspended += event.ids
    assert suspended == fresh


async def test_required_bytes_and_stop_strings_in_real_text(engine, model):
    tokenizer = catalog.open_tokenizer(model)
    prompt = tokenizer.encode(CODE.rstrip("\n"))
    request = Generate(
        id=0, prompt=prompt, max_tokens=40, required=b"\n        self.si", stop=[b"\n"]
    )
    tokens, finished = await collect(engine, request)
    text = b"".join(tokenizer.token_bytes(token) for token in tokens)
    assert text.startswith(b"\n        self.side = side")
    assert finished.reason == "stop"
    last = tokenizer.token_bytes(tokens[-1])
    assert b"\n" in last
    assert b"\n" not in text[len(request.required) : -len(last)]


async def test_what_ready_says(engine):
    ready = await engine.ready()
    assert (ready.model, ready.backend, ready.vocab) == ("default", "native", 49152)
    assert (ready.context, ready.slots) == (1024, 2)
    assert ready.kernels
    assert 100e6 < ready.weight_bytes < 300e6
    assert ready.kv_bytes >= 2 * 1024 * 30 * 2 * 192  # slots, positions, layers, K and V, width
