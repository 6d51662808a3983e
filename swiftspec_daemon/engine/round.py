"""One round: the target runs a token tree in one pass, decides, and keeps the path it took.

SpecInfer's token tree verification (arXiv 2305.09781, section 4) over the engine's backend. Knows
no drafts and no request.
"""

from __future__ import annotations

from collections.abc import Sequence

from swiftspec_daemon.engine.backend import Backend, KVCache
from swiftspec_daemon.speculation.decoding import DecodeState
from swiftspec_daemon.speculation.multi_step import SampledTree, walk_multi_step
from swiftspec_daemon.speculation.tree import TokenTree
from swiftspec_daemon.speculation.verification import Walk, walk


def verify(
    backend: Backend,
    cache: KVCache,
    pending: Sequence[int],
    tree: TokenTree | SampledTree,
    state: DecodeState,
) -> Walk:
    """Decide the next tokens.

    `pending` are the decided tokens whose KV is missing, at least one; the last of them is the
    tree's root, and `state` the one behind it. A tree of samples is decided by multi-step sampling
    (SpecInfer's algorithm 2), any other by the target's own samples. Afterwards the cache holds
    `pending` and the accepted nodes. Raises EngineError; the cache's prefix is then as it was.
    """
    above = len(pending) - 1  # rows before the root's
    tokens = [*pending, *tree.tokens[1:]]
    parents = [*range(-1, above), *(above + parent for parent in tree.parents[1:])]
    logits = backend.speculate(cache, tokens, parents)
    if isinstance(tree, SampledTree):
        walked = walk_multi_step(logits[above:], tree)
    else:
        walked = walk(logits[above:], tree.child, state)
    backend.commit(cache, [*range(above), *(above + node for node in walked.path)])
    return walked
