"""What an engine worker asks of a backend: forward passes over one sequence's KV cache.

A backend knows weights and arithmetic; it knows nothing of requests, priorities, text or time.
Token rows form a tree from the start: plain decoding is a tree of one node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

Logits = npt.NDArray[np.float32]


class KVCache(Protocol):
    """Keys and values of one sequence: a committed prefix, then at most one pending tree."""

    @property
    def length(self) -> int:
        """Committed positions."""

    @property
    def capacity(self) -> int:
        """Positions it can hold, pending rows included."""


class Backend(Protocol):
    """A loaded model.

    Contract for every backend: for the same committed prefix, a row's logits depend on its
    root-to-node path alone, not on the other rows. The native backend keeps this to the bit, and
    also for KV that was computed in other block sizes.
    """

    name: str
    kernels: str
    vocab: int
    context: int
    weight_bytes: int

    def kv_bytes(self, capacity: int) -> int:
        """Bytes that a cache of `capacity` positions takes."""

    def new_cache(self, capacity: int) -> KVCache:
        """An empty cache."""

    def append(self, cache: KVCache, tokens: Sequence[int], *, logits: bool) -> Logits | None:
        """Commit `tokens` after the prefix; with `logits`, those of the last token, [vocab].

        Drops a pending tree. Raises ContextTooLong where they do not fit.
        """

    def speculate(self, cache: KVCache, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        """Logits [rows, vocab] of tree rows that hang on the committed prefix.

        `parents[i]` is the index (< i) of row i's parent in this call, or -1 for the prefix's end.
        The rows' KV is pending until `commit`; a second call replaces it.
        """

    def commit(self, cache: KVCache, path: Sequence[int]) -> None:
        """Move the KV of a root-to-node path of pending rows into the prefix, drop the rest."""

    def truncate(self, cache: KVCache, length: int) -> None:
        """Forget all positions from `length` on, and a pending tree."""


Progress = Callable[[str, float], None]
"""Phase for people, and the fraction (0 to 1) of loading that is done."""
