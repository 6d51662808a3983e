"""Which of the engine's tokens are text that the user has not written, and how many may be.

Knows tokens and their bytes; knows no text and no engine.
"""

from __future__ import annotations

from collections.abc import Sequence

from swiftspec_daemon.completion.tokenizer import Tokenizer


class Allowance:
    """`limit` tokens of text beyond the cursor.

    The first `required` bytes that come stand before the cursor already: token healing has the
    engine write them again. A token that writes beyond them counts, whole.
    """

    def __init__(self, tokenizer: Tokenizer, *, required: int, limit: int) -> None:
        self._tokenizer = tokenizer
        self._required = required
        self._left = limit

    @property
    def used_up(self) -> bool:
        """No further token may come."""
        return self._left == 0

    def take(self, ids: Sequence[int]) -> tuple[list[int], int]:
        """Those of further tokens that may come, from the first on, and how many of them count."""
        taken: list[int] = []
        counted = 0
        for token in ids:
            if self.used_up:
                break
            taken.append(token)
            length = len(self._tokenizer.token_bytes(token))
            if length > self._required:
                counted += 1
                self._left -= 1
            self._required = max(self._required - length, 0)
        return taken, counted
