"""One daemon per user: the lock, the record that clients read, the port, the way to the end.

Knows files, sockets and process ids; knows nothing of requests, models or terminals.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import sys
import time
from types import TracebackType

from filelock import FileLock, Timeout

from swiftspec_daemon import __version__, paths
from swiftspec_daemon.errors import DaemonAlreadyRunning, PortInUse, SettingsError
from swiftspec_daemon.protocol.messages import PROTOCOL_VERSION
from swiftspec_daemon.protocol.record import DaemonRecord, read_record, write_record

_log = logging.getLogger(__name__)


class OneDaemon:
    """Holds the user's lock while the block runs, and the record once `publish` is called.

    The system frees the lock when the process dies, however it dies; a record that such a process
    left behind is removed by the next one. Raises DaemonAlreadyRunning on entering.
    """

    def __init__(self) -> None:
        self._lock = FileLock(paths.lock_file(), mode=0o600)
        self._record_file = paths.daemon_record_file()

    def __enter__(self) -> OneDaemon:
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise _already_running(read_record(self._record_file)) from None
        if self._record_file.exists():
            _log.info("removing the record of a daemon that did not end cleanly")
            self._record_file.unlink(missing_ok=True)
        return self

    def publish(self, host: str, port: int) -> DaemonRecord:
        """Tell clients where this process accepts connections."""
        record = DaemonRecord(
            pid=os.getpid(),
            host=host,
            port=port,
            version=__version__,
            protocol=PROTOCOL_VERSION,
            started=time.time(),
        )
        write_record(self._record_file, record)
        return record

    def withdraw(self) -> None:
        """Clients no longer find this process; the lock stays until the block ends."""
        self._record_file.unlink(missing_ok=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.withdraw()
        self._lock.release()


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to a loopback address; port 0 lets the system choose.

    Raises PortInUse, or SettingsError for an address that this machine does not have.
    """
    address = "127.0.0.1" if host == "localhost" else host
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener: socket.socket | None = None
    try:
        # asyncio switches Nagle's algorithm off only where the protocol is named; with it on, the
        # second of two small messages waits 40 ms for the client's delayed acknowledgement.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        if sys.platform != "win32":  # there it would let two programs share the port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        # Without a backlog, another socket may still be bound to the same port.
        listener.listen(128)
        listener.setblocking(False)
        return listener
    except OSError as error:
        if listener is not None:
            listener.close()
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            raise _port_in_use(port, error) from None
        raise SettingsError(
            f"This machine cannot listen on {host}: {error.strerror}.",
            "Set server.host to 127.0.0.1.",
        ) from None


def port_holder(port: int) -> str:
    """Name and pid of the program that listens on a TCP port, "" if the system does not say."""
    import psutil

    try:
        for connection in psutil.net_connections(kind="tcp"):
            listening = connection.status == psutil.CONN_LISTEN
            if listening and connection.laddr.port == port and connection.pid:
                return f"{psutil.Process(connection.pid).name()}, pid {connection.pid}"
    except (psutil.Error, OSError):
        pass  # other users' processes are hidden on some systems
    return ""


def _already_running(record: DaemonRecord | None) -> DaemonAlreadyRunning:
    if record is None:
        return DaemonAlreadyRunning(
            "A daemon is just starting or ending.", "Look again with `swiftspec status`."
        )
    return DaemonAlreadyRunning(
        f"A daemon is already running: pid {record.pid}, port {record.port}, "
        f"version {record.version}.",
        "Use it, or end it with `swiftspec stop`.",
    )


def _port_in_use(port: int, error: OSError) -> PortInUse:
    if error.errno == errno.EACCES:
        return PortInUse(
            f"Port {port} may not be used by this user.", "Choose one above 1023: `--port N`."
        )
    holder = port_holder(port)
    return PortInUse(
        f"Port {port} is in use by another program{f' ({holder})' if holder else ''}.",
        "Choose another one with `swiftspec serve --port N` (0: any free one), for good with "
        "`port = N` under [server] in settings.toml.",
    )
