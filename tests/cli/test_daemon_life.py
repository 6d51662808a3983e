"""`serve`, `status`, `stop`: one daemon per user, from its start to its end, however it comes."""

import json
import os
import re
import signal
import socket
import subprocess
import sys

import msgspec
import pytest

from swiftspec_daemon import __version__
from swiftspec_daemon.protocol.record import write_record

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="the daemons of these tests are ended by signals of POSIX"
)


def alive(pid: int) -> bool:
    from swiftspec_daemon.client.discovery import process_exists

    return process_exists(pid)


def test_a_second_daemon_is_told_about_the_first(swiftspec, daemon):
    record = swiftspec.record
    for extra in ([], ["--background"]):
        second = swiftspec("serve", *extra)
        assert second.returncode == 4
        for word in (f"pid {record.pid}", f"port {record.port}", f"version {__version__}"):
            assert word in second.stderr
    assert swiftspec.record == record
    assert daemon.poll() is None


def test_status_for_people_and_for_programs(swiftspec, daemon):
    record = swiftspec.record
    told = swiftspec("status")
    assert told.returncode == 0, told.stderr
    assert f"http://127.0.0.1:{record.port}" in told.stdout
    status = json.loads(swiftspec("status", "--json").stdout)
    assert status["running"] is True
    assert (status["pid"], status["port"]) == (record.pid, record.port)
    assert status["model"]["state"] in ("loading", "ready")
    assert status["connections"] == 0  # it does not count itself
    assert "0 connections" in told.stdout


@pytest.mark.parametrize(
    ("command", "hint"), [("status", "Start one with `swiftspec serve`.\n"), ("stop", "")]
)
def test_without_a_daemon(swiftspec, command, hint):
    done = swiftspec(command)
    assert done.returncode == 3
    assert done.stderr == f"error: No daemon is running.\n{hint}"
    assert not (swiftspec.home / "state" / "daemon.json").exists()


def test_status_json_without_a_daemon(swiftspec):
    assert json.loads(swiftspec("status", "--json").stdout) == {"running": False}


def test_stop_ends_daemon_and_worker(swiftspec, daemon, wait):
    status = wait(lambda: ready_status(swiftspec))
    assert status["memory_mb"].keys() >= {"daemon"}
    children = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(daemon.pid)], capture_output=True, text=True, check=True
    )
    workers = [int(pid) for pid in children.stdout.split()]
    assert workers
    stopped = swiftspec("stop")
    assert stopped.returncode == 0, stopped.stderr
    assert daemon.wait(20) == 0
    assert swiftspec.record is None
    wait(lambda: not any(alive(pid) for pid in workers))


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_ends_it_in_order(swiftspec, daemon, name):
    daemon.send_signal(signal.Signals[name])
    assert daemon.wait(20) == 0
    assert swiftspec.record is None


def test_after_a_kill_the_next_one_starts_and_the_worker_is_gone(swiftspec, daemon, wait):
    wait(lambda: ready_status(swiftspec))
    children = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(daemon.pid)], capture_output=True, text=True, check=True
    )
    old = swiftspec.record
    daemon.kill()
    daemon.wait()
    assert swiftspec("status").returncode == 3
    started = swiftspec("serve", "--background")
    assert started.returncode == 0, started.stderr
    assert swiftspec.record.pid != old.pid
    wait(lambda: not any(alive(int(pid)) for pid in children.stdout.split()))
    assert swiftspec("stop").returncode == 0


def test_a_port_in_use(swiftspec):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        for extra in ([], ["--background"]):
            done = swiftspec("serve", "--port", str(port), *extra)
            assert done.returncode == 5
            assert f"Port {port} is in use by another program" in done.stderr
            assert "--port" in done.stderr
            assert "Traceback" not in done.stderr
    assert swiftspec.record is None


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--port", "99999"], "65535"),
        (["--set", "server.port=x"], "server.port"),
        (["--set", "nonsense"], "NAME=VALUE"),
        (["--set", "=1"], "NAME=VALUE"),
        (["--set", "server.=1"], "NAME=VALUE"),
        (["--set", "foo=1"], "There is no setting foo (on the command line)."),
        (["--set", "prt=1"], "no setting prt (on the command line); did you mean server.port?"),
        (["--set", "server=1"], "a table of settings, [server]"),
        (["--set", "model.colour=red"], "colour"),
        (["--settings", "missing.toml"], "missing.toml"),
    ],
)
def test_wrong_settings_are_named(swiftspec, arguments, word):
    done = swiftspec("serve", *arguments)
    assert done.returncode == 2
    assert word in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [["serve"], ["serve", "--background"], ["run"]], ids=" ".join)
@pytest.mark.parametrize(
    ("model", "message", "hint"),
    [
        ("/nonexist", "There is no file or folder /nonexist.", "Check the path"),
        ("./nonexist.gguf", "There is no file or folder ./nonexist.gguf.", "Check the path"),
        ("some/model", "There is no model some/model", "swiftspec models fetch some/model"),
        ("notes.txt", "notes.txt is neither a folder nor a GGUF file.", "ends in .gguf"),
    ],
)
def test_a_model_that_is_not_there_is_told_before_anything_starts(
    swiftspec, command, model, message, hint
):
    (swiftspec.folder / "notes.txt").write_text("no model")
    done = swiftspec(*command, "--model", model)
    assert done.returncode == 7
    first, second = done.stderr.splitlines()
    assert first.startswith("error: ")
    assert message in first
    assert hint in second
    assert ("models fetch" in second) == (model == "some/model")
    assert swiftspec.record is None
    assert not (swiftspec.home / "log" / "daemon.log").exists()


def test_where_it_serves_is_said_before_the_steps_of_loading(swiftspec):
    swiftspec.settings["model.target"] = "toy:load_ms=300"
    daemon = swiftspec.start("serve")
    lines = [daemon.stderr.readline().decode()]
    while "is ready" not in lines[-1]:
        assert lines[-1], lines
        lines.append(daemon.stderr.readline().decode())
    assert "serving on" in lines[0]
    assert all(line.startswith("model") for line in lines[1:])
    daemon.terminate()
    daemon.communicate(timeout=60)


def test_a_start_that_failed_is_in_the_logs_until_one_succeeds(swiftspec):
    (swiftspec.folder / "a.py").write_text("x = ")
    assert swiftspec("logs").stderr.startswith("There is nothing in ")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        swiftspec.settings["server.port"] = str(other.getsockname()[1])
        assert swiftspec("complete", "a.py").returncode == 5
        shown = swiftspec("logs").stderr
    assert "The last start in the background failed:\nerror: Port " in shown
    assert "{" not in shown
    swiftspec.settings["server.port"] = "0"
    assert swiftspec("complete", "a.py", "--max-tokens", "2").returncode == 0
    assert swiftspec("logs").stderr == ""
    assert swiftspec("stop").returncode == 0


@pytest.mark.parametrize(
    "command", [["status"], ["stop"], ["run"], ["serve"], ["complete", "a.py"]], ids=" ".join
)
def test_settings_that_keep_a_daemon_from_starting_are_named(swiftspec, command):
    (swiftspec.folder / "a.py").write_text("x = ")
    file = swiftspec.home / "config" / "settings.toml"
    file.parent.mkdir(parents=True)
    file.write_text("[completion]\nmax_tokns = 3\n")
    done = swiftspec(*command)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == (
        f"error: There is no setting completion.max_tokns (in {file}); "
        "did you mean completion.max_tokens?"
    )


def test_background_returns_once_it_accepts_connections(swiftspec):
    swiftspec.settings["model.target"] = "toy:load_ms=60000"
    started = swiftspec("serve", "--background", "--set", "completion.max_tokens=5")
    assert started.returncode == 0, started.stderr
    assert f"http://127.0.0.1:{swiftspec.record.port}" in started.stdout
    status = json.loads(swiftspec("status", "--json").stdout)
    assert status["model"]["state"] == "loading"
    [model] = [line for line in swiftspec("status").stdout.splitlines() if line.startswith("model")]
    assert re.fullmatch(r"model +toy\S*: loading \(([a-z ]+, )?\d+%\)", model)
    assert swiftspec("stop").returncode == 0


def test_a_background_daemon_outlives_its_parent_and_does_not_keep_its_folder(swiftspec):
    assert swiftspec("serve", "--background").returncode == 0
    pid = swiftspec.record.pid
    assert os.getsid(pid) != os.getsid(0)
    if sys.platform == "linux":
        assert os.readlink(f"/proc/{pid}/cwd") == str(swiftspec.home / "state")
    assert swiftspec("stop").returncode == 0


def test_two_clients_at_once_get_one_daemon(swiftspec):
    (swiftspec.folder / "a.py").write_text("x = ")
    clients = [swiftspec.start("complete", "a.py:1", "--max-tokens", "2") for _ in range(3)]
    for client in clients:
        _, errors = client.communicate(timeout=60)
        assert client.returncode == 0, errors.decode()
    starts = [
        line
        for line in (swiftspec.home / "log" / "daemon.log").read_text().splitlines()
        if "swiftspec-daemon" in line and "starts" in line
    ]
    assert len(starts) == 1
    assert swiftspec("stop").returncode == 0


HOLDER = """
import sys
from swiftspec_daemon.server.lifecycle import OneDaemon
with OneDaemon():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_client_waits_for_a_daemon_that_is_just_ending(swiftspec, wait):
    ending = subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        env=swiftspec.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert ending.stdout.readline() == b"held\n"
    (swiftspec.folder / "a.py").write_text("x = ")
    client = swiftspec.start("complete", "a.py:1")
    failed = swiftspec.home / "log" / "daemon.stderr.log"
    wait(lambda: failed.exists() and b"daemon_already_running" in failed.read_bytes())
    ending.communicate()
    _, errors = client.communicate(timeout=60)
    assert client.returncode == 0, errors.decode()
    assert swiftspec("stop").returncode == 0


def test_a_second_ctrl_c_ends_it_at_once(swiftspec, wait):
    swiftspec.settings["model.target"] = "toy:load_ms=60000"
    (swiftspec.folder / "a.py").write_text("x = ")
    daemon = swiftspec.start("serve")
    swiftspec.wait_record()
    client = swiftspec.start("complete", "a.py:1")
    wait(lambda: json.loads(swiftspec("status", "--json").stdout)["documents"] == 1)
    daemon.send_signal(signal.SIGINT)
    daemon.send_signal(signal.SIGINT)
    _, said = daemon.communicate(timeout=20)
    assert b"Traceback" not in said
    assert daemon.returncode in (0, 130)  # two signals may arrive as one
    client.communicate(timeout=20)
    assert client.returncode == 3
    assert swiftspec.record is None


def test_an_older_daemon_is_replaced(swiftspec, daemon):
    old = swiftspec.record
    write_record(
        swiftspec.home / "state" / "daemon.json", msgspec.structs.replace(old, version="0.0.9")
    )
    (swiftspec.folder / "a.py").write_text("x = ")
    done = swiftspec("complete", "a.py:1", "--max-tokens", "2")
    assert done.returncode == 0, done.stderr
    assert daemon.wait(20) == 0
    assert swiftspec.record.pid != old.pid
    assert swiftspec.record.version == __version__
    assert swiftspec("stop").returncode == 0


def test_stop_when_idle_lets_a_completion_end(swiftspec, wait):
    swiftspec.settings["model.target"] = "toy:load_ms=8000"
    (swiftspec.folder / "a.py").write_text("x = ")
    assert swiftspec("serve", "--background").returncode == 0
    client = swiftspec.start("complete", "a.py:1")
    wait(lambda: json.loads(swiftspec("status", "--json").stdout)["documents"] == 1)
    stopped = swiftspec("stop", "--when-idle")
    assert stopped.returncode == 0, stopped.stderr
    _, errors = client.communicate(timeout=60)
    assert client.returncode == 0, errors.decode()


def test_the_model_unloads_when_idle_and_comes_back(swiftspec, wait):
    swiftspec.settings["model.idle_unload_s"] = "0.2"
    (swiftspec.folder / "a.py").write_text("x = ")
    assert swiftspec("complete", "a.py:1", "--max-tokens", "2").returncode == 0
    wait(lambda: state(swiftspec) == "unloaded")
    again = swiftspec("complete", "a.py:1", "--max-tokens", "2")
    assert again.returncode == 0, again.stderr
    assert swiftspec("stop").returncode == 0


def state(swiftspec) -> str:
    return json.loads(swiftspec("status", "--json").stdout)["model"]["state"]


def ready_status(swiftspec):
    status = json.loads(swiftspec("status", "--json").stdout)
    return status if status["model"]["state"] == "ready" else None
