"""What speculation did in one request, counted as it goes.

Knows numbers only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from swiftspec_daemon.engine.messages import Speculation, SpeculationUsage
from swiftspec_daemon.speculation.tree import ROOT, TokenTree

_NGRAM = 1


class RoundTimes(NamedTuple):
    """Seconds of one round."""

    draft_s: float
    """The target waited for drafts."""
    target_s: float
    own_s: float


class RequestCounts:
    """Sums over the rounds of a request."""

    def __init__(self) -> None:
        self._rounds = self._tokens = self._proposed = self._accepted = 0
        self._by_length: list[int] = []
        self._by_source: dict[str, int] = {}
        self._fell = [0, 0]
        self._draft_s = self._target_s = self._own_s = 0.0
        self._draft_busy_ms = self._draft_idle_ms = 0.0

    def add_round(
        self, proposed: TokenTree, decided: Sequence[int], accepted: int, times: RoundTimes
    ) -> None:
        """One round."""
        self._rounds += 1
        self._tokens += len(decided)
        self._proposed += len(proposed) - 1
        self._accepted += accepted
        self._by_length += [0] * (len(decided) + 1 - len(self._by_length))
        self._by_length[len(decided)] += 1
        node: int | None = ROOT
        for token in decided[:accepted]:
            node = proposed.child(node, token) if node is not None else None
            if node is not None:
                source = _source(proposed.marks[node])
                self._by_source[source] = self._by_source.get(source, 0) + 1
        self._draft_s += times.draft_s
        self._target_s += times.target_s
        self._own_s += times.own_s

    def add_fall(self, fell_in: bool) -> None:
        """Whether all tokens of a round were in the draft model's tree, the target's own too."""
        self._fell[fell_in] += 1

    def add_remote(self, busy_ms: float, idle_ms: float) -> None:
        """What a draft in a process of its own did since its last tree."""
        self._draft_busy_ms += busy_ms
        self._draft_idle_ms += idle_ms

    def usage(self, mode: Speculation) -> SpeculationUsage:
        """The sums."""
        return SpeculationUsage(
            mode=mode,
            rounds=self._rounds,
            tokens=self._tokens,
            proposed=self._proposed,
            accepted=self._accepted,
            by_length=list(self._by_length),
            by_source=dict(self._by_source),
            fall_ins=self._fell[1],
            fall_outs=self._fell[0],
            draft_ms=self._draft_s * 1e3,
            target_ms=self._target_s * 1e3,
            own_ms=self._own_s * 1e3,
            draft_busy_ms=self._draft_busy_ms,
            draft_idle_ms=self._draft_idle_ms,
        )


def _source(marks: int) -> str:
    if marks == _NGRAM:
        return "ngram"
    return "both" if marks & _NGRAM else "draft"
