"""Without native kernels everything is slow: people are told where they look."""

import io

import msgspec
import pytest
from rich.console import Console

from swiftspec_daemon.cli import daemon
from swiftspec_daemon.cli.foreground import LoadingDisplay
from swiftspec_daemon.engine.interface import EngineStatus
from swiftspec_daemon.engine.scripted import SCRIPTED_READY
from swiftspec_daemon.protocol.messages import ModelStatus, Status
from swiftspec_daemon.protocol.record import Endpoint

KERNELS = pytest.mark.parametrize(
    ("kernels", "told"), [("numpy, numpy 2.4.6", True), ("avx512-vnni, gcc 12.2", False)]
)


@KERNELS
def test_the_foreground_says_that_kernels_are_missing(kernels, told):
    shown = io.StringIO()
    ready = msgspec.structs.replace(SCRIPTED_READY, kernels=kernels)
    LoadingDisplay(Console(file=shown, width=200)).show(EngineStatus(state="ready", ready=ready))
    assert "is ready" in shown.getvalue()
    assert ("not built" in shown.getvalue()) == told


@KERNELS
def test_so_does_status(kernels, told, capsys):
    model = ModelStatus(name="m", state="ready", backend="native", kernels=kernels)
    status = Status(version="1", pid=1, uptime_s=1.0, model=model)
    endpoint = Endpoint(host="127.0.0.1", port=1, token="t")
    daemon._print_status(endpoint, status)
    shown = capsys.readouterr()
    assert kernels in shown.out
    assert ("not built" in shown.err) == told
