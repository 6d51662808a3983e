"""What the bridge tells an editor about the daemon: one state, and a reason in one sentence.

Knows the daemon's status message; knows nothing of connections.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from swiftspec_daemon.errors import SwiftSpecError
from swiftspec_daemon.protocol.messages import Status

State = Literal["connecting", "ready", "loading", "unloaded", "failed", "unreachable"]


@dataclass(frozen=True)
class BridgeStatus:
    """The answer to `swiftspec/status`."""

    state: State
    reason: str = ""
    """Why there may be no completions, for people; empty when all is well."""
    hint: str = ""
    progress: float | None = None
    """How much of the model has been loaded, 0 to 1; None if it is not being loaded."""
    model: str = ""
    daemon: str = ""
    """Version of the daemon."""

    def to_json(self) -> dict[str, Any]:
        """The members that say something."""
        members = {name: getattr(self, name) for name in ("reason", "hint", "model", "daemon")}
        said: dict[str, Any] = {name: text for name, text in members.items() if text}
        if self.progress is not None:
            said["progress"] = round(self.progress, 3)
        return {"state": self.state, **said}

    @property
    def is_trouble(self) -> bool:
        """Whether the user has to do something."""
        return self.state in ("failed", "unreachable")


CONNECTING = BridgeStatus("connecting", "connecting to the daemon")


def unreachable(error: Exception) -> BridgeStatus:
    """The daemon cannot be reached, or refuses us."""
    if isinstance(error, SwiftSpecError):
        return BridgeStatus("unreachable", f"not reachable: {error.message}", error.hint)
    return BridgeStatus("unreachable", f"not reachable: {error or type(error).__name__}")


def of_daemon(status: Status) -> BridgeStatus:
    """The state of the daemon's model, in words."""
    model = status.model
    reason, progress = model.message, None
    if model.state == "loading":
        progress = model.fraction
        phase = f" ({model.phase})" if model.phase else ""
        reason = f"loading {model.name}{phase}: {model.fraction * 100:.0f} %"
    elif model.state == "unloaded" and not reason:
        reason = f"{model.name} is unloaded; the next key loads it"
    elif model.state == "ready":
        reason = ""
    return BridgeStatus(model.state, reason, model.hint, progress, model.name, status.version)
