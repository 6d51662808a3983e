"""A draft model that is a function of the text, and keeps its callers to the protocol."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class TextState:
    """The state at a node is simply the text up to it; a token in `ends` ends it."""

    text: tuple[int, ...]
    ends: frozenset[int] = frozenset()

    def after(self, token):
        return None if token in self.ends else TextState((*self.text, token), self.ends)

    def rank(self, logits, k, ids=None):
        best = sorted(range(len(logits)), key=lambda i: (-float(logits[i]), i))[:k]
        total = np.logaddexp.reduce(logits.astype(np.float64))
        tokens = best if ids is None else [int(ids[i]) for i in best]
        return tokens, [float(logits[i] - total) for i in best]


class FunctionDraft:
    """`ranked(text)` says what may follow. Every call is checked against the protocol."""

    def __init__(self, ranked, *, capacity=10_000, max_pending=256, max_rows=64, max_depth=64):
        self.capacity, self.max_depth = capacity, max_depth
        self.max_pending, self.max_rows = max_pending, max_rows
        self.calls = []
        """(name, rows) of every forward pass."""
        self._ranked = ranked
        self._prefix = []
        self._rows = []
        """The whole text of each pending row."""

    def held(self):
        return list(self._prefix)

    @property
    def pending(self):
        return list(self._rows)

    def extend(self, tokens, state):
        assert len(tokens) > 0
        assert len(self._prefix) + len(tokens) <= self.capacity
        self._rows.clear()
        self._prefix += tokens
        self.calls.append(("extend", len(tokens)))
        return None if state is None else self._rank(tuple(self._prefix), state)

    def grow(self, tokens, parents, states):
        assert 0 < len(tokens) == len(parents) == len(states) <= self.max_rows
        found = []
        for token, parent, state in zip(tokens, parents, states, strict=True):
            assert -1 <= parent < len(self._rows)
            before = tuple(self._prefix) if parent < 0 else self._rows[parent]
            assert (*before, token) not in self._rows
            self._rows.append((*before, token))
            assert len(self._rows[-1]) - len(self._prefix) <= self.max_depth
            found.append(self._rank(self._rows[-1], state))
        assert len(self._rows) <= self.max_pending
        assert len(self._prefix) + len(self._rows) <= self.capacity
        self.calls.append(("grow", len(tokens)))
        return found

    def reroot(self, path, keep):
        for slot in path:
            assert self._rows[slot][:-1] == tuple(self._prefix)
            self._prefix.append(self._rows[slot][-1])
        assert list(keep) == sorted(set(keep))
        kept = [self._rows[slot] for slot in keep]
        for i, text in enumerate(kept):
            assert text[:-1] == tuple(self._prefix) or text[:-1] in kept[:i]
        self._rows = kept

    def rewind(self, length):
        assert 0 <= length <= len(self._prefix)
        del self._prefix[length:]
        self._rows.clear()

    def _rank(self, text, state):
        assert state.text == text, "a row must be ranked under its own state"
        return self._ranked(text)


def hashed(branching, vocabulary=50):
    """A function of the text for `FunctionDraft`: distinct tokens, falling probabilities."""

    def ranked(text):
        random = np.random.default_rng([len(text), *text])
        tokens = random.permutation(vocabulary)[:branching].tolist()
        weights = sorted(random.random(branching), reverse=True)
        return tokens, [math.log(weight / sum(weights)) for weight in weights]

    return ranked
