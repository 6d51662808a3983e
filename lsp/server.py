"""`swiftspec lsp`: the process of the bridge, from its arguments to its exit status.

Knows standard input and output, signals of the editor's end, and logging; the methods are in
`bridge.py`. Ends with 0 after `shutdown` and `exit`, with 1 after an `exit` or an end of input
without `shutdown`, as the Language Server Protocol says, and with 9 if the input's framing is lost.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import threading
from collections.abc import Sequence
from typing import Any

from pygls.exceptions import (
    JsonRpcException,
    JsonRpcInvalidRequest,
    JsonRpcServerNotInitialized,
)

from . import params
from .bridge import Bridge
from .capabilities import initialize_result
from .framing import FramingError
from .rpc import RpcServer

_log = logging.getLogger(__name__)
_CLOSE_S = 0.3
"""How long the goodbye to the daemon may take."""


def main(argv: Sequence[str]) -> int:
    """Run the bridge until the editor ends it; returns the exit status. `argv` without `lsp`."""
    arguments = _parser().parse_args(argv)
    _set_up_logging(arguments.log_level)
    process = BridgeProcess(start_daemon=not arguments.no_start)
    runner = asyncio.Runner()
    try:
        status = runner.run(process.run())
    except KeyboardInterrupt:
        status = 130
    if threading.active_count() > 1:
        # A thread waits for a daemon, for up to a minute, and closing the runner would wait for
        # the thread. The editor is gone, so that nothing is left to be done.
        logging.shutdown()
        os._exit(status)
    runner.close()
    return status


class BridgeProcess:
    """The life of one bridge: from `initialize` to `exit`."""

    def __init__(self, *, start_daemon: bool) -> None:
        self._server = RpcServer()
        self._start_daemon = start_daemon
        self._bridge: Bridge | None = None
        self._initialized = False
        self._shut_down = False

    async def run(self) -> int:
        """Serve until the editor or its end stops us; returns the exit status."""
        self._bridge = Bridge(self._server, start_daemon=self._start_daemon)
        self._bridge.register()
        for method, handler in {
            "initialize": self._initialize,
            "initialized": _nothing,
            "$/setTrace": _nothing,
            "shutdown": self._shutdown,
            "exit": self._exit,
        }.items():
            self._server.handle(method, handler)
        self._server.set_guard(self._refusal)
        lost_framing: FramingError | None = None
        try:
            await self._server.serve()
        except FramingError as error:
            _log.error("%s", error)
            lost_framing = error
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._bridge.close()
        except TimeoutError:
            pass
        if lost_framing is not None:
            return lost_framing.exit_code
        return 0 if self._shut_down else 1

    def _initialize(self, given: Any) -> dict[str, Any]:
        self._initialized = True
        client = params.client(given)
        if self._bridge is not None:
            self._bridge.start(client)
        if client.process_id is not None:
            self._end_with(client.process_id)
        return initialize_result(client)

    def _refusal(self, method: str) -> JsonRpcException | None:
        """The protocol's order of calls: `initialize` first and once, after `shutdown` `exit`."""
        if method == "exit":
            return None
        if self._shut_down:
            return JsonRpcInvalidRequest("The server has been shut down.")
        if not self._initialized and method != "initialize":
            return JsonRpcServerNotInitialized("The first request must be initialize.")
        if self._initialized and method == "initialize":
            return JsonRpcInvalidRequest("The server is initialized already.")
        return None

    def _shutdown(self, _given: Any) -> None:
        self._shut_down = True

    def _exit(self, _given: Any) -> None:
        self._server.stop()

    def _end_with(self, process_id: int) -> None:
        """Stop when the editor's process ends, in case another one holds its end of the pipe.

        An editor that cannot be seen (another machine's, another container's) is not watched.
        """
        if not hasattr(os, "pidfd_open"):
            return
        try:
            handle = os.pidfd_open(process_id)
        except OSError:
            return
        asyncio.get_running_loop().add_reader(handle, self._server.stop)


def _nothing(_given: Any) -> None:
    """For notifications that need no answer and no deed."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="swiftspec lsp",
        description="Language server on standard input and output, for editors to start.",
    )
    parser.add_argument("--stdio", action="store_true", help="the default; editors may add it")
    parser.add_argument("--no-start", action="store_true", help="never start a daemon")
    parser.add_argument(
        "--log-level",
        default="warning",
        choices=("debug", "info", "warning", "error"),
        help="what is written to standard error; never text of documents",
    )
    return parser


def _set_up_logging(level: str) -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=level.upper(),
        format="swiftspec lsp %(levelname)s %(message)s",
    )
    # These two log whole messages, and with them the user's text.
    for library in ("pygls", "websockets"):
        logging.getLogger(library).setLevel(logging.CRITICAL)
