"""The three ways, with a scripted daemon and a bridge: all answer alike, all are measured."""

import sys

import pytest

from swiftspec_daemon.bench import daemons, overhead
from swiftspec_daemon.bench.basics import SCRIPTED
from swiftspec_daemon.bench.keystrokes import TYPED
from swiftspec_daemon.bench.language_client import LanguageClient
from swiftspec_daemon.bench.scripted_daemon import SUGGESTION
from swiftspec_daemon.bench.typing_latency import WARM_UP, type_sample
from swiftspec_daemon.client import AsyncClient, Position
from swiftspec_daemon.errors import DaemonNotRunning


@pytest.fixture
def daemon():
    with daemons.running(SCRIPTED) as started:
        yield started


async def test_all_ways_answer_alike(daemon: daemons.Daemon):
    command = [sys.executable, "-P", "-m", "swiftspec_daemon", "lsp", "--no-start"]
    done = []
    async with AsyncClient.connect(url=daemon.url, token=daemon.token) as client:
        bridge = await LanguageClient.start(command, daemon.environment)
        try:
            measured = await overhead.measure(
                client, bridge, blocks=2, progress=lambda: done.append(1)
            )
            await bridge.stop()
        finally:
            await bridge.kill()
    assert len(done) == 2
    for times in (measured.in_process, measured.websocket, measured.language_server):
        assert len(times) == 2 * overhead.BLOCK
        assert all(time > 0 for time in times)


async def test_the_sample_is_typed_and_first_lines_are_timed(daemon: daemons.Daemon):
    done = []
    async with AsyncClient.connect(url=daemon.url, token=daemon.token) as client:
        typed = await type_sample(client, every=3, count=8, progress=lambda: done.append(1))
    assert len(done) == 8
    assert len(typed.first_line_ms) + typed.empty == 8
    assert typed.first_line_ms
    assert len(TYPED) > 3 * (8 + WARM_UP)


async def test_the_scripted_daemon_says_its_suggestion(daemon: daemons.Daemon):
    async with AsyncClient.connect(url=daemon.url, token=daemon.token) as client:
        await client.open("file:///a.py", "x = 1\n")
        completion = await client.complete("file:///a.py", Position(1, 0))
        assert (await completion.result()).text.strip() == SUGGESTION.decode().strip()


def test_a_daemon_that_ends_is_an_error_with_its_last_words():
    ends = ("-c", "raise SystemExit('no luck')")
    with pytest.raises(DaemonNotRunning, match="no luck"), daemons.running(ends):
        pass
