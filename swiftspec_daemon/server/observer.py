"""Whoever wants to hear what the daemon does: the command line in the foreground.

Knows nothing of how it is shown.
"""

from __future__ import annotations

from swiftspec_daemon.engine.interface import EngineStatus
from swiftspec_daemon.protocol.record import Endpoint


class Observer:
    """Is told what the daemon does; this one does nothing. Runs on the event loop."""

    def engine_changed(self, status: EngineStatus) -> None:
        """The model was loaded, has failed, is a step further."""

    async def serving(self, endpoint: Endpoint) -> bool:
        """Connections are accepted; the daemon may be used. True ends it, and so does an error.

        Cancelled when the daemon ends before.
        """
        return False

    def told_to_end(self) -> None:
        """Another program has told the daemon to end, as `swiftspec stop` does."""

    def ended(self) -> None:
        """The daemon has ended, also when it failed. Nothing is told after this."""
