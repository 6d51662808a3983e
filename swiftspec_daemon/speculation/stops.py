"""Stop byte strings, matched across token boundaries.

Knows bytes only, and is a value, so that each node of a token tree can hold its own state.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StopMatcher:
    """The state at one point of the text."""

    stops: tuple[bytes, ...]
    """Not empty strings."""
    skip: int = 0
    """Bytes still to pass before a stop string may begin."""
    tail: bytes = b""
    """The end of the text that could be the beginning of a stop string."""

    def after(self, text: bytes) -> tuple[StopMatcher, bool]:
        """The state behind `text`, and whether a stop string was completed in it."""
        if not self.stops:
            return self, False
        skipped = min(self.skip, len(text))
        window = self.tail + text[skipped:]
        keep = max(map(len, self.stops)) - 1
        found = any(stop in window for stop in self.stops)
        tail = window[-keep:] if keep else b""
        return StopMatcher(self.stops, self.skip - skipped, tail), found
