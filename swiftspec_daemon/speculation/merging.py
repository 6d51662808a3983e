"""All sources' proposals as one tree, with the probability that the target accepts each node.

SpecInfer's merge-based token tree (arXiv 2305.09781, definition 3.2), kept up to date while a
draft still grows its own. Knows trees and estimates; no model, no cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log

from swiftspec_daemon.speculation.calibration import Calibration, Proposal, stated_bucket
from swiftspec_daemon.speculation.tree import ROOT, TokenTree


class MergedTree:
    """The candidates of one round.

    Parallel lists over nodes, parents first, for reading: `tokens`, `parents`, `depths`, `marks`
    (a bit for each source that proposed the node), `worth` (estimated acceptance behind the
    parent), `mass` (the sum of the children's worth), and `reach`: the probability that the whole
    path from the root is accepted. Siblings share at most certainty: where sources contradict
    each other and claim more, all of them count for less.
    """

    __slots__ = (
        "_calibration",
        "_index",
        "_places",
        "depths",
        "marks",
        "mass",
        "parents",
        "reach",
        "tokens",
        "worth",
    )

    def __init__(self, calibration: Calibration, root: int) -> None:
        self.tokens, self.parents, self.depths, self.marks = [root], [-1], [0], [0]
        self.worth, self.mass, self.reach = [1.0], [0.0], [1.0]
        self._calibration = calibration
        self._index: dict[tuple[int, int], int] = {}
        self._places: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return len(self.tokens)

    def place(self, source: int) -> Sequence[int]:
        """By node of that source's own tree, the node here."""
        return self._places.get(source, (ROOT,))

    def update(self, proposal: Proposal) -> None:
        """Take in a proposal, or what it has grown by since it was taken in.

        Raises ValueError for a tree of another root.
        """
        source, tree, confidences = proposal
        if tree.tokens[ROOT] != self.tokens[ROOT]:
            raise ValueError("only trees with the same root can be merged")
        self.marks[ROOT] |= source
        place = self._places.setdefault(source, [ROOT])
        estimate, index, mass = self._calibration.estimate, self._index, self.mass
        stale = False
        for node in range(len(place), len(tree.tokens)):
            stated = tree.log_probs[node]
            bucket = confidences[node] if confidences else stated_bucket(stated)
            depth = tree.depths[node]
            worth = estimate(source, bucket, depth, stated)
            parent, token = place[tree.parents[node]], tree.tokens[node]
            at = index.setdefault((parent, token), len(self.tokens))
            place.append(at)
            if at == len(self.tokens):
                self.tokens.append(token)
                self.parents.append(parent)
                self.depths.append(depth)
                self.marks.append(source)
                self.worth.append(worth)
                self.reach.append(self.reach[parent] * worth)
                mass.append(0.0)
                mass[parent] += worth
            else:
                self.marks[at] |= source
                if worth <= self.worth[at]:
                    continue
                mass[parent] += worth - self.worth[at]
                self.worth[at] = worth
                stale = True
            stale = stale or mass[parent] > 1
        if stale:
            self._reweigh()

    def best(self, size: int) -> TokenTree:
        """The best connected subtree of `size` nodes (the root counted) by reach, as a tree whose
        log-probabilities are those of acceptance."""
        reach = self.reach
        # A node reaches no further than its parent, and a stable sort keeps parents first.
        chosen = sorted(range(len(reach)), key=reach.__getitem__, reverse=True)[: max(1, size)]
        chosen.sort()
        tree = TokenTree(self.tokens[ROOT], self.marks[ROOT])
        place = {ROOT: ROOT}
        for node in chosen[1:]:
            parent = self.parents[node]
            share = log(self.worth[node] / max(1.0, self.mass[parent]))
            place[node] = tree.add(place[parent], self.tokens[node], share, self.marks[node])
        return tree

    def _reweigh(self) -> None:
        reach, worth, mass, parents = self.reach, self.worth, self.mass, self.parents
        for node in range(1, len(reach)):
            parent = parents[node]
            reach[node] = reach[parent] * worth[node] / max(1.0, mass[parent])


__all__ = ["MergedTree"]
