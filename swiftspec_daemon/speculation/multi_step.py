"""Multi-step speculative sampling (MSS): SpecInfer's Algorithm 2, for the serial mode.

The other acceptance rule. The draft's children are independent samples of its full distribution;
the target accepts one with probability P(x) / Q(x), or goes on with the residual
norm(max(0, P - Q)) and the next child (SpecInfer, arXiv 2305.09781, section 4.3; the ratio test of
2211.17192 and 2302.01318). Equal to plain sampling in distribution (theorem 4.2), not token by
token, and accepts more often than the walk of `verification` where the temperature is above zero
(theorem 4.3).

It holds under conditions that the walk does not have: the children are *all* samples that were
drawn, in the order they were drawn in, repetitions included; none left out for its probability,
none that was chosen (top-k children make it wrong); and draft, acceptance and residual draw from
streams of their own. Knows no KV and no model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from swiftspec_daemon.speculation.decoding import DecodeState, Row
from swiftspec_daemon.speculation.noise import uniform
from swiftspec_daemon.speculation.sampling import Ids, LogProbs
from swiftspec_daemon.speculation.verification import Rows, Walk

Probabilities = npt.NDArray[np.float64]
"""[ids of the tokenizer], sum 1."""

_DRAFT, _ACCEPT, _RESIDUAL = 1, 2, 3
"""Tags of the random streams. The untagged one is that of the walk's Gumbel noise."""
_ORDINAL = np.uint64(1) << np.uint64(32)
"""Keys of a stream: node * 2**32 + number of the draw."""
_EMPTY = 1e-12
"""A residual with less mass is rounding: P and Q are the same."""


class Streams:
    """The three random streams of a request.

    Counter-based: a number depends on seed, round, node and draw alone, not on what was drawn
    before. A round's number may not come twice in a request, since a distribution that was tried
    with a number must not meet it again; the position of the round's root serves, as it grows.
    """

    def __init__(self, seed: int, round_: int) -> None:
        """`round_` is the absolute position of the root."""
        self._seed, self._round = seed, round_

    def draft(self, node: int, draw: int) -> float:
        """For the `draw`-th child of `node`."""
        return self._number(_DRAFT, node, draw)

    def accept(self, node: int, draw: int) -> float:
        """For the test of the `draw`-th child of `node`."""
        return self._number(_ACCEPT, node, draw)

    def residual(self, node: int) -> float:
        """For the target's own token at `node`."""
        return self._number(_RESIDUAL, node, 0)

    def _number(self, tag: int, node: int, draw: int) -> float:
        key = np.array([node], dtype=np.uint64) * _ORDINAL + np.uint64(draw)
        return float(uniform(self._seed, self._round, key, tag)[0])


class Sample(NamedTuple):
    """One child that the draft drew. Several of one node may have the same token and node."""

    token: int
    node: int | None
    """None if the text ends with it: there is nothing to run behind it."""


class SampledTree:
    """A token tree whose children are independent samples, with the distributions they are of.

    Node 0 is the root; parallel lists `tokens`, `parents` (-1 for the root), `states` (behind the
    node's token), `samples` (what was drawn at the node) and `probabilities` (what from; None for a
    leaf).
    """

    def __init__(self, root: int, state: DecodeState, streams: Streams) -> None:
        """`state` is the one behind the root's token."""
        self.tokens = [root]
        self.parents = [-1]
        self.states = [state]
        self.samples: list[list[Sample]] = [[]]
        self.probabilities: list[Probabilities | None] = [None]
        self.streams = streams

    def __len__(self) -> int:
        return len(self.tokens)

    def expand(self, node: int, logits: Row, count: int, ids: Ids | None = None) -> list[int]:
        """Draw `count` children of a leaf; the new nodes, ascending.

        `logits` are the draft's at the node, `ids` the token ids of a trimmed head, as in
        `DecodeState.rank`. Raises EngineError for logits that are no numbers.
        """
        state = self.states[node]
        q = state.probabilities(logits, ids)
        if not q.any():  # a trimmed head without any token that fits: a leaf
            return []
        self.probabilities[node] = q
        cumulative = np.cumsum(q)
        first = len(self.tokens)
        places: dict[int, int | None] = {}
        for draw in range(count):
            token = _invert(cumulative, self.streams.draft(node, draw))
            if token not in places:
                after = state.after(token)
                places[token] = None if after is None else self._add(node, token, after)
            self.samples[node].append(Sample(token, places[token]))
        return list(range(first, len(self.tokens)))

    def _add(self, parent: int, token: int, state: DecodeState) -> int:
        self.tokens.append(token)
        self.parents.append(parent)
        self.states.append(state)
        self.samples.append([])
        self.probabilities.append(None)
        return len(self.tokens) - 1


Forward = Callable[[SampledTree, Sequence[int]], Sequence[Row]]
"""The draft's logits at these nodes of the tree, whose parents it has run before."""


def sample_tree(
    root: int,
    state: DecodeState,
    streams: Streams,
    configuration: Sequence[int],
    draft: Forward,
    ids: Ids | None = None,
) -> SampledTree:
    """Expand level by level: configuration[i] samples at each node of depth i.

    SpecInfer's expansion configuration <k1, ..., km> (section 3), with samples in place of the
    top k; `ids` as in `SampledTree.expand`. Raises EngineError.
    """
    tree = SampledTree(root, state, streams)
    level = [0]
    for count in configuration:
        if not level:
            break
        following: list[int] = []
        for node, logits in zip(level, draft(tree, level), strict=True):
            following += tree.expand(node, logits, count, ids)
        level = following
    return tree


def walk_multi_step(rows: Rows, tree: SampledTree) -> Walk:
    """VerifyStochastic of Algorithm 2: descend by accepted samples, then the target's own token.

    `rows` are the target's logits by node. Raises EngineError for logits that are no numbers.
    """
    tokens: list[int] = []
    path = [0]
    states: list[DecodeState] = []
    logprobs: list[LogProbs] = []
    node = 0
    while True:
        state = tree.states[node]
        samples = tree.samples[node]
        settled = settle(
            state.probabilities(rows[node]),
            tree.probabilities[node],
            [sample.token for sample in samples],
            partial(tree.streams.accept, node),
            partial(tree.streams.residual, node),
        )
        token, after, finish, emit, found = state.take(settled.token, rows[node])
        if emit:
            tokens.append(token)
            if found is not None:
                logprobs.append(found)
        if after is None:
            return Walk(tokens, path, finish, states, logprobs)
        states.append(after)
        following = None if settled.draw is None else samples[settled.draw].node
        if following is None:
            return Walk(tokens, path, None, states, logprobs)
        path.append(following)
        node = following


class Settled(NamedTuple):
    """What one node's step decided."""

    token: int
    draw: int | None
    """Which sample was accepted; None: the token is the residual's."""


def settle(
    p: Probabilities,
    q: Probabilities | None,
    samples: Sequence[int],
    accept: Callable[[int], float],
    residual: Callable[[], float],
) -> Settled:
    """One node of Algorithm 2: accept a sample, or draw from what is left of the target.

    `p` and `q` are the target's and the draft's probabilities at the node, [ids], sum 1; `samples`
    tokens drawn from `q`, in their order (`q` is needed if there are any). `accept(i)` and
    `residual()` give numbers in (0, 1). SpecInfer takes the samples in random order; drawn
    independently they are exchangeable, and the order of drawing does as well.
    Raises ValueError for samples without `q`.
    """
    left = p
    for draw, token in enumerate(samples):
        if q is None:
            raise ValueError("samples without the probabilities that they were drawn from")
        # r <= P/Q without the division: Q of a token that was drawn is above 0.
        if accept(draw) * q[token] <= left[token]:
            return Settled(token, draw)
        rest = np.maximum(left - q, 0)
        mass = rest.sum()
        if mass <= _EMPTY:  # by rounding alone: where P > Q nowhere, they are the same
            break
        left = rest / mass
    return Settled(_invert(np.cumsum(left), residual()), None)


def _invert(cumulative: Probabilities, number: float) -> int:
    """The index whose share of the cumulative sums holds `number`, in (0, 1)."""
    index = int(np.searchsorted(cumulative, number * cumulative[-1], side="right"))
    if index < len(cumulative):
        return index
    return int(np.searchsorted(cumulative, cumulative[-1]))  # rounding; never an impossible token
