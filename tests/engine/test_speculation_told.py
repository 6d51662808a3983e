"""What an engine says of speculation: its drafts' state at any time, and sums over requests."""

import os
import signal

import psutil
import pytest

from swiftspec_daemon.engine import toy
from swiftspec_daemon.engine.client import EngineClient
from swiftspec_daemon.engine.config import WorkerConfig
from swiftspec_daemon.engine.messages import Finished, Generate, Tokens
from swiftspec_daemon.settings import SpeculationSettings
from swiftspec_daemon.speculation.counters import SpeculationCounters

from .waiting import until

PROMPT = toy.encode(b"one two three one two three one two ")


@pytest.fixture
async def start():
    """Makes loaded engines on the toy model with these settings for speculation."""
    engines = []

    async def make(model="toy:", **speculation):
        config = WorkerConfig(model=model, speculation=SpeculationSettings(**speculation))
        engines.append(EngineClient(config))
        await engines[-1].ready()
        return engines[-1]

    yield make
    for engine in engines:
        await engine.stop()


async def run(engine, **fields):
    """The Finished of a request, and its Tokens."""
    request = Generate(id=0, prompt=PROMPT, **({"max_tokens": 40} | fields))
    events = [event async for event in engine.generate(request)]
    return events[-1], [event for event in events if isinstance(event, Tokens)]


async def test_a_loaded_draft_is_told_before_the_first_request(start):
    engine = await start(mode="serial", draft="toy:")
    drafts = engine.status.drafts
    assert (drafts.mode, drafts.problem) == ("serial", "")
    [model] = drafts.models
    assert (model.name, model.state, model.own_process) == ("toy", "ready", False)
    assert (model.kernels, model.kv_bytes) == ("python", 8 * 512 * 4)


async def test_totals_are_the_sum_of_the_requests_by_mode(start):
    # A target that takes its time: a draft as slow as its target is not used.
    engine = await start(model="toy:step_ms=5", mode="serial", draft="toy:wrong=0.2")
    assert engine.status.speculated == {}
    ends = [(await run(engine))[0] for _ in range(2)]
    used = [end.usage.speculation for end in ends]
    assert [done.mode for done in used] == ["serial", "serial"]
    assert all(done.counters.rounds > 0 for done in used)
    other = (await run(engine, speculation="ngram"))[0].usage.speculation
    await run(engine, speculation="off")
    await until(engine, lambda _: "ngram" in engine.status.speculated)
    assert engine.status.speculated == {
        "serial": used[0].counters + used[1].counters,
        "ngram": other.counters,
    }


async def test_a_request_that_is_given_up_counts_up_to_there(start):
    engine = await start(mode="serial", draft="toy:")
    request = Generate(id=0, prompt=PROMPT, max_tokens=400)
    stream = engine.generate(request)
    rounds = 0
    async for event in stream:
        assert isinstance(event, Tokens)
        if event.usage.speculation.counters.rounds >= 3:  # told with each step
            rounds = event.usage.speculation.counters.rounds
            break
    await stream.aclose()
    await until(engine, lambda _: engine.status.running == 0)
    assert engine.status.speculated["serial"].rounds >= rounds


async def test_plain_tokens_carry_no_counts(start):
    engine = await start(mode="off")
    finished, tokens = await run(engine, max_tokens=5)
    assert engine.status.drafts is None
    assert finished.usage.speculation is None
    assert [event.usage is None for event in tokens] == [False, True, True, True, True]


async def test_planners_are_told_after_a_request(start):
    engine = await start(mode="serial", draft="toy:")
    finished, _ = await run(engine)
    await until(engine, lambda _: engine.status.drafts.planners)
    planner = engine.status.drafts.planners["serial"]
    assert sum(planner.rounds.values()) == finished.usage.speculation.counters.rounds
    assert {name: source.kind for name, source in planner.sources.items()} == {
        "ngram": "lookup",
        "past": "lookup",
        "draft": "draft",
    }
    assert min(planner.target_ms) == 1
    assert planner.plain_ms > 0


async def test_why_a_draft_is_not_used_is_told(start, tmp_path):
    engine = await start(mode="serial", draft=str(tmp_path / "nowhere"))
    drafts = engine.status.drafts
    assert (drafts.mode, drafts.models) == ("ngram", [])
    assert "toy model cannot use the draft" in drafts.problem
    finished, _ = await run(engine)
    assert finished.usage.speculation.mode == "ngram"


@pytest.mark.skipif(os.name != "posix", reason="drafts in processes of their own need POSIX")
async def test_the_death_of_a_draft_process_is_told_without_any_request(start):
    engine = await start(mode="async", draft="toy:")

    def state():
        [model] = engine.status.drafts.models
        return model.state, model.restarts

    await until(engine, lambda _: state() == ("ready", 0))
    [first] = engine.status.drafts.models
    assert first.own_process
    assert psutil.Process(first.pid).ppid() == engine.status.worker_pid
    seen = []
    engine.on_status(lambda status: seen.append(status.drafts and status.drafts.models[0]))
    os.kill(first.pid, signal.SIGKILL)
    await until(engine, lambda _: state() == ("ready", 1))
    lost = next(model for model in seen if model is not None and model.state == "failed")
    assert "lost" in lost.problem
    assert lost.pid is None
    [second] = engine.status.drafts.models
    assert second.pid not in (None, first.pid)
    finished, _ = await run(engine)
    assert isinstance(finished, Finished)
    assert finished.usage.speculation.mode == "async"


async def test_a_lost_worker_takes_its_drafts_along_but_not_the_totals(start):
    engine = await start(mode="ngram")
    await run(engine)
    await until(engine, lambda _: "ngram" in engine.status.speculated)
    await engine.unload()
    assert engine.status.drafts is None
    assert engine.status.speculated["ngram"] != SpeculationCounters()
