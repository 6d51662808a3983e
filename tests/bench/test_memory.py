"""Proportional set size of a process."""

import os
import subprocess
import sys

import pytest

from swiftspec_daemon.bench.memory import pss_mb
from swiftspec_daemon.errors import SwiftSpecError

HOLD = (
    "import sys; held = bytearray(b'x' * 100_000_000); print('held', flush=True); sys.stdin.read()"
)


def test_memory_of_a_process_grows_with_what_it_holds():
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        assert 100 < pss_mb(child.pid) < 150
        child.communicate()
    assert pss_mb(os.getpid()) > 5


def test_a_process_that_is_gone():
    with pytest.raises(SwiftSpecError, match="has ended"):
        pss_mb(2**22 + 1)
