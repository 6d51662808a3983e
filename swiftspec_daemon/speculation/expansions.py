"""SwiftSpec's d: how many times the draft expands its tree while the target verifies.

Section 4.5 of arXiv 2506.11309: with r = floor(t_target / t_draft), try d = r and d = r + 1 and
keep the faster. Here they are tried while decoding, in turns, and tried again now and then.
Knows no clock.
"""

from __future__ import annotations

_TRIAL = 16
"""Rounds of a try."""
_KEEP = 240
"""Rounds with the better one until the other is tried again."""


class Expansions:
    """Chooses between r and r + 1 by tokens per second."""

    def __init__(self) -> None:
        self.ratio = 0
        """r."""
        self.rates: list[float | None] = [None, None]
        """Tokens per second with r and with r + 1, when last measured."""
        self._extra = 0
        self._restart(_TRIAL)

    def steps(self, target_s: float, draft_s: float, most: int) -> int:
        """d for these durations, at most `most`. Another r starts the comparison anew."""
        ratio = int(target_s / draft_s) if draft_s > 0 else most
        # The durations are estimates that move a little: near a whole number r stays.
        if not self.ratio - 0.1 <= target_s / max(draft_s, 1e-9) < self.ratio + 1.1:
            self.ratio, self.rates, self._extra = ratio, [None, None], 0
            self._restart(_TRIAL)
        return max(0, min(self.ratio + self._extra, most))

    def observe(self, tokens: int, seconds: float) -> None:
        """A round with that d gave `tokens` and took `seconds` from one to the next."""
        self._tokens += tokens
        self._seconds += seconds
        self._rounds -= 1
        if self._rounds > 0 or self._seconds <= 0:
            return
        self.rates[self._extra] = self._tokens / self._seconds
        here, there = self.rates[self._extra], self.rates[1 - self._extra]
        if there is None or self._length == _KEEP:
            self._extra = 1 - self._extra
            self._restart(_TRIAL)
        else:
            if here is not None and there > here:
                self._extra = 1 - self._extra
            self._restart(_KEEP)

    def _restart(self, rounds: int) -> None:
        self._length = self._rounds = rounds
        self._tokens, self._seconds = 0, 0.0


__all__ = ["Expansions"]
