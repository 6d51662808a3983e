"""What speculation did, in numbers that can be added up and shown: counts and seconds, no text.

Plain data (a dataclass of numbers, lists and dictionaries), so that it goes into any message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import zip_longest

from swiftspec_daemon.speculation.tree import ROOT, TokenTree


@dataclass(slots=True)
class SpeculationCounters:
    """Sums over rounds. `a + b` adds two of them up; a new one is zero."""

    rounds: int = 0
    """Verifications by the target, plain steps among them."""
    plain_rounds: int = 0
    """Those without any proposal."""
    tokens: int = 0
    """Decided tokens, the target's own one of each round counted."""
    proposed: int = 0
    """Nodes that the target verified."""
    accepted: int = 0
    accepted_lengths: list[int] = field(default_factory=list)
    """`[n]`: rounds in which n proposed tokens were accepted."""
    tried_at: list[int] = field(default_factory=list)
    """`[d - 1]`: rounds whose tree had a node at depth d below accepted ones, and"""
    accepted_at: list[int] = field(default_factory=list)
    """in how many of them one was accepted: acceptance by position is the quotient."""
    proposed_by: dict[str, int] = field(default_factory=dict)
    """By source; a node that two sources proposed counts for both."""
    accepted_by: dict[str, int] = field(default_factory=dict)
    fall_ins: int = 0
    """The target's own token was in the draft's tree (the tree could be re-rooted)."""
    fall_outs: int = 0
    stale_trees: int = 0
    """Asynchronous trees that came for a round that was over."""
    missed_deadlines: int = 0
    """Rounds in which no asynchronous tree came in time."""
    draft_steps: int = 0
    draft_s: float = 0.0
    """The drafts' forward passes and lookups."""
    draft_idle_s: float = 0.0
    """An asynchronous draft waited for the target."""
    target_s: float = 0.0
    """The target's forward passes."""
    target_idle_s: float = 0.0
    """The target waited for drafts."""
    own_s: float = 0.0
    """Everything else: building, merging, choosing and walking trees."""

    @property
    def tokens_per_round(self) -> float:
        """Mean length of a verification; 0 before the first."""
        return self.tokens / self.rounds if self.rounds else 0.0

    def record(
        self, proposed: TokenTree, accepted: Sequence[int], tokens: int, names: Mapping[int, str]
    ) -> None:
        """One round: the verified tree, the accepted nodes' tokens, the number of decided tokens.

        `names` gives the sources' names by their bits in the tree's marks.
        """
        self.rounds += 1
        self.tokens += tokens
        _count_at(self.accepted_lengths, len(accepted))
        if len(proposed) == 1:
            self.plain_rounds += 1
            return
        self.proposed += len(proposed) - 1
        self.accepted += len(accepted)
        for bit, name in names.items():
            nodes = sum(1 for marks in proposed.marks[1:] if marks & bit)
            if nodes:
                self.proposed_by[name] = self.proposed_by.get(name, 0) + nodes
        node = ROOT
        for depth, token in enumerate(accepted):
            child = proposed.child(node, token)
            if child is None:
                raise ValueError("an accepted token is not in the tree")
            node = child
            _count_at(self.tried_at, depth)
            _count_at(self.accepted_at, depth)
            for bit, name in names.items():
                if proposed.marks[node] & bit:
                    self.accepted_by[name] = self.accepted_by.get(name, 0) + 1
        if proposed.children(node):
            _count_at(self.tried_at, len(accepted))

    def __add__(self, other: SpeculationCounters) -> SpeculationCounters:
        total = SpeculationCounters()
        for item in fields(SpeculationCounters):
            setattr(total, item.name, _sum(getattr(self, item.name), getattr(other, item.name)))
        return total


def _sum(left: object, right: object) -> object:
    if isinstance(left, dict) and isinstance(right, dict):
        return {name: left.get(name, 0) + right.get(name, 0) for name in [*left, *right]}
    if isinstance(left, list) and isinstance(right, list):
        return [a + b for a, b in zip_longest(left, right, fillvalue=0)]
    if isinstance(left, int | float) and isinstance(right, int | float):
        return left + right
    raise TypeError("counters are numbers, lists and dictionaries")


def _count_at(counts: list[int], index: int) -> None:
    counts += [0] * (index + 1 - len(counts))
    counts[index] += 1


__all__ = ["SpeculationCounters"]
