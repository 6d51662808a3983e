"""`swiftspec complete`: what is printed where, and every kind of bad input."""

import json
import os
import re
import signal
import subprocess
import sys

import msgspec
import pytest

from swiftspec_daemon.cli import app
from swiftspec_daemon.cli.complete import describe
from swiftspec_daemon.protocol.messages import Timings

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="the daemons of these tests are ended by signals of POSIX"
)

FILES = {
    "good.py": b"def f(x):\n    return x\n",
    "empty.py": b"",
    "crlf.py": b"a = 1\r\nb = 2\r\n",
    "latin.py": b"# caf\xe9\nx = ",
    "binary.bin": b"\x7fELF\x00\x01",
    "bom.py": b"\xef\xbb\xbfx = ",
}


@pytest.fixture
def files(swiftspec):
    for name, content in FILES.items():
        (swiftspec.folder / name).write_bytes(content)
    (swiftspec.folder / "folder").mkdir()
    return swiftspec


BAD = [
    ("missing.py:1:1", "There is no file missing.py"),
    ("folder:1:1", "folder is a folder"),
    ("binary.bin:1:1", "NUL bytes"),
    ("good.py:99:1", "has 3 lines"),
    ("good.py:1:99", "has 9 characters"),
    ("good.py:0:1", "count from 1"),
    ("empty.py:2:1", "has 1 line"),
    ("crlf.py:1:7", "has 5 characters"),
    ("nonsense:", "There is no file nonsense:"),
]


@pytest.mark.parametrize(("target", "message"), BAD)
@pytest.mark.parametrize("extra", [[], ["--json"]], ids=["text", "json"])
def test_bad_input_is_one_clear_line_and_starts_no_daemon(
    files, monkeypatch, capfd, target, message, extra
):
    files.enter(monkeypatch)
    assert app.main(["complete", target, *extra]) == 2
    output, errors = capfd.readouterr()
    assert message in errors
    assert errors.startswith("error: ")
    assert len(errors.splitlines()) <= 2
    assert files.record is None
    if extra:
        error = json.loads(output)["error"]
        assert error["code"] == "invalid_request"
        assert message in error["message"]
    else:
        assert output == ""


def test_a_file_that_is_too_large_for_a_message(files):
    files.settings["server.max_message_bytes"] = "65536"
    (files.folder / "large.py").write_bytes(b"x" * 65537)
    done = files("complete", "large.py:1:1")
    assert done.returncode == 2
    assert "server.max_message_bytes" in done.stderr


@pytest.mark.parametrize(
    ("target", "line", "column", "encoding"),
    [
        ("good.py:2:11", 2, 11, "utf-8"),
        ("good.py:2", 2, 13, "utf-8"),
        ("good.py", 3, 1, "utf-8"),
        ("empty.py:1:1", 1, 1, "utf-8"),
        ("crlf.py:2", 2, 6, "utf-8"),
        ("latin.py:2", 2, 5, "latin-1"),
        ("bom.py:1", 1, 5, "utf-8"),
    ],
)
def test_one_json_object(files, daemon, target, line, column, encoding):
    done = files("complete", target, "--json", "--max-tokens", "4")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["line"], answer["column"], answer["encoding"]) == (line, column, encoding)
    assert answer["reason"] in ("stop", "length", "lines", "empty")
    assert ("read as Latin-1" in done.stderr) == (encoding == "latin-1")


def test_sampling_and_speculation(files, daemon):
    sampling = ["--temperature", "0.9", "--top-k", "40", "--top-p", "0.95", "--min-p", "0.01"]
    sampling += ["--repetition-penalty", "1.1", "--seed", "5"]
    texts = set()
    for way in ("auto", "off", "ngram", "serial", "async"):
        done = files("complete", "good.py:2:11", "--json", *sampling, "--speculation", way)
        assert done.returncode == 0, done.stderr
        texts.add(json.loads(done.stdout)["text"])
    assert len(texts) == 1  # speculation changes no text
    done = files("complete", "good.py:2:11", "--speculation", "sometimes")
    assert done.returncode == 2
    assert done.stderr.startswith("error: --speculation: 'sometimes' is not one of ")


def test_standard_input(files, daemon):
    done = files("complete", "-:1", "--json", "--max-tokens", "4", stdin=b"x = ")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["column"] == 5


def test_large_files_are_answered(files, daemon):
    (files.folder / "long-line.py").write_bytes(b"x = " + b"1 + " * 500_000)
    (files.folder / "many-lines.py").write_bytes(b"x = 1\n" * 100_000)
    for target in ("long-line.py:1", "many-lines.py:100000", "many-lines.py:50000:3"):
        done = files("complete", target, "--json", "--max-tokens", "2")
        assert done.returncode == 0, done.stderr
        assert "reason" in json.loads(done.stdout)


def test_piped_text_is_the_completion_one_newline_and_nothing_else(files, daemon):
    # the toy model has nothing to say at every second place
    for number in range(40):
        (files.folder / "a.py").write_text(f"def f():\n    return {number}")
        expected = json.loads(files("complete", "a.py", "--json").stdout)["text"]
        if expected:
            break
    assert expected
    place = f"a.py:2:{len(f'    return {number}') + 1}"
    done = files("complete", place)
    assert (done.returncode, done.stdout, done.stderr) == (0, expected + "\n", "")
    for short in ("a.py", "a.py:2"):
        done = files("complete", short)
        said = f"note: completing at {place}.\n"
        assert (done.returncode, done.stdout, done.stderr) == (0, expected + "\n", said)


@pytest.mark.parametrize("target", ["empty.py:1:1", "good.py:2:8"])
def test_nothing_to_suggest_is_nothing_on_standard_output(files, daemon, target):
    answer = json.loads(files("complete", target, "--json").stdout)
    assert (answer["reason"], answer["text"]) == ("empty", "")
    done = files("complete", target)
    assert (done.returncode, done.stdout) == (0, "")
    said = done.stderr.splitlines()[-1]
    assert said.startswith("Nothing to suggest here: There is ")


def test_the_start_of_a_daemon_and_its_loading_are_said_in_a_pipe_too(files):
    files.settings["model.target"] = "toy:load_ms=1500"
    done = files("complete", "good.py:2:13", "--timings", "--max-tokens", "2")
    assert done.returncode == 0, done.stderr
    first, *loading, last, speculation = done.stderr.splitlines()
    assert speculation.startswith("speculation: ")
    assert first == "starting the daemon…"
    assert loading
    assert len(set(loading)) == len(loading)
    assert re.match(r"waited \d+\.\d s for the model · ", last)
    again = files("complete", "good.py:2:13", "--timings", "--max-tokens", "2")
    assert "starting" not in again.stderr
    assert files("stop").returncode == 0


def test_timings_on_request_are_lines_of_their_own(files, daemon):
    both = files.start(
        "complete", "good.py:2:11", "--max-tokens", "4", "--timings", stderr=subprocess.STDOUT
    )
    shown = both.communicate(timeout=60)[0].decode()
    assert both.returncode == 0
    *_, last, speculation = shown.splitlines()
    assert re.fullmatch(
        r"speculation: ngram(, .* tokens a verification, .* accepted)?", speculation
    )
    assert re.fullmatch(
        r"(first line \d+ ms · )?\d+ tokens in \d+\.\d s \(\d+/s\) · "
        r"prompt \d+ tokens, \d+ cached",
        last,
    )
    assert "\x1b" not in shown


@pytest.mark.parametrize("first", [None, 12345.6])
def test_the_line_of_timings_fits_a_terminal(first):
    timings = Timings(
        first_line_ms=first,
        total_ms=123_456.7,
        prompt_tokens=12345,
        cached_tokens=12345,
        new_tokens=1234,
    )
    expected = "1234 tokens in 123.5 s (10/s) · prompt 12345 tokens, 12345 cached"
    loaded = msgspec.structs.replace(
        timings, loading_ms=5000, total_ms=128_456.7, first_line_ms=first and first + 5000
    )
    assert describe(loaded) == f"waited 5.0 s for the model · {describe(timings)}"
    line = describe(timings)
    assert line == (f"first line {first:.0f} ms · {expected}" if first else expected)
    assert len(line) <= 90


def test_the_usual_line_of_timings_has_80_columns_at_most():
    timings = Timings(
        first_line_ms=309, total_ms=1184, prompt_tokens=1536, cached_tokens=1077, new_tokens=45
    )
    assert len(describe(timings)) <= 80


def on_terminal(files, *arguments) -> bytes:
    """What a terminal shows of a command's standard output and error."""
    import pty  # not on Windows, where this module is skipped

    leader, follower = pty.openpty()
    client = files.start(*arguments, stdout=follower, stderr=follower)
    os.close(follower)
    shown = b""
    while True:
        try:
            piece = os.read(leader, 4096)
        except OSError:  # Linux says so when the other end is closed
            break
        if not piece:
            break
        shown += piece
    os.close(leader)
    client.wait(60)
    assert client.returncode == 0
    return shown


def test_on_a_terminal_the_line_comes_first_and_the_time_last(files):
    files.settings["model.target"] = "toy:load_ms=500"
    files.extra["TERM"] = "xterm"
    for number in range(40):
        (files.folder / "a.py").write_text(f"def f():\n    return {number}")
        text = json.loads(files("complete", "a.py", "--json").stdout)["text"]
        if text.isascii() and len(text.splitlines()) == 1:
            break
    assert files("stop").returncode == 0
    shown = on_terminal(files, "complete", "a.py")
    assert b"loading" in shown or b"reading" in shown
    assert f"    return {number}\x1b[0m{text}".encode() in shown
    *_, timings, speculation = shown.splitlines()
    assert b" cached" in timings
    assert b"speculation: " in speculation


def test_no_daemon_and_none_wanted(files):
    done = files("complete", "good.py:1", "--no-start")
    assert done.returncode == 3
    assert "No daemon is running" in done.stderr


def test_an_unknown_model(files):
    files.settings["model.target"] = "no-such/model"
    done = files("complete", "good.py:1")
    assert done.returncode == 7
    assert "no-such/model" in done.stderr
    assert files("status").returncode == 0


def test_half_a_model_folder(files):
    half = files.folder / "half"
    half.mkdir()
    (half / "config.json").write_text('{"model_type": "llama"}')
    files.settings["model.target"] = str(half)
    done = files("complete", "good.py:1", "--json")
    assert done.returncode == 7
    assert json.loads(done.stdout)["error"]["message"]
    assert "Traceback" not in done.stderr


def test_a_model_that_fails_to_load(files):
    files.settings["model.target"] = "toy:fail_load=1"
    done = files("complete", "good.py:1")
    assert done.returncode == 7
    assert "refuses to load" in done.stderr


def waiting_completion(files, wait):
    """A client whose completion waits for a model that takes a minute to load."""
    files.settings["model.target"] = "toy:load_ms=60000"
    assert files("serve", "--background").returncode == 0
    client = files.start("complete", "good.py:2:11")
    wait(lambda: json.loads(files("status", "--json").stdout)["documents"] == 1)
    return client


def test_a_daemon_that_dies_is_a_clear_error(files, wait):
    client = waiting_completion(files, wait)
    os.kill(files.record.pid, signal.SIGKILL)
    _, errors = client.communicate(timeout=60)
    assert client.returncode == 3
    assert b"error: The connection to the daemon is lost" in errors
    assert b"Traceback" not in errors


def test_ctrl_c_ends_the_command_and_not_the_daemon(files, wait):
    client = waiting_completion(files, wait)
    client.send_signal(signal.SIGINT)
    _, errors = client.communicate(timeout=60)
    assert client.returncode == 130
    assert b"Traceback" not in errors
    assert files("status").returncode == 0


def test_a_reader_that_goes_away_is_no_drama(files, daemon):
    reading, writing = os.pipe()
    os.close(reading)
    client = files.start("complete", "good.py:2:11", "--json", stdout=writing)
    os.close(writing)
    _, errors = client.communicate(timeout=60)
    assert client.returncode == 1
    assert errors == b""


def test_a_changed_token_is_refused(files, daemon):
    (files.home / "config" / "token").write_text("wrong\n")
    done = files("complete", "good.py:1", "--json")
    assert done.returncode == 6
    assert json.loads(done.stdout)["error"]["code"] == "unauthorized"


def test_no_log_holds_text_of_the_users(files, daemon):
    secret = "swordfish"
    (files.folder / f"{secret}.py").write_text(f"# {secret}\n{secret} = ")
    for _ in range(2):
        done = files("complete", f"{secret}.py", "--json")
        assert done.returncode == 0, done.stderr
        assert files("complete", f"{secret}.py:99").returncode == 2
    logs = list((files.home / "log").iterdir())
    assert logs
    for log in logs:
        assert secret not in log.read_text()
