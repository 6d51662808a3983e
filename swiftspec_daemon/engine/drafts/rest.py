"""Rounds in which nothing is proposed, because nothing pays: what is put off until they are over.

Even to find out that nothing pays costs a percent or two of a plain step: it isn't asked in each.
Knows tokens and seconds; neither sources nor planner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

_ROUSING = 2
"""Guesses in a row that were right, after which a rest is over."""


@dataclass(slots=True)
class Rest:
    """A rest of `left` rounds more."""

    left: int = 0
    guess: int | None = None
    """The token that a look-up would have proposed for this round."""
    rounds: int = 0
    """That have gone by, and"""
    tokens: list[int] = field(default_factory=list)
    """what was decided in them: one token each, and none where the text ended."""
    seconds: float = 0.0
    """Of the target's passes meanwhile."""
    _right: int = 0

    @property
    def roused(self) -> bool:
        """Guesses would have been right: it is over before its time."""
        return self._right >= _ROUSING

    def went_by(self, decided: Sequence[int], seconds: float) -> None:
        """A round of it is over."""
        self._right = self._right + 1 if [self.guess] == list(decided) else 0
        self.rounds += 1
        self.tokens += decided
        self.seconds += seconds
        self.left = 0 if self.roused else self.left - 1


__all__ = ["Rest"]
