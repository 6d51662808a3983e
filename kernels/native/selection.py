"""The most probable tokens of rows of logits: in the library, or in NumPy where there is none.

Knows rows of numbers only; which token a column stands for is the caller's matter.
SWIFTSPEC_NATIVE_ISA forces an implementation, as for models.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .library import ISA_VARIABLE, NUMPY, Library, LibraryUnavailable, load

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]

_NO_DISTRIBUTION = "a row of logits holds NaN or infinity, or nothing but -infinity"


def top_k(logits: Floats, k: int, *, isa: str | None = None) -> tuple[Ids, Floats]:
    """The `k` largest of each row of fp32 logits [rows, n].

    Column numbers int32 [rows, k] by descending logit, of equals the lowest first, and their
    natural log-probabilities fp32 [rows, k] in a softmax over the whole row. Raises ValueError for
    a k that is not 1 to n and for rows that are no distribution (-infinity alone is allowed).
    """
    rows = _rows(logits, k)
    native = _native(isa or os.environ.get(ISA_VARIABLE) or None)
    ids, values, sums = native.top_k(rows, k) if native else _numpy_top_k(rows, k)
    if not np.isfinite(values[:, 0]).all():
        raise ValueError(_NO_DISTRIBUTION)
    with np.errstate(over="ignore"):  # -infinity is right then
        return ids, (values - values[:, :1]) - np.log(sums)[:, None]


def argmax(logits: Floats) -> Ids:
    """The column of each row's largest logit, int32 [rows]; the lowest of equals.

    NumPy's own is the fastest there is. Raises ValueError for NaN.
    """
    rows = _rows(logits, 1)
    ids: Ids = rows.argmax(axis=1).astype(np.int32)
    if np.isnan(rows[np.arange(len(rows)), ids]).any():  # where there is one, it is NumPy's choice
        raise ValueError(_NO_DISTRIBUTION)
    return ids


def _rows(logits: Floats, k: int) -> Floats:
    rows = np.ascontiguousarray(logits, np.float32)
    if rows.ndim != 2 or not 1 <= k <= rows.shape[1]:
        raise ValueError(f"cannot take the {k} largest of each row of logits {rows.shape}")
    return rows


def _numpy_top_k(rows: Floats, k: int) -> tuple[Ids, Floats, Floats]:
    """Columns, values and sums of exp(logit - largest)."""
    if np.isnan(rows).any():
        raise ValueError(_NO_DISTRIBUTION)
    # The k-th largest by partition; then all that are not below it, in a stable order.
    bounds = -np.partition(-rows, k - 1, axis=1)[:, k - 1]
    ids = np.empty((len(rows), k), np.int32)
    for i, (row, bound) in enumerate(zip(rows, bounds, strict=True)):
        candidates = np.flatnonzero(row >= bound)
        ids[i] = candidates[np.argsort(-row[candidates], kind="stable")[:k]]
    values = np.take_along_axis(rows, ids, axis=1)
    tops = np.where(np.isfinite(values[:, :1]), values[:, :1], np.float32(0))
    with np.errstate(over="ignore"):
        sums = np.exp(rows - tops, dtype=np.float32).sum(axis=1, dtype=np.float32)
    return ids, values, sums


@dataclass(frozen=True)
class _NativeSelection:
    """The library, and its kernels of one instruction set."""

    library: Library
    kernels: int

    def top_k(self, rows: Floats, k: int) -> tuple[Ids, Floats, Floats]:
        """As _numpy_top_k."""
        ids = np.empty((len(rows), k), np.int32)
        values = np.empty((len(rows), k), np.float32)
        sums = np.empty(len(rows), np.float32)
        status = self.library.functions.swiftspec_top_k(
            self.kernels,
            rows.ctypes.data,
            *rows.shape,
            k,
            ids.ctypes.data,
            values.ctypes.data,
            sums.ctypes.data,
        )
        if status:
            raise ValueError(_NO_DISTRIBUTION)
        return ids, values, sums


@functools.cache
def _native(isa: str | None) -> _NativeSelection | None:
    """None for NumPy. Raises ValueError for an `isa` that does not run here."""
    if isa == NUMPY:
        return None
    try:
        library = load()
    except LibraryUnavailable as error:
        if isa is not None:
            raise ValueError(f"kernels for {isa!r} are not here: {error}") from error
        return None
    kernels = library.functions.swiftspec_kernels((isa or library.best_isa).encode())
    if not kernels:
        raise ValueError(f"kernels for {isa!r} are not in this build or do not run here")
    return _NativeSelection(library, kernels)
