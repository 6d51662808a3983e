"""Memory of other processes: proportional set size, as the kernel counts it.

Pages that several processes share count in part for each (PSS), so the sum over processes is what
the machine gives. Where the system does not tell PSS, resident set size is taken.
"""

from __future__ import annotations

from pathlib import Path

import psutil

from swiftspec_daemon.errors import SwiftSpecError


def pss_mb(pid: int) -> float:
    """Proportional set size of process `pid` in 10^6 bytes. Raises SwiftSpecError if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
    except OSError:
        return _rss_mb(pid)
    for line in lines:
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024 / 1e6
    return _rss_mb(pid)


def _rss_mb(pid: int) -> float:
    try:
        return float(psutil.Process(pid).memory_info().rss) / 1e6
    except psutil.Error:
        raise SwiftSpecError(f"Process {pid} has ended, so its memory is not known.") from None
