"""Finding the daemon: records of the living and the dead, versions, HTTP on loopback."""

import http.server
import os
import subprocess
import sys
import threading

import pytest

from swiftspec_daemon import paths
from swiftspec_daemon.client import discovery
from swiftspec_daemon.errors import (
    DaemonNotRunning,
    EngineError,
    ProtocolError,
    SwiftSpecError,
    Unauthorized,
)
from swiftspec_daemon.protocol.record import DaemonRecord, Endpoint, write_record


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SWIFTSPEC_HOME", str(tmp_path))
    # loopback must never be asked for by way of a proxy
    monkeypatch.setenv("http_proxy", "http://proxy.example:9")
    paths.token_file().write_text("secret\n")


@pytest.fixture
def server():
    """An HTTP server with answers by path, and what it was asked."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self):
            length = int(self.headers.get("Content-Length", 0))
            asked.append((self.path, self.headers.get("Authorization"), self.rfile.read(length)))
            status, body = answers.get(self.path, (404, b""))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = answer  # noqa: N815

        def log_message(self, *_):
            pass

    answers, asked = {"/health": (200, b"ok")}, []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        listening.answers, listening.asked = answers, asked
        yield listening
        listening.shutdown()
        thread.join()


def publish(port: int, *, pid: int = os.getpid(), version: str = "0.1.0") -> None:
    record = DaemonRecord(
        pid=pid, host="127.0.0.1", port=port, version=version, protocol=1, started=0.0
    )
    write_record(paths.daemon_record_file(), record)


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_daemon_that_answers_is_found(server):
    publish(server.server_port, version="7.8.9")
    assert discovery.find() == Endpoint(
        host="127.0.0.1",
        port=server.server_port,
        token="secret",
        pid=os.getpid(),
        version="7.8.9",
    )
    assert server.asked == [("/health", None, b"")]


def test_no_record():
    assert discovery.find() is None
    with pytest.raises(DaemonNotRunning):
        discovery.require()


def test_a_record_of_a_dead_process_counts_as_none_whoever_has_the_port(server):
    publish(server.server_port, pid=dead_pid())
    assert discovery.find() is None
    assert server.asked == []


def test_a_record_whose_port_nobody_answers_counts_as_none(unused_tcp_port):
    publish(unused_tcp_port)
    assert discovery.find() is None


def test_a_server_that_is_not_healthy_counts_as_none(server):
    server.answers["/health"] = (503, b"")
    publish(server.server_port)
    assert discovery.find() is None


def test_a_token_that_cannot_be_read(server):
    paths.token_file().unlink()
    publish(server.server_port)
    with pytest.raises(Unauthorized, match="token"):
        discovery.find()


def test_asking_for_the_end(server):
    server.answers["/v1/shutdown"] = (202, b"{}")
    endpoint = Endpoint(host="127.0.0.1", port=server.server_port, token="secret")
    discovery.request_shutdown(endpoint, when_idle=True)
    assert server.asked == [("/v1/shutdown", "Bearer secret", b'{"when_idle": true}')]


@pytest.mark.parametrize(
    ("answer", "kind", "word"),
    [
        ((401, b""), Unauthorized, "token"),
        ((403, b""), Unauthorized, "token"),
        ((500, b'{"code": "engine_error", "message": "sad"}'), EngineError, "sad"),
        ((500, b'{"code": "protocol_error", "message": "odd"}'), ProtocolError, "odd"),
        ((500, b"oops"), SwiftSpecError, "500"),
    ],
)
def test_refusals(server, answer, kind, word):
    server.answers["/v1/shutdown"] = answer
    endpoint = Endpoint(host="127.0.0.1", port=server.server_port, token="t")
    with pytest.raises(kind, match=word):
        discovery.request_shutdown(endpoint)


def test_nobody_to_ask(unused_tcp_port):
    with pytest.raises(DaemonNotRunning):
        discovery.request_shutdown(Endpoint(host="127.0.0.1", port=unused_tcp_port, token="t"))


@pytest.mark.parametrize(
    ("version", "than", "older"),
    [
        ("0.1.0", "0.1.0", False),
        ("0.1.0", "0.1.1", True),
        ("0.9.0", "0.10.0", True),
        ("1.0", "0.9.9", False),
        ("0.1.0.dev3", "0.1.0", False),
        ("0.1", "0.1.0", True),
        ("2rc1", "2", False),
        ("", "0.1.0", True),
    ],
)
def test_versions_compare_by_number(version, than, older):
    assert discovery.is_older(version, than) is older


def test_a_process_that_has_ended_does_not_exist_even_as_a_zombie():
    process = subprocess.Popen(
        [sys.executable, "-c", "print(1)"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    assert process.stdout.read() == b"1\n"
    process.stdout.close()
    if sys.platform == "linux":
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # ended, not yet collected
        assert not discovery.process_exists(process.pid)
    process.wait()
    assert not discovery.process_exists(process.pid)
    assert discovery.process_exists(os.getpid())
