"""A draft model on a backend's KV cache, as the tree drafter wants it.

Joins forward passes to ranking: logits never leave here. Knows no request, tree or target.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from swiftspec_daemon.engine.backend import Backend, KVCache, Logits
from swiftspec_daemon.errors import EngineError, SwiftSpecError
from swiftspec_daemon.speculation.decoding import DecodeState, Ranked, TopK
from swiftspec_daemon.speculation.sampling import top_log_probs


class BackendDraft:
    """`swiftspec_daemon.speculation.drafter.DraftModel` over one cache of a backend."""

    def __init__(
        self,
        backend: Backend,
        cache: KVCache,
        *,
        branching: int,
        ids: npt.NDArray[np.intp] | None = None,
        top_k: TopK = top_log_probs,
    ) -> None:
        """`cache` is emptied, and used by nobody else from now on.

        Nodes get up to `branching` candidates. `ids`, [columns], are the token ids of the columns
        of the backend's logits, where its head is trimmed. `top_k` finds the greatest of a row.
        Raises ValueError for a `branching` below 1.
        """
        if branching < 1:
            raise ValueError(f"a node has at least one candidate, not {branching}")
        self.branching = branching
        self.max_pending = backend.max_pending
        self.max_rows = backend.max_rows
        self.max_depth = backend.max_depth
        self.capacity = min(cache.capacity, backend.context)
        self._backend = backend
        self._cache = cache
        self._ids = ids
        self._top_k = top_k
        self._held: list[int] = []
        self._pending: list[int] = []
        """The token of each slot."""
        backend.truncate(cache, 0)

    def held(self) -> list[int]:
        """The tokens of the committed prefix."""
        return list(self._held)

    def extend(self, tokens: Sequence[int], state: DecodeState | None) -> Ranked | None:
        """Commit tokens; what may come after the last one, if its `state` is given.

        Drops pending rows. Raises EngineError; nothing is committed then.
        """
        if max(tokens) >= self._backend.vocab:  # of a prompt: padding of the target's embedding
            raise EngineError(f"Token {max(tokens)} is none of the draft's {self._backend.vocab}.")
        logits = self._backend.append(self._cache, tokens, logits=state is not None)
        self._pending.clear()
        if state is None or logits is None:
            self._held += tokens
            return None
        try:
            ranked = self._rank(logits, state)
        except SwiftSpecError:
            self._backend.truncate(self._cache, len(self._held))
            raise
        self._held += tokens
        return ranked

    def grow(
        self, tokens: Sequence[int], parents: Sequence[int], states: Sequence[DecodeState]
    ) -> list[Ranked]:
        """Add pending rows behind `parents` (slots, or -1 for the prefix's end) and rank what may
        come after each.

        Raises EngineError; nothing is added then.
        """
        logits = self._backend.grow(self._cache, tokens, parents)
        try:
            ranked = [self._rank(row, state) for row, state in zip(logits, states, strict=True)]
        except SwiftSpecError:
            self._backend.reroot(self._cache, [], range(len(self._pending)))
            raise
        self._pending += tokens
        return ranked

    def reroot(self, path: Sequence[int], keep: Sequence[int]) -> None:
        """Move the slots `path` into the prefix; `keep` (ascending) stay pending, compacted."""
        self._backend.reroot(self._cache, path, keep)
        self._held += [self._pending[slot] for slot in path]
        self._pending = [self._pending[slot] for slot in keep]

    def rewind(self, length: int) -> None:
        """Forget all positions from `length` on, and pending rows."""
        self._backend.truncate(self._cache, length)
        del self._held[length:]
        self._pending.clear()

    def _rank(self, logits: Logits, state: DecodeState) -> Ranked:
        return state.rank(logits, self.branching, self._ids, self._top_k)


__all__ = ["BackendDraft"]
