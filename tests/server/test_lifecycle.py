"""One daemon per user: lock, record, port."""

import asyncio
import os
import socket
import stat
import subprocess
import sys

import pytest

from swiftspec_daemon import __version__, paths
from swiftspec_daemon.errors import DaemonAlreadyRunning, PortInUse, SettingsError
from swiftspec_daemon.protocol.record import DaemonRecord, read_record, write_record
from swiftspec_daemon.server.lifecycle import OneDaemon, listen, port_holder

HOLDER = """
import time
from swiftspec_daemon.server.lifecycle import OneDaemon
with OneDaemon() as one:
    one.publish("127.0.0.1", 4711)
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SWIFTSPEC_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def other_daemon():
    """Another process that holds the lock."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_the_record_says_who_where_and_which_version():
    with OneDaemon() as one:
        assert read_record(paths.daemon_record_file()) is None
        record = one.publish("127.0.0.1", 1234)
        assert read_record(paths.daemon_record_file()) == record
        assert (record.pid, record.port, record.version) == (os.getpid(), 1234, __version__)
        assert record.endpoint("t").url == "ws://127.0.0.1:1234/v1/ws"
        if os.name == "posix":
            assert stat.S_IMODE(paths.daemon_record_file().stat().st_mode) == 0o600
    assert not paths.daemon_record_file().exists()


def test_a_second_one_is_told_about_the_first(other_daemon):
    with pytest.raises(DaemonAlreadyRunning) as told, OneDaemon():
        pass
    for word in (f"pid {other_daemon.pid}", "port 4711", f"version {__version__}"):
        assert word in told.value.message
    assert told.value.exit_code == 4
    assert read_record(paths.daemon_record_file()).pid == other_daemon.pid


def test_after_a_kill_the_next_one_cleans_up(other_daemon):
    other_daemon.kill()
    other_daemon.wait()
    assert read_record(paths.daemon_record_file()).port == 4711
    with OneDaemon():
        assert not paths.daemon_record_file().exists()


def test_a_broken_record_counts_as_none():
    paths.daemon_record_file().write_text("{")
    assert read_record(paths.daemon_record_file()) is None
    with OneDaemon():
        pass


def test_a_record_is_replaced_in_one_step(tmp_path):
    file = tmp_path / "daemon.json"
    for port in (1, 2):
        record = DaemonRecord(
            pid=1, host="::1", port=port, version="0.1.0", protocol=1, started=0.0
        )
        write_record(file, record)
        assert read_record(file) == record
    assert record.endpoint("t").address == "http://[::1]:2"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["daemon.json"]


def test_a_port_in_use_names_the_way_out_and_who_holds_it():
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(PortInUse) as told:
            listen("127.0.0.1", port)
        assert str(port) in told.value.message
        assert "--port" in told.value.hint
        if sys.platform == "linux":
            assert f"pid {os.getpid()}" in told.value.message
            assert f"pid {os.getpid()}" in port_holder(port)


def test_a_port_that_is_only_bound_is_in_use_too():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(PortInUse):
            listen("127.0.0.1", bound.getsockname()[1])


def test_localhost_is_loopback():
    with listen("localhost", 0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


def test_an_address_that_this_machine_lacks():
    with pytest.raises(SettingsError, match="cannot listen"):
        listen("192.0.2.1", 0)


async def test_accepted_connections_do_not_wait_for_acknowledgements():
    """TCP_NODELAY is on, or the second of two small messages would come 40 ms late."""
    options: list[int] = []

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = writer.get_extra_info("socket")
        options.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    with listen("127.0.0.1", 0) as listener:
        async with await asyncio.start_server(accept, sock=listener):
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            await reader.read()
            writer.close()
    assert options == [1]
