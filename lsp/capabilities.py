"""The answer to `initialize`: what the bridge offers to this editor.

Knows the Language Server Protocol 3.18; knows nothing of how the methods are answered.
"""

from __future__ import annotations

from typing import Any

from swiftspec_daemon import __version__

from .params import Client

ACCEPT_COMMAND = "swiftspec.accept"
_INCREMENTAL = 2


def initialize_result(client: Client) -> dict[str, Any]:
    """`InitializeResult`."""
    capabilities: dict[str, Any] = {
        "positionEncoding": client.position_encoding,
        "textDocumentSync": {"openClose": True, "change": _INCREMENTAL},
        "inlineCompletionProvider": {},
        "executeCommandProvider": {"commands": [ACCEPT_COMMAND]},
        "experimental": {"swiftspec": {"version": 1}},
    }
    if client.plain_completion:
        capabilities["completionProvider"] = {"resolveProvider": False}
    return {
        "capabilities": capabilities,
        "serverInfo": {"name": "swiftspec", "version": __version__},
    }
