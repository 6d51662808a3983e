"""Counts of what the daemon did and what became of it. Holds numbers only, no text."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from swiftspec_daemon.protocol.messages import Counters, DoneReason


@dataclass(slots=True)
class Statistics:
    """The same fields as `Counters`, growing."""

    completions: int = 0
    shown: int = 0
    accepted: int = 0
    partly_accepted: int = 0
    rejected: int = 0
    cancelled: int = 0
    """Superseded ones too."""
    errors: int = 0
    new_tokens: int = 0

    def count_completion(self, reason: DoneReason, new_tokens: int) -> None:
        """A completion has ended."""
        self.completions += 1
        self.new_tokens += new_tokens
        self.cancelled += reason in ("cancelled", "superseded")
        self.errors += reason == "error"

    def counters(self) -> Counters:
        return Counters(**asdict(self))
