"""A tokenizer of bytes and some words, for tests that need no model."""

from __future__ import annotations

import re

from swiftspec_daemon.engine.scripted import Answer

BOS, EOS, FIM = 256, 257, 258
WORDS = [
    "return", " return", "print", " self", "def", " x", "):\n", ":\n", "\n    ", "\n        ",
    "    ", "foo", " =", "value", "\n\n", "pri",
]  # fmt: skip
_FIRST_WORD = 259
_LONGEST_FIRST = sorted(WORDS, key=len, reverse=True)
_PIECES = re.compile("|".join(map(re.escape, _LONGEST_FIRST)))


class FakeTokenizer:
    """Ids 0 to 255 are bytes, then three special tokens, then `WORDS`, matched greedily."""

    def __init__(self, *, add_bos=False, bos_id=BOS, words=True, file_sep=False):
        self.bos_id = bos_id
        self.add_bos = add_bos
        self.eos_ids = (EOS,)
        self.encoded = 0
        """Characters encoded so far."""
        self._words = words
        self._special = {"<|fim_middle|>": FIM} | ({"<file_sep>": FIM} if file_sep else {})

    def encode(self, text, *, space=True):
        self.encoded += len(text)
        ids, position = [], 0
        for found in _PIECES.finditer(text) if self._words else ():
            ids += text[position : found.start()].encode()
            ids.append(_FIRST_WORD + WORDS.index(found[0]))
            position = found.end()
        return ids + list(text[position:].encode())

    def token_bytes(self, token_id):
        if token_id < 256:
            return bytes([token_id])
        return b"" if self.is_special(token_id) else WORDS[token_id - _FIRST_WORD].encode()

    def is_special(self, token_id):
        return BOS <= token_id < _FIRST_WORD

    def special_id(self, text):
        return self._special.get(text)

    def decode(self, ids):
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")


def answer(text, **options):
    """A script that says `text` after whatever the request wants its answer to start with."""

    def script(request):
        return Answer(ids=list(request.required + text.encode()), **options)

    return script
