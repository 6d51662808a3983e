"""How long a forward pass takes by its number of rows: measured at start, kept up to date.

Knows durations that it is told, no clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from itertools import accumulate, pairwise

from swiftspec_daemon.errors import UsageError

_OWN = 0.1
"""Weight of a new duration for the number of rows that it was measured with."""
_COMMON = 0.02
"""And for all other numbers of rows: the machine got slower, or the context longer."""
_OUTLIER = 2.0
"""Longer or shorter by more than this factor counts as this factor: something else ran."""


class CostTable:
    """Seconds by rows, between the measured numbers of rows by straight lines.

    Never falls with more rows. Above the largest measured number of rows it goes on with the slope
    of the last two.
    """

    def __init__(self, seconds: Mapping[int, float]) -> None:
        """`seconds[rows]`, at least for one row. Raises UsageError for values that are none."""
        if 1 not in seconds or min(seconds) < 1 or not all(0 < s < 1e6 for s in seconds.values()):
            raise UsageError("A table of step times needs one row and only positive times.")
        self._rows = sorted(seconds)
        self._raw = [float(seconds[rows]) for rows in self._rows]
        self._start = self._raw
        self._seconds = list(accumulate(self._raw, max))
        self._table: list[float] = []

    def __call__(self, rows: int) -> float:
        """Seconds of a forward pass of `rows` (1 or more) rows."""
        known, seconds = self._rows, self._seconds
        right = bisect_left(known, rows)
        if right < len(known) and known[right] == rows:
            return seconds[right]
        right = min(right, len(known) - 1)
        if right == 0:
            return seconds[0]
        left = right - 1
        slope = (seconds[right] - seconds[left]) / (known[right] - known[left])
        return seconds[left] + slope * (rows - known[left])

    def upto(self, rows: int) -> list[float]:
        """`[i]` is the time of i rows, for i up to `rows` at least; [0] is that of one row. For
        reading, until the next `observe`."""
        if rows >= len(self._table):
            self._table = self._lines(rows)
        return self._table

    def measured(self) -> dict[int, float]:
        """Seconds by rows, where they were measured."""
        return dict(zip(self._rows, self._seconds, strict=True))

    def observe(self, rows: int, seconds: float) -> None:
        """A forward pass took that long. What is not a positive time is ignored."""
        if rows < 1 or not seconds > 0:
            return
        ratio = max(1 / _OUTLIER, min(_OUTLIER, seconds / self(rows)))
        if rows == 1:
            self._observe_one(ratio)
        else:
            common = ratio**_COMMON
            self._raw = [value * common for value in self._raw]
            for i, share in self._beside(rows):
                self._raw[i] *= ratio ** ((_OWN - _COMMON) * share)
        self._seconds = list(accumulate(self._raw, max))
        self._table = []

    def _observe_one(self, ratio: float) -> None:
        """One row took `ratio` of what was thought. What more rows cost goes back slowly to what
        was measured beside it: they may not be run for long if they are thought too dear, and
        would stay so when the machine has long been quicker."""
        one = self._raw[0] * ratio**_OWN
        scale = one / self._start[0]
        self._raw = [
            value * (start * scale / value) ** _COMMON
            for value, start in zip(self._raw, self._start, strict=True)
        ]
        self._raw[0] = one

    def _lines(self, rows: int) -> list[float]:
        known, seconds = self._rows, self._seconds
        table = [seconds[0], seconds[0]]
        slope = 0.0
        for left, (start, end) in enumerate(pairwise(known)):
            low = seconds[left]
            slope = (seconds[left + 1] - low) / (end - start)
            table += [low + slope * n for n in range(1, end - start)]
            table.append(seconds[left + 1])
        last = seconds[-1]
        table += [last + slope * n for n in range(1, rows + 2 - len(table))]
        return table

    def _beside(self, rows: int) -> list[tuple[int, float]]:
        """The measured numbers of rows next to `rows`, and how near each is."""
        known = self._rows
        right = bisect_left(known, rows)
        if right == len(known) or known[right] == rows:
            return [(min(right, len(known) - 1), 1.0)]
        share = (rows - known[right - 1]) / (known[right] - known[right - 1])
        return [(right - 1, 1 - share), (right, share)]


__all__ = ["CostTable"]
