"""What the planner knows of one source, and what it asks of an asynchronous draft.

Plain data for `planner.py`; decides nothing but whether a probe can be paid for.
"""

from __future__ import annotations

from typing import NamedTuple

from swiftspec_daemon.speculation.costs import CostTable


class AsyncPlan(NamedTuple):
    """What an asynchronous draft is asked to do (SwiftSpec, algorithm 1)."""

    size: int
    """Nodes of the tree that is wanted, the root included (bs)."""
    width: int
    """Leaves that one forward pass expands (w)."""
    steps: int
    """Expansions while the target verifies (d)."""
    just_in_time: int
    """Expansions that are worth waiting for where the tree was lost."""
    deadline_s: float
    """How long the target waits for the tree."""


class PlannedSource:
    """What the planner knows of one source."""

    def __init__(self, costs: CostTable, *, lookup: bool) -> None:
        self.costs = costs
        self.lookup = lookup
        self.credit = 0.0
        """Plain steps that a probe may be expected to lose."""
        self.probing = False
        self.used = self.asked = False
        """In this round."""
        self.worth = 1.0
        """Tokens a round that it brought more than it cost, of late."""
        self.spent = 0.0
        """Seconds in this round, and"""
        self.gain = 0.0
        """its part in what the chosen tree is expected to gain."""

    def probe(self, loss: float) -> bool:
        """Whether to try it although `loss` plain steps are likely to be lost by it."""
        if loss > self.credit:
            return False
        self.credit -= loss
        self.probing = True
        return True


__all__ = ["AsyncPlan", "PlannedSource"]
