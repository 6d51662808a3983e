"""The public client: `AsyncClient` and `Client`.

    from swiftspec_daemon.client import Client, Position

Names are imported when they are first used, so that `swiftspec_daemon.client.discovery` alone
costs no websocket library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swiftspec_daemon.client.aio import AsyncClient
    from swiftspec_daemon.client.blocking import BlockingCompletion, Client
    from swiftspec_daemon.client.discovery import ensure_running
    from swiftspec_daemon.client.failures import error_for
    from swiftspec_daemon.client.stream import Completion, CompletionEvent
    from swiftspec_daemon.protocol.messages import (
        Delta,
        Done,
        Edit,
        Error,
        FirstLine,
        Position,
        Status,
        Timings,
    )
    from swiftspec_daemon.protocol.record import Endpoint
    from swiftspec_daemon.protocol.speculation import SpeculationReport, SpeculationStatus

_HOMES = {
    "AsyncClient": "swiftspec_daemon.client.aio",
    "BlockingCompletion": "swiftspec_daemon.client.blocking",
    "Client": "swiftspec_daemon.client.blocking",
    "Completion": "swiftspec_daemon.client.stream",
    "CompletionEvent": "swiftspec_daemon.client.stream",
    "Delta": "swiftspec_daemon.protocol.messages",
    "Done": "swiftspec_daemon.protocol.messages",
    "Edit": "swiftspec_daemon.protocol.messages",
    "Endpoint": "swiftspec_daemon.protocol.record",
    "Error": "swiftspec_daemon.protocol.messages",
    "FirstLine": "swiftspec_daemon.protocol.messages",
    "Position": "swiftspec_daemon.protocol.messages",
    "SpeculationReport": "swiftspec_daemon.protocol.speculation",
    "SpeculationStatus": "swiftspec_daemon.protocol.speculation",
    "Status": "swiftspec_daemon.protocol.messages",
    "Timings": "swiftspec_daemon.protocol.messages",
    "ensure_running": "swiftspec_daemon.client.discovery",
    "error_for": "swiftspec_daemon.client.failures",
}

__all__ = [
    "AsyncClient",
    "BlockingCompletion",
    "Client",
    "Completion",
    "CompletionEvent",
    "Delta",
    "Done",
    "Edit",
    "Endpoint",
    "Error",
    "FirstLine",
    "Position",
    "SpeculationReport",
    "SpeculationStatus",
    "Status",
    "Timings",
    "ensure_running",
    "error_for",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)
