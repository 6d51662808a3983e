"""One process at a time: a lock file, and word of it while waiting. Knows not what it guards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from swiftspec_daemon.models import Progress


@contextmanager
def locked(file: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock `file`; reports the phase "waiting for another process" if it is taken.

    The system frees the lock of a process that dies. Raises OSError where the file cannot be made.
    """
    lock = filelock.FileLock(file)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        progress("waiting for another process", 0.0)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
