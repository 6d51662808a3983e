"""What lies in a draft's KV cache, and how it moves when tokens are verified: bookkeeping alone.

The evolving tree cache of SwiftSpec (arXiv 2506.11309, section 3.2): the KV of decided tokens, in
one piece, then that of the draft tree's expanded nodes. Knows token ids, node numbers and places;
no model, no scores. The owner of the real cache carries a move out and then records it here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Move(NamedTuple):
    """What a cache is told to do: `reroot(path, keep)`."""

    path: list[int]
    """Slots that move to the prefix's end, in this order: a path that hangs on it."""
    keep: list[int]
    """Slots that stay pending, ascending; the i-th becomes slot i. All others are dropped."""


class KVLedger:
    """One cache's content: `prefix`, then pending rows ("slots").

    Slot i holds the KV of token `tokens[i]` behind the row `parents[i]`, or behind the prefix
    where that is -1, and belongs to the tree's node `nodes[i]`. A parent's slot is below its
    children's.
    """

    __slots__ = ("nodes", "parents", "prefix", "slots", "tokens")

    def __init__(self, prefix: Sequence[int] = ()) -> None:
        self.prefix: list[int] = list(prefix)
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.nodes: list[int] = []
        self.slots: dict[int, int] = {}
        """Node -> slot."""

    @property
    def positions(self) -> int:
        """Rows in the cache, pending ones included."""
        return len(self.prefix) + len(self.tokens)

    def extended(self, tokens: Sequence[int]) -> None:
        """The cache computed `tokens` behind the prefix; pending rows are gone."""
        self.drop()
        self.prefix += tokens

    def grown(self, nodes: Sequence[int], tokens: Sequence[int], parents: Sequence[int]) -> None:
        """The cache computed a pending row for each of `nodes`. `parents` are slots or -1."""
        for node, token, parent in zip(nodes, tokens, parents, strict=True):
            self.slots[node] = len(self.tokens)
            self.nodes.append(node)
            self.tokens.append(token)
            self.parents.append(parent)

    def drop(self) -> None:
        """Pending rows are gone."""
        self.tokens.clear()
        self.parents.clear()
        self.nodes.clear()
        self.slots.clear()

    def rewound(self, length: int) -> None:
        """The cache forgot all positions from `length` on, and pending rows."""
        self.drop()
        del self.prefix[length:]

    def follow(self, tokens: Sequence[int]) -> list[int]:
        """The slots of pending rows that continue the prefix as `tokens` do, as far as they go."""
        path: list[int] = []
        at = -1
        for slot, (token, parent) in enumerate(zip(self.tokens, self.parents, strict=True)):
            if len(path) == len(tokens):
                break
            if parent == at and token == tokens[len(path)]:
                path.append(slot)
                at = slot
        return path

    def move(self, path: Sequence[int], survivors: Sequence[int]) -> Move:
        """The move for verified nodes `path` below the root, and nodes that survive below them.

        Nodes without a row in the cache (not expanded) count for nothing; in `path` they come
        last.
        """
        slots = self.slots
        return Move(
            [slots[node] for node in path if node in slots],
            sorted(slots[node] for node in survivors if node in slots),
        )

    def moved(self, move: Move, renamed: Sequence[int] = ()) -> None:
        """The cache carried out `move`. `renamed[i]` is the former number of node i."""
        end = move.path[-1] if move.path else -1
        place = {end: -1} | {slot: i for i, slot in enumerate(move.keep)}
        number = {former: node for node, former in enumerate(renamed)}
        kept = [
            (number[self.nodes[slot]], self.tokens[slot], place[self.parents[slot]])
            for slot in move.keep
        ]
        self.prefix += [self.tokens[slot] for slot in move.path]
        self.drop()
        for node, token, parent in kept:
            self.grown((node,), (token,), (parent,))

    def common(self, tokens: Sequence[int]) -> int:
        """How many tokens at the start of `tokens` the prefix has too."""
        prefix = self.prefix
        limit = min(len(prefix), len(tokens))
        if prefix[:limit] == list(tokens[:limit]):
            return limit
        return next(i for i in range(limit) if prefix[i] != tokens[i])


__all__ = ["KVLedger", "Move"]
