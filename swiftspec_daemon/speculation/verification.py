"""Verification of a token tree: one target sample for each node on the way, then a walk.

At each node the target's own token is decided from that node's logits, exactly as plain decoding
decides it; the walk descends if a child has that token, and ends if none has. ("Naive sampling" in
SpecInfer, arXiv 2305.09781, section 4.3; the walk over cached target distributions of SpecExec,
arXiv 2406.02532, section 3; greedy: SpecInfer's VerifyGreedy.) The draft's probabilities play no
part, so it is lossless for every tree: pruned, merged, stale, of n-grams, or made to deceive; and
since the sample's noise is keyed by position, the tokens are those of plain decoding, not only
their distribution. Knows no KV and no draft.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from swiftspec_daemon.speculation.decoding import DecodeState, Finish
from swiftspec_daemon.speculation.sampling import LogProbs

Child = Callable[[int, int], int | None]
"""The child of a node that has a token: `TokenTree.child`."""
Rows = Sequence[npt.NDArray[np.float32]] | npt.NDArray[np.float32]
"""Logits by node: [nodes, vocab], or anything that gives row i for index i."""


class Walk(NamedTuple):
    """What a round of verification decided."""

    tokens: list[int]
    """New tokens of the text: those of accepted nodes, then the target's own. The own one is
    missing if it is an end id."""
    path: list[int]
    """Nodes from the root (0) to the last accepted one: those whose KV is to be kept."""
    finish: Finish | None
    """Why the text ends with the last token (or before an end id); None: it goes on."""
    states: list[DecodeState]
    """states[i] is behind tokens[i]; the text's last token, if it ends, has none."""
    logprobs: list[LogProbs]
    """Of each token, if the rules ask for them; else empty."""

    @property
    def accepted(self) -> int:
        """Nodes accepted, the root not counted."""
        return len(self.path) - 1


def walk(rows: Rows, child: Child, state: DecodeState) -> Walk:
    """Descend from node 0 as long as the target decides for a child.

    `state` is the one behind the root's token. Only rows on the path are looked at, and nothing
    behind the end of the text is decided. Raises EngineError for logits that are no numbers.
    """
    tokens: list[int] = []
    path = [0]
    states: list[DecodeState] = []
    logprobs: list[LogProbs] = []
    node = 0
    while True:
        token, after, finish, emit, found = state.decide(rows[node])
        if emit:
            tokens.append(token)
            if found is not None:
                logprobs.append(found)
        if after is None:
            return Walk(tokens, path, finish, states, logprobs)
        states.append(after)
        following = child(node, token)
        if following is None:
            return Walk(tokens, path, None, states, logprobs)
        path.append(following)
        node, state = following, after


def children_of(tokens: Sequence[int], parents: Sequence[int]) -> Child:
    """`child` of a tree given as lists: parents[i] < i, -1 for the root, node 0.

    Of several children with the same token the first counts.
    """
    known: dict[tuple[int, int], int] = {}
    for node in range(1, len(tokens)):
        known.setdefault((parents[node], tokens[node]), node)
    return lambda node, token: known.get((node, token))
