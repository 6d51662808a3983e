"""Grows a draft's token tree, a forward pass at a time, and re-roots it along verified tokens.

Maximum-likelihood tree expansion (SwiftSpec, arXiv 2506.11309, algorithm 1 and section 3.1; the
search is that of SpecExec, 2406.02532): run the leaves with the highest sums of draft
log-probabilities, `width` at a time. Or, for comparison, the static expansion <k1, ..., km> of
SpecInfer (2305.09781, section 3). Knows tokens, states and a draft model behind a protocol; no
clock, no input or output, no target.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import Any, Protocol

from swiftspec_daemon.speculation.decoding import Ranked
from swiftspec_daemon.speculation.ledger import KVLedger
from swiftspec_daemon.speculation.tree import ROOT, TokenTree

_UNKNOWN = object()


class DraftState(Protocol):
    """What decoding has come to at one node (a value): a `DecodeState`, or a stand-in for it."""

    def after(self, token: int) -> DraftState | None:
        """The state behind a proposed token; None where the text ends with it, or may not go on
        with it."""


class DraftModel(Protocol):
    """A draft model and its KV of one text: a committed prefix, then pending rows ("slots").

    It gets the states that the drafter was begun with, and what they give for further tokens.
    Where a call raises, the KV is as it was before.
    """

    max_pending: int
    """Pending rows that it can hold."""
    max_rows: int
    """Rows that one `grow` can have."""
    max_depth: int
    """Pending rows that one path can have."""
    capacity: int
    """Rows that it can hold, pending ones included."""

    def held(self) -> list[int]:
        """The tokens of the committed prefix."""

    def extend(self, tokens: Sequence[int], state: Any | None) -> Ranked | None:
        """Commit tokens; what may come after the last one, if its `state` is given.

        Drops pending rows.
        """

    def grow(
        self, tokens: Sequence[int], parents: Sequence[int], states: Sequence[Any]
    ) -> list[Ranked]:
        """Add pending rows behind `parents` (slots, or -1 for the prefix's end) and rank what
        may come after each, under its own state."""

    def reroot(self, path: Sequence[int], keep: Sequence[int]) -> None:
        """Move the slots `path` into the prefix; `keep` (ascending) stay pending, compacted."""

    def rewind(self, length: int) -> None:
        """Forget all positions from `length` on, and pending rows."""


class TreeDrafter:
    """One text's draft tree, on one draft model.

    `tree` holds all proposals; its root is the last decided token. A node is expanded once the
    draft has run it: its KV is there, and its best continuations are in the tree. `width` (leaves
    run at a time), `branching` (children of a node), `max_depth` (of the deepest node), `max_nodes`
    and `block` (tokens of a prompt that one step takes) may be changed at any time.
    """

    def __init__(
        self,
        model: DraftModel,
        *,
        width: int,
        branching: int,
        max_depth: int,
        max_nodes: int,
        configuration: tuple[int, ...] | None = None,
        block: int = 64,
    ) -> None:
        """With `configuration`, <k1, ..., km>, every node at depth i gets its k(i + 1) best
        children, a level at a time, and each tree starts anew; then `width`, `branching` and
        `max_depth` count for nothing.

        Raises ValueError for numbers below 1.
        """
        if min(width, branching, max_depth, max_nodes, block, *(configuration or (1,))) < 1:
            raise ValueError("width, branching, depth, nodes and block of a draft tree are above 0")
        self.width, self.branching, self.max_depth = width, branching, max_depth
        self.max_nodes, self.block = max_nodes, block
        self.tree = TokenTree(0)
        self._configuration = configuration
        self._model = model
        self._ledger = KVLedger(model.held())
        self._missing: list[int] = []
        """Decided tokens whose KV is not there, the root last; none once the root is expanded."""
        self._begun = False
        self._states: dict[int, DraftState | None] = {}
        """By node; of the expanded ones at least."""
        self._leaves: list[tuple[float, int]] = []
        """A heap: the node that is to be run next comes first."""

    @property
    def ready(self) -> bool:
        """The root has been expanded."""
        return self._begun and not self._missing

    @property
    def missing(self) -> int:
        """Decided tokens, the root among them, that the draft has yet to run."""
        return len(self._missing)

    def leaves(self) -> list[int]:
        """Nodes that a later step may run: not run yet, not too deep, and the text is not known to
        end with them."""
        if self._missing:
            return [ROOT] if self._begun else []
        depths, states, deepest = self.tree.depths, self._states, self._deepest
        return [
            node
            for _, node in self._leaves
            if depths[node] < deepest and states.get(node, _UNKNOWN) is not None
        ]

    def begin(self, tokens: Sequence[int], state: DraftState) -> None:
        """Draft for another text: `tokens` are all decided ones, `state` that behind them.

        KV of a common beginning is reused, also what is in the tree. Runs nothing yet. Raises
        ValueError without tokens.
        """
        if not tokens:
            raise ValueError("a text to draft for has at least one token")
        ledger, held = self._ledger, self._model.held()
        if held != ledger.prefix:  # somebody else used the model meanwhile
            ledger = self._ledger = KVLedger(held)
        if ledger.tokens and ledger.common(tokens) == len(held):
            path = ledger.follow(tokens[len(held) :])
            self._reroot([ledger.nodes[slot] for slot in path], [])
        # The last token is computed anew even if it is there: what may follow is not kept.
        length = min(ledger.common(tokens), len(tokens) - 1)
        self._model.rewind(length)
        ledger.rewound(length)
        self._plant(tokens[length:], state)

    def step(self) -> int:
        """One forward pass: a block of the prompt, the root, or the best leaves.

        Returns how many rows were run; 0 if there is nothing to do, or no room for it.
        """
        if self._missing:
            return self._prefill()
        return self._expand() if self._begun else 0

    def accept(self, tokens: Sequence[int], state: DraftState) -> int:
        """Re-root along `tokens`, which were verified behind the root; `state` is behind them.

        Returns how many of them were in the tree, from the first one on. If all were, and the last
        one was expanded, nothing is left to compute; otherwise the next step computes only the
        tokens that the draft has not run.
        """
        if not tokens:
            return 0
        if self._missing:  # the root was not run yet: the tree is empty
            self._plant([*self._missing, *tokens], state)
            return 0
        found = self.tree.reroot(tokens)
        path = [node for node in found.path[1:] if self._expanded(node)]
        if found.tree is not None and len(path) == len(tokens):
            if self._configuration is None:
                self._reroot(path, found.old)
                self._regrow(found.tree, found.old, state)
                return found.matched
            path.pop()  # a new tree: what may follow its root is ranked anew
        self._reroot(path, [])
        self._plant(tokens[len(path) :], state)
        return found.matched

    def _plant(self, missing: Sequence[int], state: DraftState) -> None:
        """Start a new tree at the last of `missing`, the tokens without KV."""
        self._missing = list(missing)
        self.tree = TokenTree(self._missing[-1])
        self._states = {ROOT: state}
        self._leaves = []
        self._begun = True

    def _regrow(self, tree: TokenTree, old: list[int], state: DraftState) -> None:
        """Go on with what survived of the tree; its node i was node `old[i]`."""
        states = self._states
        self._states = {node: states[o] for node, o in enumerate(old) if o in states}
        self._states[ROOT] = state
        self.tree = tree
        self._leaves = []
        for node in range(1, len(tree)):
            if not self._expanded(node):
                self._push(node)

    def _reroot(self, path: Sequence[int], survivors: Sequence[int]) -> None:
        """Move the KV of `path` into the prefix and keep that of `survivors[1:]`, which become
        the nodes 1, 2, ...; drop the rest."""
        move = self._ledger.move(path, survivors[1:])
        self._model.reroot(move.path, move.keep)
        self._ledger.moved(move, survivors)

    def _prefill(self) -> int:
        """Run a block of the missing tokens; with the last one the root is expanded."""
        ledger, missing = self._ledger, self._missing
        if len(ledger.prefix) + len(missing) > self._model.capacity:
            return 0
        block = missing[: self.block]
        last = len(block) == len(missing)
        ranked = self._model.extend(block, self._states[ROOT] if last else None)
        ledger.extended(block)
        del missing[: len(block)]
        if ranked is not None:
            self._add_children(ROOT, ranked)
        return len(block)

    def _expand(self) -> int:
        """Run the best leaves: their rows attend to the prefix and their own ancestors."""
        model, ledger = self._model, self._ledger
        room = min(
            model.max_rows if self._configuration else self.width,
            model.max_rows,
            model.max_pending - len(ledger.tokens),
            model.capacity - ledger.positions,
        )
        if room <= 0 or len(self.tree) >= self.max_nodes:
            return 0
        nodes = self._best_leaves(room)
        if not nodes:
            return 0
        tokens = [self.tree.tokens[node] for node in nodes]
        parents = [ledger.slots.get(self.tree.parents[node], -1) for node in nodes]
        states = [state for node in nodes if (state := self._states[node]) is not None]
        every = model.grow(tokens, parents, states)
        ledger.grown(nodes, tokens, parents)
        for node, ranked in zip(nodes, every, strict=True):
            self._add_children(node, ranked)
        return len(nodes)

    def _best_leaves(self, count: int) -> list[int]:
        """Up to `count` leaves that can be expanded, best first; they are leaves no more."""
        tree, leaves, deepest = self.tree, self._leaves, self._deepest
        found: list[int] = []
        too_deep: list[tuple[float, int]] = []
        while leaves and len(found) < count:
            entry = heapq.heappop(leaves)
            node = entry[1]
            if tree.depths[node] >= deepest:
                too_deep.append(entry)
            elif self._state(node) is not None:  # else the text ends there
                found.append(node)
        for entry in too_deep:
            heapq.heappush(leaves, entry)
        return found

    @property
    def _deepest(self) -> int:
        """Nodes at this depth are not run."""
        configured = self._configuration
        return min(len(configured) if configured else self.max_depth, self._model.max_depth)

    def _state(self, node: int) -> DraftState | None:
        """The state behind `node`, whose parent is expanded."""
        if node not in self._states:
            parent = self._states[self.tree.parents[node]]
            token = self.tree.tokens[node]
            self._states[node] = None if parent is None else parent.after(token)
        return self._states[node]

    def _add_children(self, node: int, ranked: Ranked) -> None:
        """Put the best continuations of an expanded node into the tree, as far as it has room."""
        configured, depth = self._configuration, self.tree.depths[node]
        count = configured[depth] if configured else self.branching
        count = max(0, min(count, self.max_nodes - len(self.tree)))
        for token, log_prob in zip(ranked[0][:count], ranked[1], strict=False):
            self._push(self.tree.add(node, token, log_prob))

    def _push(self, node: int) -> None:
        """Remember a leaf; one that cannot come is never run."""
        score = self.tree.scores[node]
        if score > -math.inf:
            key = -score if self._configuration is None else float(self.tree.depths[node])
            heapq.heappush(self._leaves, (key, node))

    def _expanded(self, node: int) -> bool:
        return node in self._ledger.slots


__all__ = ["DraftModel", "DraftState", "Ranked", "TreeDrafter"]
