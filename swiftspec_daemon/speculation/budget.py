"""What speculation may lose against plain decoding: an account, kept in plain steps.

Estimates can be wrong, for a while at least; this bounds what that costs, whatever the drafts do.
Knows no clock: costs are told.
"""

from __future__ import annotations

ALLOWANCE = 0.015
"""Share of plain decoding's time that may be spent on drafts that fail, for good."""
START = 15.0
"""Plain steps that may be lost on top of it in the beginning, and"""
CAP = 60.0
"""later, out of what was gained before."""


class LossBudget:
    """An account of losses and gains.

    As long as no round is begun that could cost more than its one certain token and the balance,
    `cost <= (1 + ALLOWANCE) * tokens + START` holds after every round, in plain steps.
    """

    def __init__(
        self, *, allowance: float = ALLOWANCE, start: float = START, cap: float = CAP
    ) -> None:
        self._allowance = allowance
        self._cap = cap
        self.balance = start
        """Plain steps that may be lost now."""

    def affords(self, loss: float) -> bool:
        """Whether a round may cost `loss` plain steps more than a plain one."""
        return loss <= self.balance

    def settle(self, tokens: int, cost: float) -> None:
        """A round gave `tokens` and cost that many plain steps."""
        gained = (1 + self._allowance) * tokens - cost
        self.balance = min(self._cap, self.balance + gained)


__all__ = ["ALLOWANCE", "CAP", "START", "LossBudget"]
