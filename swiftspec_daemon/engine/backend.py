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
    max_rows: int
    """Rows that one call of `speculate` or `grow` can have."""
    max_pending: int
    """Rows that a cache's pending tree can hold."""
    max_depth: int
    """Rows that one root-to-node path of a pending tree can have."""

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
        The rows' KV is pending until `commit` or `reroot`; a second call replaces it.
        """

    def grow(self, cache: KVCache, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        """Logits [rows, vocab] of rows that are added to the pending tree.

        `parents[i]` is the index of row i's parent among all pending rows, those of this call
        included, or -1 for the prefix's end. Each row attends to the prefix and to its own
        ancestors (the non-square mask of SwiftSpec, section 3.1); positions go by depth.
        Raises ContextTooLong where the rows do not fit; the tree is as before then.
        """

    def reroot(self, cache: KVCache, path: Sequence[int], keep: Sequence[int]) -> None:
        """Move the KV of `path` into the prefix and compact that of `keep` behind it.

        The evolving tree cache of SwiftSpec, section 3.2. `path` is a root-to-node path of pending
        rows; `keep` ascends, and each of its rows hangs on the path's last row (on the prefix's
        end if the path is empty) or on a row in `keep`. The kept rows are the pending tree then,
        numbered in this order; all others are dropped. Computes nothing.
        """

    def commit(self, cache: KVCache, path: Sequence[int]) -> None:
        """`reroot` that keeps nothing pending."""

    def truncate(self, cache: KVCache, length: int) -> None:
        """Forget all positions from `length` on, and a pending tree."""


Progress = Callable[[str, float], None]
"""Phase for people, and the fraction (0 to 1) of loading that is done."""
