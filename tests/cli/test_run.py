"""`swiftspec run`: the sample before the user's eyes; the example of the client."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from swiftspec_daemon import settings
from swiftspec_daemon.cli.foreground import SampleObserver
from swiftspec_daemon.cli.run import sample_text
from swiftspec_daemon.client import AsyncClient, Position
from swiftspec_daemon.server import run as daemon

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "complete.py"
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


@pytest.fixture
def real(swiftspec, shared_models):
    """The command line with the default model."""
    swiftspec.settings["model.target"] = "default"
    cache = swiftspec.home / "cache"
    cache.mkdir(parents=True)
    (cache / "models").symlink_to(shared_models, target_is_directory=True)
    return swiftspec


@pytest.mark.model
def test_the_default_model_completes_the_sample_and_ends(real):
    done = real("run", "--once")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(sample_text())
    written = done.stdout.removeprefix(sample_text())
    assert "counts[word]" in written
    timings = done.stderr.splitlines()[-1]
    for word in ("first line", " tokens in ", "/s)", "prompt ", " cached"):
        assert word in timings
    assert "\x1b" not in done.stdout + done.stderr
    assert real.record is None


@pytest.mark.model
def test_the_example_completes_a_file(real):
    file = real.folder / "add.py"
    file.write_text('def add(a, b):\n    """Return the sum of a and b."""\n    return')
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), str(file)],
        env=real.environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(" a + b")
    assert real("stop").returncode == 0


def test_the_example_is_in_the_docs_as_it_is():
    page = (EXAMPLE.parents[1] / "docs" / "howto" / "client.md").read_text("utf-8")
    assert f"```python\n{EXAMPLE.read_text('utf-8')}```" in page


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "usage: python complete.py FILE"),
        (["missing.py"], "missing.py cannot be read: "),
        (["binary.py"], "binary.py cannot be read: "),
        (["good.py"], "error: There is no model no-such/model"),
    ],
)
def test_the_example_answers_failures_in_one_sentence(swiftspec, arguments, sentence):
    swiftspec.settings["model.target"] = "no-such/model"
    (swiftspec.folder / "binary.py").write_bytes(b"\xff\xfe\x00")
    (swiftspec.folder / "good.py").write_text("x = ")
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), *arguments],
        env=swiftspec.environment,
        cwd=swiftspec.folder,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(sentence)
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


@posix
def test_ctrl_c_ends_the_sample_in_the_middle_and_the_daemon_with_it(swiftspec, monkeypatch, capfd):
    # three tokens, which would still come in the time that running completions have
    swiftspec.settings["model.target"] = "toy:step_ms=500"
    swiftspec.enter(monkeypatch)
    ended = []

    async def show(url: str, token: str) -> None:
        async with AsyncClient.connect(url=url, token=token) as client:
            await client.open("a", "x = ")
            completion = await client.complete("a", Position(0, 4), max_tokens=3)
            os.kill(os.getpid(), signal.SIGINT)
            try:
                await completion.result()
            except asyncio.CancelledError:
                ended.append("sample")
                raise

    observer = SampleObserver(show, once=False)
    assert daemon.serve(settings.load(), observer) == 0
    assert ended == ["sample"]
    errors = capfd.readouterr().err
    assert "is ready" in errors
    assert "serving on" not in errors
    assert swiftspec.record is None


@posix
@pytest.mark.parametrize("own", [True, False], ids=["own daemon", "running daemon"])
def test_ctrl_c_ends_it_while_the_model_loads(swiftspec, wait, own):
    swiftspec.settings["model.target"] = "toy:load_ms=60000"
    if not own:
        assert swiftspec("serve", "--background").returncode == 0
    running = swiftspec.start("run")
    swiftspec.wait_record()
    if not own:
        wait(lambda: json.loads(swiftspec("status", "--json").stdout)["documents"] == 1)
    running.send_signal(signal.SIGINT)
    output, errors = running.communicate(timeout=60)
    assert running.returncode == (0 if own else 130)
    assert output.decode() == ("" if own else sample_text() + "\n")
    for word in (b"serving on", b"cached", b"error", b"Traceback"):
        assert word not in errors
    if not own:
        assert swiftspec("stop").returncode == 0


@posix
@pytest.mark.parametrize(
    ("target", "seen"),
    [("toy:load_ms=60000", b""), ("toy:step_ms=500", b"is ready")],
    ids=["loading", "in the sample"],
)
def test_once_ended_by_ctrl_c_before_its_end_is_interrupted(swiftspec, target, seen):
    swiftspec.settings["model.target"] = target
    running = swiftspec.start("run", "--once")
    swiftspec.wait_record()
    errors = b""
    while seen not in errors:
        line = running.stderr.readline()
        assert line, errors
        errors += line
    running.send_signal(signal.SIGINT)
    _, rest = running.communicate(timeout=60)
    assert running.returncode == 130
    assert b"error" not in errors + rest
    assert b"Traceback" not in errors + rest


def test_it_goes_on_serving_and_a_second_run_uses_it(swiftspec, wait):
    first = swiftspec.start("run")
    record = swiftspec.wait_record()
    seen = b""
    while b"serving on" not in seen:
        line = first.stderr.readline()
        assert line, seen
        seen += line
    assert f"http://127.0.0.1:{record.port}".encode() in seen
    second = swiftspec("run", "--once")
    assert second.returncode == 0, second.stderr
    assert f"pid {record.pid}" in second.stderr
    assert second.stdout.startswith(sample_text())
    assert swiftspec.record == record
    for flags, named in (
        (["--model", "toy:"], "model.target"),
        (["--port", "0", "--set", "completion.max_tokens=3"], "completion.max_tokens, server.port"),
    ):
        other = swiftspec("run", "--once", *flags)
        assert other.returncode == 4
        assert other.stdout == ""
        message, hint = other.stderr.splitlines()
        assert f"pid {record.pid}, port {record.port}, model toy" in message
        assert named.replace(", ", " and ") in message
        assert "swiftspec stop" in hint
    assert swiftspec.record == record
    first.terminate()
    _, said = first.communicate(timeout=60)
    assert first.returncode == 0
    assert b"stopped by" not in said


@pytest.mark.parametrize("target", ["toy:", "toy:load_ms=2000"])
@pytest.mark.parametrize("command", ["run", "serve"])
def test_it_says_so_last_when_another_command_stops_it(swiftspec, command, target):
    swiftspec.settings["model.target"] = target  # the slow one is stopped while it loads
    running = swiftspec.start(command)
    while b"serving on" not in (line := running.stderr.readline()):
        assert line
    assert swiftspec("stop").returncode == 0
    _, said = running.communicate(timeout=60)
    assert running.returncode == 0
    assert said.decode().splitlines()[-1].startswith("stopped by `swiftspec stop`")


@pytest.mark.parametrize(
    ("target", "status", "words"),
    [
        ("toy:fail_load=1", 7, "refuses to load"),
        ("no-such/model", 7, "no-such/model"),
        ("toy:colour=red", 2, "colour"),
    ],
)
def test_a_model_that_cannot_be_run_ends_it_with_one_clear_error(swiftspec, target, status, words):
    swiftspec.settings["model.target"] = target
    done = swiftspec("run", "--once")
    assert done.returncode == status
    assert words in done.stderr
    assert done.stderr.count("error:") == 1
    assert "Traceback" not in done.stderr
    assert swiftspec.record is None


def test_without_a_network_the_error_names_file_and_folder(swiftspec):
    swiftspec.settings["model.target"] = "default"
    swiftspec.extra["PIP_NO_INDEX"] = "1"
    done = swiftspec("run", "--once")
    assert done.returncode == 7
    assert "Without a network" in done.stderr
    assert str(swiftspec.home / "cache" / "models" / "default") in done.stderr
    assert "Traceback" not in done.stderr
