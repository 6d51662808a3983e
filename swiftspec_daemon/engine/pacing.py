"""How many tokens a prefill block may have, so that a cancel is heard soon.

Knows durations that it is told, no clock.
"""

from __future__ import annotations

BLOCK_TOKENS = 16
"""Blocks are multiples of this, the row count that backends are made for."""
_MAX_BLOCK_TOKENS = 512
_WEIGHT = 0.5


class Pacer:
    """Learns the time a token takes in a prefill block."""

    def __init__(self, budget_ms: float) -> None:
        self._budget_ms = budget_ms
        self._token_ms: float | None = None

    @property
    def block(self) -> int:
        """Tokens of the next block: what fits the budget, at least `BLOCK_TOKENS`."""
        if self._token_ms is None:
            return BLOCK_TOKENS
        fitting = self._budget_ms / max(self._token_ms, self._budget_ms / _MAX_BLOCK_TOKENS)
        return max(BLOCK_TOKENS, int(fitting) // BLOCK_TOKENS * BLOCK_TOKENS)

    def record(self, tokens: int, elapsed_ms: float) -> None:
        """A block took that long. Blocks below `BLOCK_TOKENS` say nothing about larger ones."""
        if tokens < BLOCK_TOKENS:
            return
        sample = elapsed_ms / tokens
        known = self._token_ms
        self._token_ms = sample if known is None else known + _WEIGHT * (sample - known)
