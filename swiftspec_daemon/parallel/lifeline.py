"""The worker's side of its life: it must not outlive its parent, whatever happens to that.

Two independent cords: the parent holds the other end of standard input, which the system closes
when the parent dies in any way; and on Linux the kernel is asked for SIGKILL at that moment, which
reaches the worker even while native code holds the interpreter.
Knows nothing of what the worker computes.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_GRACE_S = 0.25
"""How long after the parent's end a worker may take to end by itself."""


def tie_to_parent(parent_pid: int) -> None:
    """Ignore Ctrl-C (the parent decides) and, on Linux, die with the parent's thread.

    Ends the process at once if the parent is gone already.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent_pid:  # it died before the call
            raise SystemExit(1)


def claim_standard_output() -> int:
    """A descriptor of the real standard output; what anybody prints goes to standard error."""
    sys.stdout.flush()
    descriptor = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    sys.stdout = sys.stderr
    return descriptor


def end_at_once(status: int) -> NoReturn:
    """End the process without the interpreter's own shutdown, which takes torch seconds.

    What was logged or printed is written out; `atexit` functions and finalizers do not run.
    """
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # its other end may be gone
            stream.flush()
    os._exit(status)


def start_reader(read: Callable[[], None]) -> threading.Thread:
    """Run `read`, which returns when standard input ends, in a thread of its own.

    When it returns the process has a moment to end by itself, then it is ended: the main thread
    may be deep in a computation that nobody waits for any more.
    """

    def run() -> None:
        try:
            read()
        finally:
            threading.Event().wait(_GRACE_S)
            os._exit(0)

    thread = threading.Thread(target=run, name="commands", daemon=True)
    thread.start()
    return thread
