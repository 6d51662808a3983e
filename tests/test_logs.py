"""Log files: rotation, permissions, following."""

import asyncio
import logging
import os
import socket
import stat
import threading

import pytest

from swiftspec_daemon import logs
from swiftspec_daemon.settings import LogSettings


@pytest.fixture
def root_logger():
    """The root logger, put back afterwards as it was."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    root.handlers = []
    yield root
    for handler in root.handlers:
        handler.close()
    root.handlers = handlers
    root.setLevel(level)


def test_files_rotate_and_only_their_owner_reads_them(tmp_path, root_logger):
    file = tmp_path / "daemon.log"
    logs.setup(LogSettings(max_bytes=10_000, backups=2), file)
    for number in range(500):
        root_logger.info("%s line %d", "x" * 100, number)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["daemon.log", "daemon.log.1", "daemon.log.2"]
    for path in tmp_path.iterdir():
        assert path.stat().st_size <= 10_000
        if os.name == "posix":
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    last = logs.tail(file, 100)
    assert len(last) == 100
    assert [line.split()[-1] for line in last] == [str(number) for number in range(400, 500)]


def test_the_level_is_kept_and_libraries_never_log_what_crosses_the_wire(tmp_path, root_logger):
    file = tmp_path / "daemon.log"
    logs.setup(LogSettings(level="debug"), file)
    logging.getLogger("ours").debug("seen")
    logging.getLogger("websockets.server").debug("< TEXT '%s'", "user text")
    logging.getLogger("uvicorn.error").info("user text")
    assert [line.split()[-1] for line in logs.tail(file, 10)] == ["seen"]


def test_warnings_reach_the_console_as_one_line(tmp_path, root_logger, capsys):
    logs.setup(LogSettings(), tmp_path / "daemon.log", console=True)
    root_logger.info("quiet")
    try:
        raise ValueError("inner")
    except ValueError:
        root_logger.exception("went wrong")
    assert capsys.readouterr().err == "error: went wrong\n"
    assert "Traceback" in "\n".join(logs.tail(tmp_path / "daemon.log", 10))


async def test_what_libraries_say_of_clients_that_vanish_is_not_for_the_console(
    tmp_path, root_logger, capsys
):
    """asyncio's own warning: it comes with the sixth write after the connection was lost."""
    logs.setup(LogSettings(), tmp_path / "daemon.log", console=True)
    ours, theirs = socket.socketpair()
    _, writer = await asyncio.open_connection(sock=ours)
    theirs.close()
    for _ in range(10):
        writer.write(b"text")
    writer.close()
    assert "socket.send() raised exception" in logs.tail(tmp_path / "daemon.log", 1)[0]
    assert capsys.readouterr().err == ""


def test_nothing_there(tmp_path):
    assert logs.tail(tmp_path / "none.log", 5) == []


def test_following_sees_new_lines_across_a_rotation(tmp_path):
    file = tmp_path / "daemon.log"
    file.write_text("old\n")
    seen: list[str] = []
    ready, grown, done = threading.Event(), threading.Event(), threading.Event()

    def stop():
        ready.set()
        return done.is_set()

    def follow():
        for line in logs.follow(file, poll_s=0.01, stop=stop):
            seen.append(line)
            grown.set()

    thread = threading.Thread(target=follow)
    thread.start()
    assert ready.wait(20)
    for step in ("append", "rotate"):
        grown.clear()
        if step == "rotate":
            file.rename(tmp_path / "daemon.log.1")
        with file.open("a") as stream:
            stream.write(f"{step}\n")
        assert grown.wait(20)
    done.set()
    thread.join()
    assert seen == ["append", "rotate"]


def test_a_failed_start_is_told_in_sentences_and_forgotten_after_a_good_one():
    logs.forget_failed_starts()
    assert logs.last_failure() == []
    logs.daemon_stderr().write_text(
        '{"code": "port_in_use", "message": "Port 1 is in use.", "hint": "Choose another."}\n'
        '{"code": "daemon_already_running", "message": "One runs.", "hint": ""}\n'
        "Fatal Python error\n"
        "{no JSON\n"
    )
    assert logs.last_failure() == [
        "error: Port 1 is in use. Choose another.",
        "Fatal Python error",
        "{no JSON",
    ]
    logs.forget_failed_starts()
    assert logs.last_failure() == []
