"""The worker process by itself, over its pipes: what it answers, and that it never stays behind."""

import os
import signal
import subprocess
import sys
import time

import msgspec
import psutil
import pytest

from swiftspec_daemon.engine.config import WorkerConfig
from swiftspec_daemon.engine.messages import (
    Cancel,
    Event,
    Failed,
    Finished,
    Generate,
    Loading,
    Ready,
    Remember,
    Tokens,
    Unload,
    decode_event,
    encode,
)
from swiftspec_daemon.parallel.frames import read_frames
from swiftspec_daemon.settings import SpeculationSettings

LIMIT_S = 1.0
"""A worker must be gone so soon after its parent, however that ended."""


class Worker:
    """A worker process that this test is the parent of."""

    def __init__(self, model, path="", **config):
        arguments = [
            str(os.getpid()),
            msgspec.json.encode(WorkerConfig(model=model, **config)).decode(),
        ]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "swiftspec_daemon.engine.worker", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path},
            bufsize=0,
        )
        self._bodies = read_frames(self.process.stdout.fileno())

    def send(self, *commands):
        for command in commands:
            self.write(encode(command))

    def write(self, data):
        self.process.stdin.write(data)

    def events(self):
        for body in self._bodies:
            yield decode_event(body)

    def until(self, kind) -> Event:
        return next(event for event in self.events() if isinstance(event, kind))

    def seconds_to_end(self):
        started = time.monotonic()
        self.process.wait(timeout=30)
        return time.monotonic() - started


@pytest.fixture
def worker():
    workers = []

    def start(model, **config):
        workers.append(Worker(model, **config))
        return workers[-1]

    yield start
    for started in workers:
        started.process.kill()
        started.process.wait()
        started.process.stdin.close()
        started.process.stdout.close()


def test_a_session(worker):
    process = worker("toy:load_ms=200", kv_slots=3)
    events = process.events()
    first = next(events)
    assert isinstance(first, Loading)
    ready = next(event for event in events if isinstance(event, Ready))
    assert (ready.model, ready.backend, ready.slots, ready.context) == ("toy", "toy", 3, 512)
    assert ready.load_ms >= 200
    assert ready.kv_bytes == 8 * 512 * 3
    process.send(Generate(id=1, prompt=[5, 6, 7], max_tokens=3))
    said = [next(events) for _ in range(4)]
    assert [type(event) for event in said] == [Tokens, Tokens, Tokens, Finished]
    process.send(Unload())
    assert process.process.wait(timeout=30) == 0


def test_requests_sent_while_loading_are_served(worker):
    process = worker("toy:load_ms=200")
    process.send(Generate(id=1, prompt=[5], max_tokens=1))
    assert process.until(Finished).reason == "length"


@pytest.mark.parametrize(
    "nonsense",
    [b"\xc1", b"", b"\x80", msgspec.msgpack.encode({"type": "dance"}),
     msgspec.msgpack.encode({"type": "generate", "id": "one"}),
     msgspec.msgpack.encode({"type": "generate", "id": 1, "prompt": ["a"], "max_tokens": 1})],
)  # fmt: skip
def test_commands_that_make_no_sense_are_ignored(worker, nonsense):
    process = worker("toy:")
    process.until(Ready)
    process.write(len(nonsense).to_bytes(4, "little") + nonsense)
    process.send(Generate(id=1, prompt=[5], max_tokens=1))
    assert process.until(Finished).id == 1


def test_an_absurd_frame_length_ends_the_worker(worker):
    process = worker("toy:")
    process.until(Ready)
    process.write(b"\xff\xff\xff\xff")
    assert process.seconds_to_end() < 10


def test_a_failed_load_is_told(worker):
    process = worker("toy:fail_load=true")
    failed = process.until(Failed)
    assert (failed.code, failed.hint) == ("model_error", "Ask for another one.")
    assert process.process.wait(timeout=30) == 1


def test_unknown_options_are_told(worker):
    failed = worker("toy:colour=red").until(Failed)
    assert failed.code == "invalid_request"
    assert "colour" in failed.message


def test_stray_prints_do_not_harm_the_protocol(worker):
    process = worker("toy:print_id=9")
    process.send(Generate(id=1, prompt=[9, 9, 9], max_tokens=1))
    assert process.until(Finished).reason == "length"


def test_cancel_is_heard_between_two_steps(worker):
    process = worker("toy:step_ms=20")
    process.until(Ready)
    process.send(Generate(id=1, prompt=[5], max_tokens=400, sequence="doc"))
    process.until(Tokens)
    process.send(Cancel(id=1))
    finished = process.until(Finished)
    assert finished.reason == "cancelled"
    assert finished.usage.new_tokens < 200


@pytest.mark.skipif(os.name != "posix", reason="SIGINT is sent, a signal of POSIX")
def test_ctrl_c_is_the_daemons_business(worker):
    process = worker("toy:step_ms=5")
    process.until(Ready)
    process.process.send_signal(signal.SIGINT)
    process.send(Generate(id=1, prompt=[5], max_tokens=3))
    assert process.until(Finished).reason == "length"


@pytest.mark.parametrize(
    ("model", "status"), [("toy:", 0), ("toy:fail_load=1", 1)], ids=["asked to", "by itself"]
)
def test_the_end_does_not_wait_for_the_shutdown_of_libraries(worker, tmp_path, model, status):
    (tmp_path / "sitecustomize.py").write_text(
        "import atexit, time\natexit.register(time.sleep, 300)\n"
    )
    process = worker(model, path=str(tmp_path))
    if status == 0:
        process.until(Ready)
        process.send(Unload())
    assert process.process.wait(timeout=60) == status
    if status:
        assert process.until(Failed).code == "model_error"


# A step or a load of a minute stands for native code that does not come back.
BUSY = {
    "idle": ("toy:", Ready, []),
    "loading": ("toy:load_ms=1200000", Loading, []),
    "in a step": (
        "toy:row_ms=1000,context=9",
        Loading,
        [Generate(id=1, prompt=[5] * 9, max_tokens=0)],
    ),
    "decoding": ("toy:step_ms=10", Ready, [Generate(id=1, prompt=[5], max_tokens=400)]),
}


@pytest.mark.parametrize("state", BUSY)
def test_the_end_of_input_ends_the_worker(worker, state):
    model, event, commands = BUSY[state]
    process = worker(model)
    process.until(event)
    process.send(*commands)
    if commands and event is Ready:
        process.until(Tokens)
    process.process.stdin.close()
    assert process.seconds_to_end() < LIMIT_S


PARENT = """
import asyncio, sys
from swiftspec_daemon.engine.client import EngineClient
from swiftspec_daemon.engine.config import WorkerConfig
from swiftspec_daemon.engine.messages import Generate

async def main(model, prompt):
    engine = EngineClient(WorkerConfig(model=model))
    await engine.start()
    while engine.status.worker_pid is None:
        await asyncio.sleep(0.01)
    print(engine.status.worker_pid, flush=True)
    await engine.ready()
    print("ready", flush=True)
    if prompt:
        async for event in engine.generate(Generate(id=0, prompt=prompt, max_tokens=400)):
            print("event", flush=True)
    await asyncio.sleep(600)

asyncio.run(main(sys.argv[1], [int(i) for i in sys.argv[2].split()]))
"""


@pytest.mark.parametrize(
    ("model", "prompt", "words"),
    [
        ("toy:", "", "ready"),
        ("toy:load_ms=1200000", "", ""),
        ("toy:step_ms=10", "5 6", "event"),
    ],
    ids=["idle", "loading", "decoding"],
)
def test_the_worker_does_not_outlive_a_killed_daemon(model, prompt, words):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, model, prompt], stdout=subprocess.PIPE, text=True
    )
    with parent:
        worker = psutil.Process(int(parent.stdout.readline()))
        while words and words not in parent.stdout.readline():
            pass
        assert worker.is_running()
        parent.kill()
        parent.wait()
        started = time.monotonic()
        while alive(worker) and time.monotonic() - started < 20:
            time.sleep(0.01)
        assert time.monotonic() - started < LIMIT_S


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG")
def test_a_worker_that_runs_no_python_does_not_outlive_a_killed_daemon():
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, "toy:", ""], stdout=subprocess.PIPE, text=True
    )
    with parent:
        worker = psutil.Process(int(parent.stdout.readline()))
        assert parent.stdout.readline() == "ready\n"
        worker.suspend()  # as good as native code that holds the interpreter
        parent.kill()
        parent.wait()
        started = time.monotonic()
        while alive(worker) and time.monotonic() - started < 20:
            time.sleep(0.01)
        assert time.monotonic() - started < LIMIT_S


def alive(process):
    """Whether it runs; an orphan that nobody has waited for yet does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_text_that_is_remembered_is_copied_from(worker):
    """The other file has what the model is going to say, so few passes are needed."""
    prompt, new = [10, 11, 12, 13, 14, 15], 24
    process = worker("toy:step_ms=10", speculation=SpeculationSettings(mode="ngram"))
    process.until(Ready)

    def run(number):
        process.send(Generate(id=number, prompt=prompt, max_tokens=new))
        ids = []
        for event in process.events():
            if isinstance(event, Finished):
                return ids, event.usage.speculation.counters.rounds
            ids += event.ids
        raise EOFError

    said, alone = run(1)
    process.send(Remember(text_id="other", tokens=prompt + said))
    for number in range(2, 50):  # requests go first: it is taken in between two of them
        again, rounds = run(number)
        assert again == said
        if rounds < alone - new // 4:
            return
    pytest.fail("the text is never copied from")
