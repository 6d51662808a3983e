"""What a source's confidence is worth: how often the target decided what was proposed.

Every child of a verified node is judged by the token that the target decided behind that node,
whether the child was among the target's rows or not. So a proposal teaches even where it was not
used, and what is chosen does not bias what is learned. Knows no clock, no cost and no text; the
numbers hold for one pair of models and live as long as whoever holds this.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from math import exp, log
from typing import NamedTuple

from swiftspec_daemon.speculation.tree import ROOT, TokenTree

_STATED = (0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 0.98, 0.995)
_LOG_STATED = tuple(log(p) for p in _STATED)
"""Bounds of the buckets of a model's stated log-probabilities."""
_DEPTH_CLASS = (0, 0, 1, 2, 2, 3, 3, 3, 3, 4)
"""By depth: 1; 2; 3 and 4; 5 to 8; deeper."""
_DEEP = 4
_DEPTHS = _DEEP + 1
DEEPEST = len(_DEPTH_CLASS) - 1
"""Depths from here on are told apart no more."""
RANKS = 4
"""Siblings that `ahead` tells apart."""
_MEMORY = 200.0
"""Observations of a bucket after which old ones have faded to 1/e."""
_RECENT = 40.0
"""The same for acceptance by position."""
_PRIOR = 6.0
"""Observations that the stated probability is worth in its bucket, and the bucket at a depth."""
_PRIOR_AHEAD = 3.0
_AHEAD = (0.6, 0.15, 0.06, 0.03)
"""Acceptance by rank before anything is known."""
_GAIN = 0.3
"""How quickly a source's recent form counts, in log-odds for each surprise."""
_FORM_LIMIT = 5.0
_LEAST, _MOST = 1e-3, 0.995


class Proposal(NamedTuple):
    """One source's tree."""

    source: int
    """The source's bit."""
    tree: TokenTree
    confidences: Sequence[int] | None = None
    """A bucket for each node; None: by stated probability."""


class _Level(NamedTuple):
    """The children of a node on the path that was decided."""

    depth: int
    children: list[int]
    """Best first, and"""
    buckets: list[int]
    """their confidences."""
    mass: float
    """The probability that one of them is right."""


class _Source:
    """The numbers of one source."""

    __slots__ = ("ahead", "aheads", "buckets", "cache", "cells", "form")

    def __init__(self) -> None:
        self.buckets: dict[int, list[float]] = {}  # confidence -> [accepted, seen], faded
        self.cells: dict[int, list[float]] = {}  # confidence x depth class
        self.ahead = [[[a * _PRIOR_AHEAD, _PRIOR_AHEAD] for a in _AHEAD] for _ in range(_DEPTHS)]
        self.form = 0.0
        self.cache: dict[int, float] = {}
        self.aheads: list[list[float]] = []

    def forget_derived(self) -> None:
        """The numbers have changed."""
        self.cache.clear()
        self.aheads = []


class Calibration:
    """Conditional acceptance, P(right | all above it are right), by source, confidence and depth.

    A frequency that fades, starting from the stated probability, shifted in log-odds by the
    source's recent form: that follows a change of the text within a few rounds, where the
    frequencies of many buckets take long.
    """

    def __init__(self) -> None:
        self._sources: dict[int, _Source] = {}

    def estimate(self, source: int, confidence: int, depth: int, stated: float) -> float:
        """The probability that a node at `depth` (1 and up) is accepted if its parent was.

        `stated` is the log-probability that the source gives it.
        """
        mine = self._source(source)
        key = confidence * _DEPTHS + (_DEPTH_CLASS[depth] if depth < 10 else _DEEP)
        found = mine.cache.get(key)
        if found is None:
            found = mine.cache[key] = self._estimate(mine, confidence, key, exp(stated))
        return found

    def ahead(self, source: int, depth: int) -> list[float]:
        """Acceptance at `depth` by rank (best first), of proposals not made yet; for reading."""
        return self.aheads(source)[min(depth, DEEPEST)]

    def aheads(self, source: int) -> list[list[float]]:
        """The same by depth, up to `DEEPEST`, with which all below it count; [0] is that of 1."""
        mine = self._source(source)
        if not mine.aheads:
            classes = [_ahead(row, mine.form) for row in mine.ahead]
            mine.aheads = [classes[at] for at in _DEPTH_CLASS]
        return mine.aheads

    def form(self, source: int) -> float:
        """Recent form in log-odds: above 0 is better than its long-term frequencies."""
        return self._source(source).form

    def learn(self, proposal: Proposal, decided: Sequence[int]) -> int:
        """Judge a proposal by the tokens that were decided behind its root; those it foresaw.

        Call once for each proposal and round, with all tokens of the round.
        """
        source, tree, _ = proposal
        levels: list[tuple[_Level, int | None]] = []
        node, found = ROOT, 0
        # All are judged by what was known before any of them, as they were when they were chosen.
        for depth, token in enumerate(decided, start=1):
            level = self._level(proposal, depth, node)
            if not level.children:
                break
            right = tree.child(node, token)
            levels.append((level, right))
            if right is None:
                break
            node, found = right, depth
        mine = self._source(source)
        for level, right in levels:
            _judge(mine, level, right)
        mine.forget_derived()
        return found

    def _level(self, proposal: Proposal, depth: int, node: int) -> _Level:
        source, tree, confidences = proposal
        children = tree.children(node)
        children.sort(key=tree.log_probs.__getitem__, reverse=True)
        buckets, mass = [], 0.0
        for child in children:
            stated = tree.log_probs[child]
            bucket = confidences[child] if confidences else stated_bucket(stated)
            buckets.append(bucket)
            mass += self.estimate(source, bucket, depth, stated)
        return _Level(depth, children, buckets, mass)

    def snapshot(self, sources: Iterable[int] | None = None) -> dict[int, dict[str, object]]:
        """For people: by source its form and its acceptance by position and rank."""
        chosen = self._sources if sources is None else sources
        return {
            source: {
                "form": round(self.form(source), 3),
                "acceptance": [
                    [round(p, 3) for p in self.ahead(source, depth)] for depth in (1, 2, 3, 5, 9)
                ],
            }
            for source in chosen
        }

    def _source(self, source: int) -> _Source:
        found = self._sources.get(source)
        if found is None:
            found = self._sources[source] = _Source()
        return found

    @staticmethod
    def _estimate(mine: _Source, confidence: int, key: int, stated: float) -> float:
        frequency = stated
        for table, at in ((mine.buckets, confidence), (mine.cells, key)):
            right, seen = table.get(at, (0.0, 0.0))
            frequency = (right + _PRIOR * frequency) / (seen + _PRIOR)
        return _shifted(frequency, mine.form)


def _judge(mine: _Source, level: _Level, right: int | None) -> None:
    """The child `right` was the decided token's, or none was."""
    depth, children, buckets, mass = level
    for bucket, child in zip(buckets, children, strict=True):
        _observe(mine, bucket, depth, child == right)
    ranks = mine.ahead[_DEPTH_CLASS[depth] if depth < 10 else _DEEP]
    for pair, child in zip(ranks, children, strict=False):
        _count(pair, child == right, _RECENT)
    form = mine.form + _GAIN * ((right is not None) - min(1.0, mass))
    mine.form = max(-_FORM_LIMIT, min(_FORM_LIMIT, form))


def stated_bucket(log_prob: float) -> int:
    """The confidence of a model's proposal, by its stated log-probability."""
    return bisect_left(_LOG_STATED, log_prob)


def _observe(mine: _Source, confidence: int, depth: int, accepted: bool) -> None:
    key = confidence * _DEPTHS + (_DEPTH_CLASS[depth] if depth < 10 else _DEEP)
    for table, at in ((mine.buckets, confidence), (mine.cells, key)):
        pair = table.get(at)
        if pair is None:
            pair = table[at] = [0.0, 0.0]
        _count(pair, accepted, _MEMORY)


def _ahead(row: Sequence[Sequence[float]], form: float) -> list[float]:
    """Acceptance by rank, of [accepted, seen] by rank."""
    frequency = row[0][0] / row[0][1]
    best = _shifted(frequency, form)
    rest = (1 - best) / max(_LEAST, 1 - frequency)
    return [best, *(rest * right / seen for right, seen in row[1:])]


def _shifted(p: float, form: float) -> float:
    """`p` moved by `form` in log-odds."""
    p = max(_LEAST, min(_MOST, p))
    if form:
        p = 1 / (1 + (1 - p) / p * exp(-form))
    return max(_LEAST, min(_MOST, p))


def _count(pair: list[float], accepted: bool, memory: float) -> None:
    keep = 1 - 1 / memory
    pair[0] = keep * pair[0] + accepted
    pair[1] = keep * pair[1] + 1


__all__ = ["DEEPEST", "RANKS", "Calibration", "Proposal", "stated_bucket"]
