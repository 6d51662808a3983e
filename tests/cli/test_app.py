"""The command line as a whole: help, exit statuses, failures, pipes."""

import json
import os
import subprocess
import sys

import pytest

from swiftspec_daemon import __version__
from swiftspec_daemon.cli import app, findings, run
from swiftspec_daemon.client import Client
from swiftspec_daemon.errors import DaemonNotRunning, EngineError, SwiftSpecError, Unauthorized

COMMANDS = (
    "run complete doctor serve status stop logs token lsp models bench version".split()  # noqa: SIM905
)


def test_help_names_every_command_and_exit_status(swiftspec):
    done = swiftspec("--help")
    assert done.returncode == 0
    for word in (*COMMANDS, "Exit status", "130"):
        assert word in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "lsp"])
def test_every_command_has_help(command, capsys):
    assert app.main([command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"Usage: swiftspec {command}" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize("way", ["version", "--version"])
def test_version(swiftspec, way):
    assert swiftspec(way).stdout == f"{__version__}\n"


@pytest.mark.parametrize(
    ("wrong", "sentence", "see"),
    [
        ("frobnicate", "No such command 'frobnicate'.", ""),
        ("serv", "No such command 'serv'. Did you mean 'serve'?", ""),
        ("models frobnicate", "No such command 'frobnicate'.", " models"),
        ("complete", "Missing argument 'FILE:LINE:COL'.", " complete"),
        ("status --colour", "No such option: --colour.", " status"),
        ("--colour", "No such option: --colour.", ""),
        ("status extra", "Got unexpected extra argument(s) (extra).", " status"),
        ("stop --timeout", "Option '--timeout' requires an argument.", ""),
        ("complete a --max-tokens 0", "--max-tokens must be a number from 1 to 4096.", " complete"),
        ("complete a --max-lines x", "--max-lines must be a number from 1 to 1000.", " complete"),
        ("serve --port 99999", "--port must be a number from 0 to 65535.", " serve"),
        ("complete a --top-p 2", "--top-p must be a number, at most 1.", " complete"),
        ("stop --timeout -1", "--timeout must be a number, at least 0.", " stop"),
    ],
)
def test_wrong_usage_is_one_sentence_and_where_the_help_is(wrong, sentence, see, capsys):
    assert app.main(wrong.split()) == 2
    shown = capsys.readouterr()
    assert shown.err == f"error: {sentence}\nSee `swiftspec{see} --help`.\n"
    assert shown.out == ""


@pytest.mark.parametrize("group", [[], ["models"], ["token"]], ids=" ".join)
def test_a_group_without_a_command_shows_its_help(group, capsys):
    assert app.main(group) == 2
    shown = capsys.readouterr()
    assert f"Usage: {' '.join(['swiftspec', *group])} [OPTIONS] COMMAND" in shown.out
    assert shown.err == ""


def test_errors_are_one_line_a_hint_and_a_status(monkeypatch, capsys):
    def fail(*_: object, **__: object) -> None:
        raise EngineError("It broke [badly].", "Mend it.")

    monkeypatch.setattr("swiftspec_daemon.settings.load", fail)
    assert app.main(["run"]) == 8
    assert capsys.readouterr().err == "error: It broke [badly].\nMend it.\n"


def test_the_unexpected_is_one_line_and_the_log_has_the_rest(swiftspec, monkeypatch, capsys):
    monkeypatch.setenv("SWIFTSPEC_HOME", str(swiftspec.home))

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by\nnothing")

    monkeypatch.setattr("swiftspec_daemon.settings.load", fail)
    assert app.main(["run"]) == 70
    shown = capsys.readouterr().err
    log = swiftspec.home / "log" / "command.log"
    assert "ZeroDivisionError: by" in shown
    assert str(log) in shown
    assert "Traceback" not in shown
    assert "Traceback" in log.read_text()
    with pytest.raises(ZeroDivisionError):
        app.main(["--debug", "run"])
    monkeypatch.setenv("SWIFTSPEC_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        app.main(["run"])


def test_every_error_has_its_own_status():
    from swiftspec_daemon import errors

    direct = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    statuses = {kind.exit_code for kind in direct if SwiftSpecError in kind.__bases__}
    assert statuses == set(range(2, 10))
    for status in statuses:
        assert f" {status} " in app.EXIT_STATUSES


def test_logs(swiftspec):
    nothing = swiftspec("logs")
    assert nothing.returncode == 0
    assert "nothing" in nothing.stderr
    log = swiftspec.home / "log" / "daemon.log"
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    assert swiftspec("logs", "-n", "2").stdout == "line 98\nline 99\n"
    assert len(swiftspec("logs").stdout.splitlines()) == 50


def test_a_closed_pipe_is_quiet(swiftspec):
    folder = swiftspec.home / "log"
    folder.mkdir(parents=True)
    (folder / "daemon.log").write_text("line\n" * 100_000)
    reader = subprocess.Popen(["head", "-n", "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    writer = swiftspec.start("logs", "-n", "100000", stdout=reader.stdin)
    reader.stdin.close()
    reader.stdin = None
    assert reader.communicate(timeout=60)[0] == b"line\n"
    _, errors = writer.communicate(timeout=60)
    assert errors == b""


def test_light_commands_load_no_heavy_libraries(swiftspec):
    code = (
        "import sys; from swiftspec_daemon.cli import app; app.main(['status']);"
        "print(sorted({'numpy', 'torch', 'starlette', 'uvicorn', 'tokenizers'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=swiftspec.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


def test_token(swiftspec):
    first = swiftspec("token", "show")
    assert first.returncode == 0, first.stderr
    token = first.stdout.strip()
    assert len(token) >= 32
    assert swiftspec("token", "show").stdout.strip() == token
    assert swiftspec("token", "rotate").returncode == 0
    assert swiftspec("token", "show").stdout.strip() != token


def test_a_rotated_token_ends_the_daemon_and_every_connection(swiftspec, daemon):
    url, old = swiftspec.record.endpoint("").url, swiftspec.token
    with Client(url=url, token=old) as client:
        rotated = swiftspec("token", "rotate")
        assert rotated.returncode == 0, rotated.stderr
        assert daemon.wait(20) == 0
        with pytest.raises(DaemonNotRunning):
            client.status()
    assert swiftspec("serve", "--background").returncode == 0
    url = swiftspec.record.endpoint("").url
    with pytest.raises(Unauthorized):
        Client(url=url, token=old)
    Client(url=url, token=swiftspec.token).close()
    assert swiftspec("stop").returncode == 0


def test_doctor(swiftspec):
    done = swiftspec("doctor", "--json")
    answer = json.loads(done.stdout)
    assert answer["ok"] is (done.returncode == 0)
    assert answer["ok"] is (not answer["problems"])
    assert {
        "machine",
        "kernels",
        "gpus",
        "model",
        "daemon",
        "packages",
        "settings",
        "paths",
    } == set(answer["findings"])
    assert answer["findings"]["settings"]["server.port"] == (
        "0 (environment variable SWIFTSPEC_SERVER__PORT)"
    )
    assert answer["findings"]["daemon"]["running"] == "no"
    settings = swiftspec.home / "config" / "settings.toml"
    assert answer["findings"]["paths"]["settings"] == f"{settings} (not there yet)"
    settings.touch()
    answer = json.loads(swiftspec("doctor", "--json").stdout)
    assert answer["findings"]["paths"]["settings"] == str(settings)


def test_doctor_finds_what_is_wrong_and_says_how_to_mend_it(swiftspec):
    folder = swiftspec.home / "config"
    folder.mkdir(parents=True)
    (folder / "settings.toml").write_text("[server]\nprot = 1\n")
    (folder / "token").write_text("x\n")
    (folder / "token").chmod(0o644)
    done = swiftspec("doctor")
    assert done.returncode == 1
    assert "prot" in done.stdout
    assert "chmod 600" in done.stdout
    problems = json.loads(swiftspec("doctor", "--json").stdout)["problems"]
    assert all(problem["what"] and problem["cure"] for problem in problems)
    assert not any("swiftspec doctor" in problem["cure"] for problem in problems)


def test_doctor_does_not_send_to_the_doctor():
    report = findings.Report()
    report.problem("It does not answer.", "Is another program there? See `swiftspec doctor`.")
    report.problem("It is broken.", "See `swiftspec doctor`.")
    assert [problem.cure for problem in report.problems] == [
        "Is another program there?",
        "See `swiftspec logs`.",
    ]


def test_the_sample_ends_where_the_cursor_stands():
    text = run.sample_text()
    assert text
    assert not text.endswith("\n")


@pytest.mark.parametrize("command", [["status"], ["serve"], ["doctor"], ["models", "list"]])
def test_a_home_that_is_no_folder_is_said(swiftspec, command, tmp_path):
    file = tmp_path / "a file"
    file.write_text("")
    swiftspec.home = file
    done = swiftspec(*command)
    assert done.returncode == 2
    assert str(file) in done.stderr
    assert "SWIFTSPEC_HOME" in done.stderr
    assert "unexpected" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_output_that_cannot_be_written_is_said(swiftspec):
    with open("/dev/full", "wb") as full:
        done = swiftspec.start("version", stdout=full, stderr=subprocess.PIPE)
        _, said = done.communicate(timeout=60)
    assert done.returncode == 1
    assert b"No space left" in said
    assert b"Traceback" not in said


@pytest.mark.skipif(sys.platform == "win32", reason="a POSIX shell")
def test_a_closed_output_is_no_error(swiftspec):
    command = f"{sys.executable} -m swiftspec_daemon version >&-"
    done = subprocess.run(
        command, shell=True, capture_output=True, env=swiftspec.environment, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, b"")
