"""What completion needs of a tokenizer, and a cache that makes keystrokes cheap.

`swiftspec_daemon.models.tokenizer.Tokenizer` is one. Knows no prompt layout.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol


class Tokenizer(Protocol):
    """Text to token ids. Used from several threads."""

    @property
    def bos_id(self) -> int | None: ...

    @property
    def add_bos(self) -> bool:
        """Prompts begin with `bos_id`."""

    @property
    def eos_ids(self) -> Sequence[int]:
        """Tokens that end a text."""

    def encode(self, text: str, *, space: bool = True) -> list[int]:
        """Token ids of plain text: no BOS, and no special token whatever the text says.

        `space=False` leaves out the space that some tokenizers put before a text.
        """

    def token_bytes(self, token_id: int, /) -> bytes:
        """The bytes that a token stands for; b"" for special tokens."""

    def is_special(self, token_id: int, /) -> bool: ...

    def special_id(self, text: str, /) -> int | None: ...


_STEP = 1024
"""The remembered part of a text ends near a multiple of this many characters."""
_LIVELY = 256
"""Characters at the end of a text that are never remembered."""
_SEARCH = 4096
"""How far back a place to divide at is looked for."""
_REMEMBERED = 16
_MISTAKES = 3
_PROBES = ("):\n", ");\n", "{\n", ",\n")
CHEAP = 4096
"""Characters that can be encoded without being noticed (3 ms on a slow processor)."""


class CachedEncoder:
    """Encodes texts that mostly grow at their end, remembering the ids of their beginnings.

    A text is divided before a line end, or behind it where the tokenizer joins punctuation and
    line ends: byte-level BPE tokenizers never join across such a place. Whether this one does not
    either is compared, on the whole text, before a beginning is remembered; after some differences
    the cache is off. Safe to use from several threads.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._beginnings: dict[str, list[int]] = {}
        """Least recently used first."""
        self._lock = threading.Lock()
        self._mistakes = 0
        self.joins_line_ends = any(
            token.endswith(b"\n") and token.strip()
            for probe in _PROBES
            for token in map(tokenizer.token_bytes, tokenizer.encode(probe))
        )
        """There are tokens of punctuation and a line end, such as ":\\n"."""

    def encode(self, text: str) -> list[int]:
        """The same ids as the tokenizer's."""
        at = self._division(text)
        if at == 0:
            return self._tokenizer.encode(text)
        known = self._known(text[:at])
        if known is None:
            return self._learn(text, at)
        return known + self._tokenizer.encode(text[at:], space=False)

    def cheap(self, text: str) -> bool:
        """Whether `encode` is quick enough for an event loop."""
        if len(text) <= CHEAP:
            return True
        at = self._division(text)
        return at > 0 and len(text) - at <= CHEAP and text[:at] in self._beginnings

    def _learn(self, text: str, at: int) -> list[int]:
        whole = self._tokenizer.encode(text)
        beginning = self._tokenizer.encode(text[:at])
        if beginning + self._tokenizer.encode(text[at:], space=False) != whole:
            self._mistakes += 1
            return whole
        with self._lock:
            self._beginnings[text[:at]] = beginning
            while len(self._beginnings) > _REMEMBERED:
                del self._beginnings[next(iter(self._beginnings))]
        return whole

    def _known(self, beginning: str) -> list[int] | None:
        with self._lock:
            ids = self._beginnings.pop(beginning, None)
            if ids is not None:
                self._beginnings[beginning] = ids
            return ids

    def _division(self, text: str) -> int:
        """Where to divide `text`; 0 for not at all."""
        limit = (len(text) - _LIVELY) // _STEP * _STEP
        if self._mistakes >= _MISTAKES or limit <= 0:
            return 0
        lowest = max(0, limit - _SEARCH)
        at = text.rfind("\n", lowest, limit)
        while at > 0:
            before, behind = text[at - 1], text[at + 1]
            if before.isalnum() or (not self.joins_line_ends and not before.isspace()):
                return at
            if self.joins_line_ends and not before.isspace() and behind != "\n":
                return at + 1
            at = text.rfind("\n", lowest, at)
        return 0
