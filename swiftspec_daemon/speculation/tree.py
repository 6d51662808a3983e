"""The token tree: proposed continuations of one text that share their beginnings.

Definition 3.1 of SpecInfer (arXiv 2305.09781): every node carries a token and stands for the
sequence from the root to it. Knows token ids and scores; nothing of models, caches or text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

ROOT = 0
"""The root's index in every tree."""
_WORD = 64
"""Bits in one word of an ancestor mask."""


class Rerooted(NamedTuple):
    """What is left of a tree after tokens were verified (see `TokenTree.reroot`)."""

    matched: int
    """How many of the verified tokens were found in the tree, from the first one on."""
    tree: TokenTree | None
    """The surviving subtree, rooted at the last verified token; None if that was not found."""
    old: list[int]
    """`old[i]` is the index in the former tree of the surviving tree's node i; ascending."""
    path: list[int]
    """Nodes of the former tree that were walked along: its root, then `matched` nodes."""


class TokenTree:
    """A rooted tree of tokens with a score at each node, as parallel lists.

    Node 0 is the root, the last decided token. A parent's index is below its children's, and no
    two children of a node have the same token.

    `tokens[i]`, `parents[i]` (-1 for the root), `depths[i]` (0 for the root) describe node i;
    `log_probs[i]` is the logarithm of its probability behind its parent, `scores[i]` their sum
    from the root on: never above the parent's score. `marks[i]` is a bit set of the sources that
    proposed it. The lists are for reading; only `add` changes them.
    """

    __slots__ = ("_children", "depths", "log_probs", "marks", "parents", "scores", "tokens")

    def __init__(self, root: int, source: int = 0) -> None:
        """A tree of the token `root` alone."""
        self.tokens: list[int] = [root]
        self.parents: list[int] = [-1]
        self.depths: list[int] = [0]
        self.log_probs: list[float] = [0.0]
        self.scores: list[float] = [0.0]
        self.marks: list[int] = [source]
        self._children: list[dict[int, int]] = [{}]

    @classmethod
    def from_chain(
        cls, root: int, tokens: Sequence[int], log_probs: Sequence[float], source: int = 0
    ) -> TokenTree:
        """A tree without branches: `root`, then `tokens` one below the other."""
        tree, node = cls(root, source), ROOT
        for token, log_prob in zip(tokens, log_probs, strict=True):
            node = tree.add(node, token, log_prob, source)
        return tree

    @classmethod
    def merge(cls, *trees: TokenTree) -> TokenTree:
        """The tree whose root-to-node sequences are those of all `trees`, and no others.

        SpecInfer's merge-based construction (definition 3.2). A sequence that several trees have
        gets the best of their log-probabilities at each node, and all their marks. Nodes stay in
        the order of the trees and of their indices. Raises ValueError where roots differ, or
        without trees.
        """
        if len({tree.tokens[ROOT] for tree in trees}) != 1:
            raise ValueError("only trees with the same root can be merged")
        merged = trees[0].subtree(range(len(trees[0])))
        for tree in trees[1:]:
            merged.marks[ROOT] |= tree.marks[ROOT]
            place = [ROOT] * len(tree)
            for node in range(1, len(tree)):
                parent = place[tree.parents[node]]
                place[node] = merged.add(
                    parent, tree.tokens[node], tree.log_probs[node], tree.marks[node]
                )
        return merged

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, parent: int, token: int, log_prob: float, source: int = 0) -> int:
        """The child of `parent` with `token`, made if there is none.

        `log_prob` is the logarithm of its probability behind `parent`; above 0 (by rounding) it
        counts as 0. A child that is there already keeps the better log-probability, which raises
        its descendants' scores with it, and gets the bits of `source` too. Raises ValueError for
        a NaN.
        """
        if log_prob > 0.0:
            log_prob = 0.0
        elif log_prob != log_prob:
            raise ValueError("a log-probability is not a number")
        siblings = self._children[parent]
        node = siblings.get(token)
        if node is None:
            node = len(self.tokens)
            siblings[token] = node
            self.tokens.append(token)
            self.parents.append(parent)
            self.depths.append(self.depths[parent] + 1)
            self.log_probs.append(log_prob)
            self.scores.append(self.scores[parent] + log_prob)
            self.marks.append(source)
            self._children.append({})
            return node
        self.marks[node] |= source
        if log_prob > self.log_probs[node]:
            self.log_probs[node] = log_prob
            self._rescore(node)
        return node

    def child(self, node: int, token: int) -> int | None:
        """The child of `node` with this token, or None."""
        return self._children[node].get(token)

    def children(self, node: int) -> list[int]:
        """The children of `node`, ascending."""
        return list(self._children[node].values())

    def path(self, node: int) -> list[int]:
        """Nodes from the root to `node`, both included."""
        found = []
        while node >= 0:
            found.append(node)
            node = self.parents[node]
        found.reverse()
        return found

    def sequence(self, node: int) -> list[int]:
        """The tokens that `node` stands for, the root's first (S_u of SpecInfer)."""
        return [self.tokens[i] for i in self.path(node)]

    def select(self, size: int) -> list[int]:
        """The best connected subtree of `size` nodes with the root in it; ascending.

        The nodes with the highest scores (SwiftSpec, arXiv 2506.11309, section 3.1), ties by
        index: no node scores higher than its parent, so these are connected, and no other subtree
        of that size has more expected tokens. All nodes if there are fewer. Raises ValueError for
        a size below 1.
        """
        if size < 1:
            raise ValueError(f"a subtree has at least its root, not {size} nodes")
        count = len(self.tokens)
        if size >= count:
            return list(range(count))
        # A stable sort: nodes with equal scores stay in the order of their indices.
        best = sorted(range(count), key=self.scores.__getitem__, reverse=True)[:size]
        best.sort()
        return best

    def subtree(self, nodes: Iterable[int]) -> TokenTree:
        """The tree of `nodes` alone, in their order; its node i is the i-th of them.

        They are ascending and connected; the first one is the new root, whose score becomes 0.
        Raises ValueError for others.
        """
        order = iter(nodes)
        top = next(order, None)
        if top is None:
            raise ValueError("a tree has at least a root")
        tree = TokenTree(self.tokens[top], self.marks[top])
        place, last = {top: ROOT}, top
        for node in order:
            parent = place.get(self.parents[node])
            if parent is None or node <= last:
                raise ValueError(f"node {node} is not below the nodes before it")
            place[node] = tree.add(
                parent, self.tokens[node], self.log_probs[node], self.marks[node]
            )
            last = node
        return tree

    def below(self, top: int) -> list[int]:
        """`top` and all its descendants, ascending."""
        if top == ROOT:
            return list(range(len(self.tokens)))
        found = {top}
        for node in range(top + 1, len(self.tokens)):
            if self.parents[node] in found:
                found.add(node)
        return sorted(found)

    def reroot(self, tokens: Sequence[int]) -> Rerooted:
        """Walk from the root along verified `tokens`; what survives hangs on the last of them.

        The first step of SwiftSpec's evolving tree (section 3.2). This tree stays as it is.
        Without tokens the whole tree survives.
        """
        path = [ROOT]
        for token in tokens:
            node = self._children[path[-1]].get(token)
            if node is None:
                return Rerooted(len(path) - 1, None, [], path)
            path.append(node)
        old = self.below(path[-1])
        return Rerooted(len(tokens), self.subtree(old), old, path)

    def ancestor_masks(self, nodes: Sequence[int] | None = None) -> npt.NDArray[np.uint64]:
        """The topology-aware causal mask (SpecInfer, section 4.2), uint64 [n, ceil(n / 64)].

        Row i is of the i-th of the n `nodes` (ascending; by default all). Its bit j (of word
        j // 64, bit j % 64) is set where the j-th of them is that node or an ancestor of it.
        Ancestors that are not among `nodes` have no bit.
        """
        rows = range(len(self.tokens)) if nodes is None else nodes
        bits: dict[int, int] = {}
        for place, node in enumerate(rows):
            above = self.parents[node]
            while above >= 0 and above not in bits:
                above = self.parents[above]
            bits[node] = bits.get(above, 0) | 1 << place
        words = -(-len(rows) // _WORD)
        packed = b"".join(bits[node].to_bytes(8 * words, "little") for node in rows)
        flat = np.frombuffer(packed, dtype="<u8").astype(np.uint64)
        return flat.reshape(len(rows), words)

    def _rescore(self, node: int) -> None:
        """Sum up anew at `node` and below. Sums, not differences: rounding must not put a child
        above its parent."""
        stack = [node]
        while stack:
            at = stack.pop()
            self.scores[at] = self.scores[self.parents[at]] + self.log_probs[at]
            stack.extend(self._children[at].values())


__all__ = ["ROOT", "Rerooted", "TokenTree"]
