"""The draft's process: its life and death, and requests that do without it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import msgspec
import psutil
import pytest

from swiftspec_daemon.engine import toy
from swiftspec_daemon.engine.config import WorkerConfig
from swiftspec_daemon.engine.drafts import process as process_module
from swiftspec_daemon.engine.drafts.config import DraftConfig
from swiftspec_daemon.engine.drafts.process import DraftProcess
from swiftspec_daemon.engine.drafts.remote import RemotePair
from swiftspec_daemon.engine.drafts.rules import pack
from swiftspec_daemon.engine.messages import Generate
from swiftspec_daemon.speculation.calibration import Calibration
from swiftspec_daemon.speculation.costs import CostTable
from swiftspec_daemon.speculation.pairing import TargetLink
from swiftspec_daemon.speculation.pairing_messages import Plan
from swiftspec_daemon.speculation.planner import Planner

pytestmark = pytest.mark.skipif(
    os.name != "posix", reason="drafts in processes of their own need POSIX"
)

LIMIT_S = 60.0
PLAN = Plan(size=4, width=1, steps=2, just_in_time=3)
REQUEST = Generate(id=1, prompt=[5], max_tokens=1000)


class Clock:
    """Real time, and what the test adds to it."""

    def __init__(self):
        self.added = 0.0

    def __call__(self):
        return time.monotonic() + self.added


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def start(clock):
    made = []

    def make(draft="toy:", target="toy:", **options):
        config = DraftConfig(draft=draft, target=WorkerConfig(model=target))
        made.append(DraftProcess(config, clock=clock, **options))
        assert made[-1].ensure_started()
        return made[-1]

    yield make
    for process in made:
        process.stop()


def until(process, condition):
    """Receive until `condition()` holds; the trees that came."""
    trees, end = [], time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, (process.state, process.problem)
        trees += process.receive(0.05)
    return trees


def until_ready(process):
    until(process, lambda: process.state != "loading")
    assert process.state == "ready", process.problem
    return process


def ask(process, link, tokens=(5, 6, 7)):
    """Send a new request; the tree that answers it."""
    process.send(link.begin(1, "doc", list(tokens), len(tokens), pack(REQUEST), PLAN))
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        for tree in process.receive(0.5):
            link.receive(tree)
        if (tree := link.take()) is not None:
            return tree
    raise TimeoutError(process.problem)


def gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def await_gone(pid, limit_s=LIMIT_S):
    started = time.monotonic()
    while not gone(pid):
        assert time.monotonic() - started < limit_s
        time.sleep(0.005)


def await_reaped(process, pid):
    """Not even a zombie is left, as each look sees to."""
    started = time.monotonic()
    while psutil.pid_exists(pid):
        assert time.monotonic() - started < LIMIT_S
        process.ensure_started()
        time.sleep(0.005)


def test_it_loads_answers_and_ends(start):
    process = until_ready(start())
    assert process.ready.vocab == 300
    assert process.ready.context == 512
    assert [rows for rows, _ in process.ready.step_ms] == [1, 2, 4, 8]
    assert process.problem == ""
    link = TargetLink()
    tree = ask(process, link)
    assert tree.tokens[0] == 7
    assert len(tree.tokens) == PLAN.size
    process.send(link.verified([tree.tokens[1]], PLAN))
    (answer,) = until_answer(process)
    assert (answer.matched, answer.tokens[0]) == (1, tree.tokens[1])
    pid = process.pid
    process.stop()
    assert not psutil.pid_exists(pid)
    assert process.state == "stopped"
    assert not process.ensure_started()


def until_answer(process):
    trees, end = [], time.monotonic() + LIMIT_S
    while not trees:
        assert time.monotonic() < end
        trees = process.receive(0.5)
    return trees


def test_a_killed_draft_is_noticed_and_started_again_after_a_while(start, clock):
    process = until_ready(start())
    pid = process.pid
    os.kill(pid, signal.SIGKILL)
    until(process, lambda: process.state == "failed")
    assert "has ended" in process.problem
    assert process.ready is None
    assert not process.ensure_started()
    clock.added += 0.6
    assert process.ensure_started()
    assert process.restarts == 1
    until_ready(process)
    assert process.problem == ""
    await_reaped(process, pid)
    assert ask(process, TargetLink()).tokens[0] == 7


def test_a_send_to_a_draft_that_died_since_is_no_error(start):
    process = until_ready(start())
    os.kill(process.pid, signal.SIGKILL)
    await_gone(process.pid)
    link = TargetLink()
    process.send(link.begin(1, "doc", [5], 1, pack(REQUEST), PLAN))
    assert process.receive(1.0) == []
    assert process.state == "failed"
    process.send(link.verified([6], PLAN))
    assert process.receive(1.0) == []


def test_waits_between_starts_double_and_are_short_again_after_a_long_life(start, clock):
    process = start("toy:crash_id=0")  # dies when it is timed
    waits = []
    for _ in range(4):
        until(process, lambda: process.state == "failed")
        waits.append(process._next_start - clock())
        clock.added += 61
        assert process.ensure_started()
    assert [round(wait * 2) for wait in waits] == [1, 2, 4, 8]
    long_lived = until_ready(start())
    long_lived._wait_s = 60.0
    clock.added += 31
    os.kill(long_lived.pid, signal.SIGKILL)
    until(long_lived, lambda: long_lived.state == "failed")
    assert long_lived._next_start - clock() <= 0.5


def test_a_hanging_draft_is_given_up_and_never_blocks_its_target(start, clock):
    process = until_ready(start())
    pid = process.pid
    os.kill(pid, signal.SIGSTOP)
    link = TargetLink()
    started = time.monotonic()
    process.send(link.begin(1, "doc", list(range(2, 250)) * 500, 3, pack(REQUEST), PLAN))
    for _ in range(50):  # far more than a pipe holds
        process.send(link.verified([5] * 2000, PLAN))
    assert time.monotonic() - started < 10
    assert process.receive(0.0) == []
    assert process.state == "ready"
    clock.added += 5.1
    process.receive(0.0)
    assert process.state == "failed"
    assert "not answered for 5 s" in process.problem
    clock.added += 1
    assert process.ensure_started()
    await_reaped(process, pid)
    until_ready(process)


def test_a_request_that_ended_before_its_tree_came_leaves_nothing_owed(start, clock):
    process = until_ready(start("toy:row_ms=20"))
    link = TargetLink()
    process.send(link.begin(1, "doc", [5] * 100, 100, pack(REQUEST), PLAN))
    process.send(link.end())
    until(process, lambda: process._owed_since is None)
    clock.added += 100
    process.receive(0.0)
    assert process.state == "ready"


def test_a_long_prompt_is_no_hang(start):
    """1,000 tokens at a millisecond each, with a patience of less than that."""
    process = until_ready(start("toy:row_ms=2,context=4000", "toy:context=4000", hang_s=1.5))
    tree = ask(process, TargetLink(), [5] * 1500)
    assert len(tree.tokens) == PLAN.size
    assert process.restarts == 0


def test_a_prompt_of_more_bytes_than_the_pipe_holds_arrives_at_a_busy_draft(start):
    process = until_ready(start("toy:row_ms=2,context=200000", "toy:context=200000,vocab=300"))
    link = TargetLink()
    process.send(link.begin(1, "doc", [5] * 300, 300, pack(REQUEST), PLAN))
    tokens = [200 + i % 90 for i in range(100_000)]  # two bytes or three each
    message = link.begin(2, "other", tokens, len(tokens), pack(REQUEST), PLAN)
    process.send(message)
    assert process._channel.unsent > 0
    until(process, lambda: process._channel is None or process._channel.unsent == 0)
    assert process.state == "ready"
    process.send(link.end())
    assert len(ask(process, link).tokens) == PLAN.size


@pytest.mark.parametrize(
    ("draft", "words"),
    [
        ("toy:fail_load=true", "refuses to load"),
        ("toy:vocab=100", "knows 100 tokens; its target has 300"),
        ("toy:colour=red", "colour"),
        ("/nowhere", "cannot use the draft /nowhere"),
    ],
)
def test_failures_that_would_come_again_are_not_tried_again(start, clock, draft, words):
    process = start(draft)
    until(process, lambda: process.state == "failed")
    assert words in process.problem
    clock.added += 1e6
    assert not process.ensure_started()


def test_a_bug_of_the_draft_is_told_and_it_is_started_again(start, clock):
    process = until_ready(start("toy:bug_id=9"))
    process.send(TargetLink().begin(1, "doc", [9, 9], 2, pack(REQUEST), PLAN))
    until(process, lambda: process.state == "failed")
    assert "ZeroDivisionError: a bug in the toy" in process.problem
    clock.added += 1
    assert process.ensure_started()


@pytest.mark.parametrize(
    ("draft", "bad"), [("toy:nan_id=9", [9, 9]), ("toy:context=50", [5] * 60), ("toy:", [9, 301])]
)
def test_a_request_it_cannot_serve_costs_no_other(start, draft, bad):
    """Not a number in its logits, a text too long, a token that it does not know."""
    process = until_ready(start(draft))
    link = TargetLink()
    for _ in range(2):
        tree = ask(process, link, bad)
        assert tree.tokens == bad[-1:]
        process.send(link.verified([7], PLAN))
        (tree,) = until_answer(process)
        assert tree.tokens == [7]
    assert len(ask(process, link).tokens) == PLAN.size
    assert (process.state, process.restarts) == ("ready", 0)


SCRIPTS = {
    "garbage": "sys.stdout.buffer.write(b'\\x05\\x00\\x00\\x00hello')",
    "an absurd length": "sys.stdout.buffer.write(b'\\xff' * 100)",
    "half a frame": "sys.stdout.buffer.write(b'\\x50\\x00\\x00\\x00he'); sys.stdout.close()",
}


@pytest.mark.parametrize("kind", SCRIPTS)
def test_garbage_is_answered_by_a_new_draft(start, monkeypatch, tmp_path, kind):
    (tmp_path / "garbage_draft.py").write_text(
        f"import sys, time\n{SCRIPTS[kind]}\nsys.stdout.flush()\ntime.sleep(100)\n"
        if "half" not in kind
        else "import os, sys\nos.write(1, b'P\\0\\0\\0he')\n"
    )
    monkeypatch.setattr(process_module, "DRAFT_MODULE", "garbage_draft")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = start()
    pid = process.pid
    until(process, lambda: process.state == "failed")
    assert "has ended" in process.problem if "half" in kind else "understood" in process.problem
    process.stop()
    assert not psutil.pid_exists(pid)


def test_trees_that_are_none_are_refused(start):
    process = until_ready(start())
    pair = RemotePair(process, Planner(CostTable({1: 0.02}), Calibration()), 2)
    pair.look()
    link = pair.link
    tree = ask(process, link)
    process.receive = lambda timeout_s: [msgspec.structs.replace(tree, parents=[-1, 5, 0, 1])]
    pair.look()
    assert process.state == "failed"
    assert "a tree that is none" in process.problem
    assert not pair.ready
    assert not link.active


def test_an_idle_draft_uses_no_processor_time(start):
    process = until_ready(start())
    link = TargetLink()
    ask(process, link)
    process.receive(0.2)
    draft = psutil.Process(process.pid)
    before, own = sum(draft.cpu_times()[:2]), time.process_time()
    process.receive(1.0)
    assert sum(draft.cpu_times()[:2]) - before < 0.25
    assert time.process_time() - own < 0.25


PARENT = """
import sys, time
from swiftspec_daemon.engine.config import WorkerConfig
from swiftspec_daemon.engine.drafts.config import DraftConfig
from swiftspec_daemon.engine.drafts.process import DraftProcess
process = DraftProcess(DraftConfig(draft=sys.argv[1], target=WorkerConfig(model="toy:")))
process.ensure_started()
print(process.pid, flush=True)
while "load_ms" not in sys.argv[1] and process.state == "loading":
    process.receive(0.1)
print("there", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("state", ["idle", "loading", "stopped"])
def test_it_does_not_outlive_a_killed_target(state):
    draft = "toy:load_ms=1200000" if state == "loading" else "toy:"
    if state == "stopped" and sys.platform != "linux":
        pytest.skip("PR_SET_PDEATHSIG")
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, draft], stdout=subprocess.PIPE, text=True
    ) as parent:
        pid = int(parent.stdout.readline())
        parent.stdout.readline()
        if state == "stopped":
            psutil.Process(pid).suspend()
        elif state == "loading":
            while "drafts.worker" not in " ".join(psutil.Process(pid).cmdline()):
                time.sleep(0.01)
            time.sleep(0.5)  # the interpreter starts; it would end by itself a little later
        parent.kill()
        parent.wait()
        await_gone(pid, limit_s=5.0 if state == "loading" else 1.0)


def test_the_bytes_of_a_text_are_toys(start):
    """A required prefix and stops cross to the draft with the request."""
    process = until_ready(start())
    link = TargetLink()
    request = msgspec.structs.replace(REQUEST, required=b"return x")
    process.send(link.begin(1, "doc", [5], 1, pack(request), PLAN))
    (tree,) = until_answer(process)
    table = toy.token_bytes()
    for token, parent in zip(tree.tokens[1:], tree.parents[1:], strict=True):
        if parent == 0:
            text = table[token]
            assert b"return x".startswith(text) or text.startswith(b"return x")
