"""Finds the user's daemon, starts one where none runs, replaces one of an older version.

Knows the daemon's record and token files and a few HTTP calls on loopback (never by a proxy);
knows nothing of the websocket.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from swiftspec_daemon import __version__, paths, settings
from swiftspec_daemon.client.failures import error_for
from swiftspec_daemon.errors import (
    DaemonAlreadyRunning,
    DaemonNotRunning,
    ProtocolError,
    SwiftSpecError,
    Unauthorized,
)
from swiftspec_daemon.protocol.messages import Status
from swiftspec_daemon.protocol.record import Endpoint, read_record

_log = logging.getLogger(__name__)

START_TIMEOUT_S = 60.0
"""How long a new daemon may take until it accepts connections (the model loads later)."""
REPLACE_TIMEOUT_S = 10.0
"""How long we wait for an older daemon to become idle before we use it as it is."""
_POLL_S = 0.05
_RESPAWN_S = 1.0
"""How long another daemon may hold the lock without answering until we try for it again."""


def find() -> Endpoint | None:
    """The running daemon, or None. A record that a crash left behind counts as none."""
    record = read_record(paths.daemon_record_file())
    if record is None or not process_exists(record.pid) or not answers(record.host, record.port):
        return None
    return record.endpoint(read_token())


def require(hint: str = "Start one with `swiftspec serve`.") -> Endpoint:
    """The running daemon.

    Raises DaemonNotRunning with the hint, or SettingsError where settings keep it from starting.
    """
    endpoint = find()
    if endpoint is None:
        settings.load()
        raise DaemonNotRunning("No daemon is running.", hint)
    return endpoint


def ensure_running(
    flags: Mapping[str, Any] | None = None,
    *,
    settings_file: Path | None = None,
    timeout_s: float = START_TIMEOUT_S,
) -> Endpoint:
    """The running daemon, started in the background if there was none.

    Returns as soon as it accepts connections; the model may still be loading. `flags` maps dotted
    names of settings to values, `settings_file` stands for the user's settings.toml; both matter
    only to a daemon that is started here. A daemon of an
    older version is replaced if it is idle soon. Safe to call from several processes at once.
    Raises DaemonNotRunning, or what the new daemon failed with (PortInUse, SettingsError, ...).
    """
    endpoint = find()
    if endpoint is not None and not is_older(endpoint.version, __version__):
        return endpoint
    if endpoint is not None and not _retire(endpoint):
        return endpoint
    arguments: list[str] = []
    for name, value in (flags or {}).items():
        if value is not None:
            arguments += ["--set", f"{name}={value}"]
    if settings_file is not None:
        arguments += ["--settings", str(settings_file.absolute())]
    return _start(arguments, timeout_s)


def answers(host: str, port: int, timeout_s: float = 2.0) -> bool:
    """Whether a daemon accepts connections there."""
    try:
        return _http(host, port, "GET", "/health", timeout_s=timeout_s)[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def read_status(endpoint: Endpoint) -> Status:
    """What a daemon is doing, asked without a connection that it would count as a client's.

    Raises DaemonNotRunning, Unauthorized, or ProtocolError for an answer that is none.
    """
    try:
        code, body = _http(endpoint.host, endpoint.port, "GET", "/v1/status", token=endpoint.token)
    except (OSError, http.client.HTTPException) as error:
        raise DaemonNotRunning(f"The daemon does not answer: {error}.") from None
    if code != 200:
        raise _http_error(code, body)
    try:
        return msgspec.json.decode(body, type=Status)
    except msgspec.DecodeError as error:
        raise ProtocolError(
            f"The daemon's status is not as it should be: {error}.",
            "Is another program listening there? See `swiftspec doctor`.",
        ) from None


def request_shutdown(endpoint: Endpoint, *, when_idle: bool = False) -> None:
    """Ask the daemon to end, at once or as soon as no completion runs; returns at once."""
    try:
        status, body = _http(
            endpoint.host,
            endpoint.port,
            "POST",
            "/v1/shutdown",
            token=endpoint.token,
            body=json.dumps({"when_idle": when_idle}),
        )
    except (OSError, http.client.HTTPException) as error:
        raise DaemonNotRunning(f"The daemon does not answer: {error}.") from None
    if status >= 300:
        raise _http_error(status, body)


def wait_gone(endpoint: Endpoint, timeout_s: float) -> bool:
    """Wait until that daemon's process has ended; False if it still runs after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        record = read_record(paths.daemon_record_file())
        gone = record is None or record.pid != endpoint.pid
        if gone and (endpoint.pid is None or not process_exists(endpoint.pid)):
            return True
        time.sleep(_POLL_S)
    return False


def read_token() -> str:
    """The token that the daemon asks for. Raises Unauthorized if it cannot be read."""
    file = paths.token_file()
    try:
        return file.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Unauthorized(
            f"The token in {file} cannot be read: {error}.",
            "Run `swiftspec token rotate` to make a new one.",
        ) from None


def process_exists(pid: int) -> bool:
    """Whether a process has this id. A process that only waits for its parent does not count."""
    if sys.platform == "win32":  # os.kill would end it
        import psutil

        return bool(psutil.pid_exists(pid))
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _is_zombie(pid)


def is_older(version: str, than: str) -> bool:
    """Compare the numbers of two versions; suffixes do not count, no numbers are oldest."""
    return _numbers(version) < _numbers(than)


def _numbers(version: str) -> list[int]:
    numbers = []
    for part in version.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return numbers


def _is_zombie(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[:1] == [b"Z"]


def _retire(endpoint: Endpoint) -> bool:
    """Ask an older daemon to end once idle; whether it did in time."""
    _log.info("replacing daemon %s of version %s", endpoint.pid, endpoint.version)
    try:
        request_shutdown(endpoint, when_idle=True)
    except DaemonNotRunning:
        pass  # gone already
    except SwiftSpecError as error:
        _log.warning("the older daemon could not be replaced: %s", error)
        return False
    return wait_gone(endpoint, REPLACE_TIMEOUT_S)


def _start(arguments: list[str], timeout_s: float) -> Endpoint:
    errors = paths.log_dir() / "daemon.stderr.log"
    begin = errors.stat().st_size if errors.exists() else 0
    if begin > 1_000_000:
        errors.write_bytes(b"")
        begin = 0
    child = _spawn(arguments, errors)
    deadline = time.monotonic() + timeout_s
    lost_at: float | None = None
    while time.monotonic() < deadline:
        endpoint = find()
        if endpoint is not None:
            return endpoint
        code = child.poll()
        if code is not None and code != DaemonAlreadyRunning.exit_code:
            raise _start_failure(errors, begin, code)
        if code is not None:
            # Another daemon has the lock: one that starts, which will answer, or one that ends.
            lost_at = lost_at or time.monotonic()
            if time.monotonic() - lost_at > _RESPAWN_S:
                child, lost_at = _spawn(arguments, errors), None
        time.sleep(_POLL_S)
    raise DaemonNotRunning(
        f"The daemon did not accept connections within {timeout_s:.0f} seconds.",
        "Look at `swiftspec logs`.",
    )


def _spawn(arguments: list[str], errors: Path) -> subprocess.Popen[bytes]:
    # -P: a folder of the user's that happens to be the working folder must not shadow modules.
    command = [sys.executable, "-P", "-m", "swiftspec_daemon", "serve", "--background-child"]
    command += arguments
    environment = dict(os.environ)
    if home := environment.get("SWIFTSPEC_HOME"):
        environment["SWIFTSPEC_HOME"] = str(Path(home).expanduser().absolute())
    apart: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        flag = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.DETACHED_PROCESS
        apart = {"creationflags": flag}
    with open(errors, "ab", opener=lambda name, flags: os.open(name, flags, 0o600)) as stream:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stream,
            cwd=paths.state_dir(),
            env=environment,
            **apart,
        )


def _start_failure(errors: Path, begin: int, code: int) -> SwiftSpecError:
    """The error that the child wrote in its last line as JSON, or a general one."""
    with errors.open("rb") as stream:
        # the file is emptied when a daemon starts well, maybe another one than ours
        stream.seek(min(begin, errors.stat().st_size))
        lines = stream.read().splitlines()
    for line in reversed(lines):
        try:
            failure = json.loads(line)
            return error_for(failure["code"], failure["message"], failure.get("hint", ""))
        except (ValueError, KeyError, TypeError):
            continue
    return DaemonNotRunning(
        f"The daemon ended at once with status {code}.", f"Its last words are in {errors}."
    )


def _http(
    host: str,
    port: int,
    method: str,
    path: str,
    *,
    token: str = "",
    body: str | None = None,
    timeout_s: float = 10.0,
) -> tuple[int, bytes]:
    """Status and body. http.client knows no proxies, which is what loopback needs."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if body is not None:
        headers["Content-Type"] = "application/json"
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request(method, path, body=body, headers=headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def _http_error(status: int, body: bytes) -> SwiftSpecError:
    if status in (401, 403):
        return Unauthorized(
            "The daemon refuses the token.",
            "It may be another user's daemon, or the token was changed: restart the daemon.",
        )
    try:
        failure = json.loads(body)
        return error_for(failure["code"], failure["message"], failure.get("hint", ""))
    except (ValueError, KeyError, TypeError):
        return SwiftSpecError(f"The daemon answered with HTTP status {status}.")
