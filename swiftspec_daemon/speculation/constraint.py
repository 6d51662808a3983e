"""Byte-prefix constraint: which tokens keep the new text on bytes that it must start with.

Used for token healing: the last bytes before the cursor are taken out of the prompt and required
of the new text. Works on the bytes of tokens, so it may split characters. Knows no tokenizer: it
is given the bytes of each token id.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


class TokenTable:
    """The bytes of each token id, sorted once so that a constraint's step takes microseconds."""

    def __init__(self, token_bytes: Sequence[bytes], excluded: Collection[int] = ()) -> None:
        """`token_bytes[id]` is b"" for special tokens; they and `excluded` are never allowed."""
        self.token_bytes = token_bytes
        self.excluded = frozenset(excluded)
        usable = [i for i, text in enumerate(token_bytes) if text and i not in self.excluded]
        usable.sort(key=lambda i: (token_bytes[i], i))
        self._ids = np.array(usable, dtype=np.intp)
        self._sorted = [token_bytes[i] for i in usable]
        self._longest = max(map(len, self._sorted), default=0)

    def starting_with(self, prefix: bytes) -> npt.NDArray[np.intp]:
        """Ids of the tokens whose bytes start with `prefix`, which is not empty."""
        low = bisect_left(self._sorted, prefix)
        after = _successor(prefix)
        high = len(self._sorted) if after is None else bisect_left(self._sorted, after, lo=low)
        return self._ids[low:high]

    def equal_to(self, text: bytes) -> npt.NDArray[np.intp]:
        """Ids of the tokens whose bytes are `text`: none, one, or several."""
        low = bisect_left(self._sorted, text)
        high = low
        while high < len(self._sorted) and self._sorted[high] == text:
            high += 1
        return self._ids[low:high]

    def fitting(self, rest: bytes) -> npt.NDArray[np.intp]:
        """Ids that start with `rest`, or are a non-empty proper prefix of it; in no order."""
        parts = [self.starting_with(rest)]
        parts += [
            self.equal_to(rest[:size]) for size in range(1, min(len(rest), self._longest + 1))
        ]
        return np.concatenate(parts)


@dataclass(frozen=True, slots=True)
class PrefixConstraint:
    """The state at one point of the text: the bytes that are still required.

    A value, so that each node of a token tree can hold its own.
    """

    table: TokenTable
    rest: bytes

    @property
    def open(self) -> bool:
        return bool(self.rest)

    def allowed(self) -> npt.NDArray[np.intp] | None:
        """Ids that may come next, or None if all may.

        Also None where no token of the vocabulary fits: the constraint is then given up, and the
        caller goes on with `released`. A vocabulary with all 256 single bytes always has one.
        """
        if not self.rest:
            return None
        ids = self.table.fitting(self.rest)
        return ids if len(ids) else None

    def fits(self, token: int) -> bool:
        """Whether the token is among those of `allowed`, told without making their list."""
        text = self.table.token_bytes[token]
        if not text or token in self.table.excluded:
            return False
        return text.startswith(self.rest) or self.rest.startswith(text)

    def after(self, token: int) -> PrefixConstraint:
        """The state behind an allowed token."""
        return PrefixConstraint(self.table, self.rest[len(self.table.token_bytes[token]) :])

    def released(self) -> PrefixConstraint:
        """The state that requires nothing."""
        return PrefixConstraint(self.table, b"")


def _successor(prefix: bytes) -> bytes | None:
    """The smallest byte string above all that start with `prefix`; None if there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None
