"""What look-ups may copy from besides the request itself: past suggestions and other texts.

Held in memory alone, within bounds. A past suggestion is the new text of a request and what stood
before it: when the user types one more character, the next request would mostly say the same again
(SuffixDecoding, arXiv 2411.04975, keeps past outputs for the same reason). Knows token ids and
names of texts, no request and no clock.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from swiftspec_daemon.speculation.suffix import MAX_MATCH, ORDER, SuffixStore

_CONTEXT = MAX_MATCH + 8
"""Tokens kept before a suggestion: so that a whole match fits where token healing has cut the next
prompt some tokens before the end of this one."""
_MOST_NEW = 512
"""Of a longer suggestion the beginning is kept."""
_PER_TEXT = 8
_MOST_PAST_TOKENS, _MOST_PAST = 16_384, 64
_MOST_TOKENS, _MOST_TEXTS = 65_536, 64
_LONGEST = 16_384
"""Of a longer text the beginning is kept."""
_SLICE = 512
"""Tokens that are taken in at once: about a millisecond."""
_CUT = 2
"""Tokens at the end of an accepted suggestion that token healing may take off the prompt."""
_RECENT = 2048
"""Tokens before the cursor among which accepted suggestions are looked for."""


class Remembered:
    """One for each worker."""

    def __init__(self) -> None:
        self.past = SuffixStore(_MOST_PAST_TOKENS, _MOST_PAST)
        self.texts = SuffixStore(_MOST_TOKENS, _MOST_TEXTS)
        self._numbers = itertools.count(1)
        self._said: dict[str, dict[str, _Suggestion]] = {}
        """By text and by name in `past`, the oldest first."""
        self._queue: dict[str, list[int]] = {}
        """Texts that are not taken in yet, or not to their end."""

    # --- past suggestions -----------------------------------------------------------------------

    def suggested(self, text_id: str, tokens: Sequence[int], prompt: int) -> None:
        """A request for this text has ended; `tokens` are its `prompt` tokens and the new ones.

        One that is a part of another one's text is not kept beside it: it would vote twice.
        """
        if not text_id or len(tokens) == prompt:
            return
        before = max(0, prompt - _CONTEXT)
        new = _Suggestion(list(tokens[before : prompt + _MOST_NEW]), prompt - before)
        mine = self._said.pop(text_id, {})
        self._said[text_id] = mine  # the one completed last is last
        for name, old in list(mine.items()):
            if new.part_of(old.tokens):
                new = old
            if old.part_of(new.tokens):
                self._drop(mine, name)
        name = str(next(self._numbers))
        mine[name] = new
        self.past.add(name, new.tokens)
        while len(mine) > _PER_TEXT:
            self._drop(mine, next(iter(mine)))
        self._follow_evictions()

    def settle(self, text_id: str, prompt: Sequence[int]) -> None:
        """A request begins: what the user has accepted stands in its prompt, and only there."""
        mine = self._said.get(text_id)
        if not mine:
            return
        recent = list(prompt[-_RECENT:])
        for name, old in list(mine.items()):
            if len(old.tokens) - old.before > _CUT and old.part_of(recent, _CUT):
                self._drop(mine, name)

    def _drop(self, mine: dict[str, _Suggestion], name: str) -> None:
        del mine[name]
        self.past.remove(name)

    def _follow_evictions(self) -> None:
        """Let go of what `past` had no room for."""
        for text_id, mine in list(self._said.items()):
            for name in [name for name in mine if name not in self.past]:
                del mine[name]
            if not mine:
                del self._said[text_id]

    # --- other texts ----------------------------------------------------------------------------

    @property
    def waiting(self) -> bool:
        """There are texts to be taken in."""
        return bool(self._queue)

    def remember(self, text_id: str, tokens: Sequence[int]) -> None:
        """Have this text in place of the one of its name, once `take_in` was called for it."""
        self._drop_text(text_id)
        self._queue[text_id] = list(tokens[:_LONGEST])
        while len(self._queue) > _MOST_TEXTS:
            del self._queue[next(iter(self._queue))]

    def forget(self, text_id: str) -> None:
        """Forget a text and the suggestions for it."""
        self._drop_text(text_id)
        for name in self._said.pop(text_id, {}):
            self.past.remove(name)

    def take_in(self) -> None:
        """Take in a part of the text that waits longest."""
        if not self._queue:
            return
        text_id, tokens = next(iter(self._queue.items()))
        end = self.texts.length(text_id) + _SLICE
        self.texts.add(text_id, tokens[:end])
        if end >= len(tokens):
            del self._queue[text_id]

    def _drop_text(self, text_id: str) -> None:
        self._queue.pop(text_id, None)
        self.texts.remove(text_id)


class _Suggestion:
    """The new text of a request, behind what stood `before` it."""

    __slots__ = ("before", "tokens")

    def __init__(self, tokens: list[int], before: int) -> None:
        self.tokens = tokens
        self.before = before
        """Tokens."""

    def part_of(self, text: list[int], cut: int = 0) -> bool:
        """Whether its new text, but for `cut` tokens, and a little before it stand in `text`."""
        wanted = self.tokens[max(0, self.before - ORDER) : len(self.tokens) - cut]
        first, at = wanted[0], -1
        for _ in range(text.count(first)):
            at = text.index(first, at + 1)
            if text[at : at + len(wanted)] == wanted:
                return True
        return False
