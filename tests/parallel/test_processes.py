"""A worker process from the parent's side: frames, log lines, and every way to its end."""

import logging
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from swiftspec_daemon.parallel.processes import StopTimes, WorkerProcess

QUICK = StopTimes(ask=0.3, terminate=0.3)
posix = pytest.mark.skipif(os.name != "posix", reason="signals")


@pytest.fixture
def start(monkeypatch):
    """Start a stubborn worker in a mode; PYTHONSAFEPATH leaves PYTHONPATH in force."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))

    async def start(mode):
        return await WorkerProcess.start("stubborn_worker", [mode], name="stubborn")

    return start


async def test_frames_both_ways_and_a_polite_end(start):
    worker = await start("echo")
    assert await worker.receive() == b"hello"
    body = os.urandom(500_000)
    worker.send(len(body).to_bytes(4, "little") + body)
    assert await worker.receive() == body
    assert worker.returncode is None
    assert await worker.stop(times=StopTimes(ask=30)) == 0
    assert await worker.receive() is None


@posix
@pytest.mark.parametrize(("mode", "status"), [("ignore", -signal.SIGTERM), ("deaf", -9)])
async def test_the_ladder_ends_every_worker(start, mode, status):
    worker = await start(mode)
    assert await worker.receive() == b"hello"
    assert await worker.stop(times=QUICK) == status
    assert not psutil.pid_exists(worker.pid)


async def test_stray_output_goes_to_the_log(start, caplog):
    caplog.set_level(logging.INFO)
    worker = await start("chatty")
    assert await worker.receive() == b"hello"
    assert await worker.stop(times=StopTimes(ask=30)) == 0
    assert await worker.receive() is None
    assert worker.last_log_line == "last words"
    assert "stubborn: a stray print" in caplog.text
    assert "stubborn: a stray write" in caplog.text
    assert max(map(len, caplog.messages)) < 600


async def test_a_crash_is_seen_and_stop_is_harmless_after_it(start):
    worker = await start("crash")
    assert await worker.receive() == b"hello"
    assert await worker.receive() is None
    assert await worker.stop() == 3
    worker.send(b"into the void")
    worker.kill()
    assert await worker.stop() == 3


async def test_the_worker_has_what_keeps_it_safe(start, monkeypatch):
    monkeypatch.chdir(Path(__file__).parent)
    worker = await start("echo")
    try:
        process = psutil.Process(worker.pid)
        assert await worker.receive() == b"hello"
        environment = process.environ()
        assert environment["PYTHONSAFEPATH"] == "1"
        assert environment["OMP_WAIT_POLICY"] == "PASSIVE"
        assert process.exe() == psutil.Process().exe()
        if os.name == "posix":
            assert os.getsid(worker.pid) == worker.pid  # Ctrl-C in our terminal is not for it
    finally:
        await worker.stop()


async def test_an_interpreter_that_is_not_there(start, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(OSError, match="nowhere"):
        await start("echo")
