"""A model on the native library: packed arrays in, logits out.

Knows the C interface and the names of packed arrays (`packing.py`). Not thread-safe: one call at a
time for each model.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from .library import CLayer, CLinear, CShape, CWeights, Library
from .shape import LANES, MAX_DEPTH, MAX_PENDING, MAX_TREE_ROWS, PANEL, NativeShape, round_up

Floats = npt.NDArray[np.float32]
Arrays = Mapping[str, npt.NDArray[np.generic]]

_OK, _BAD_ARGUMENT, _DOES_NOT_FIT, _OUT_OF_MEMORY, _TREE_FULL, _TREE_TOO_DEEP = range(6)
_NO_LOGITS, _LAST_LOGITS, _ALL_LOGITS = range(3)

BAD_TREE = "a token is out of range, or a parent does not come before its row"
BAD_REROOT = (
    "not a root-to-node path of the pending tree, or the rows to keep do not ascend or do not all"
    " hang on the path's end"
)
TREE_FULL = f"a pending tree has at most {MAX_PENDING} rows"
TREE_TOO_DEEP = f"a path of a pending tree has at most {MAX_DEPTH} rows"
_TREE_LIMITS = {_TREE_FULL: TREE_FULL, _TREE_TOO_DEEP: TREE_TOO_DEEP}


class CacheFull(Exception):
    """Rows do not fit into a cache, or lie beyond the model's context."""


class NativeCache:
    """Keys and values of one sequence, as bfloat16, owned by the library.

    A committed prefix, then a pending tree that grows and is re-rooted (SwiftSpec, section 3.2).
    """

    def __init__(self, library: Library, model: int, shape: NativeShape, capacity: int) -> None:
        """Room for `capacity` positions. Raises MemoryError."""
        functions = library.functions
        handle = functions.swiftspec_cache_create(model, capacity)
        if not handle:
            raise MemoryError(f"no memory for the keys and values of {capacity} positions")
        self.handle: int = handle
        self.capacity = capacity
        self.model = model
        self._shape = shape
        self._functions = functions
        self._close = weakref.finalize(self, functions.swiftspec_cache_destroy, handle)

    @property
    def length(self) -> int:
        """Committed positions."""
        return int(self._functions.swiftspec_cache_length(self.handle))

    @property
    def pending(self) -> int:
        """Rows of the pending tree."""
        return int(self._functions.swiftspec_cache_pending(self.handle))

    def read(self, row: int, *, pending: bool = False) -> tuple[Floats, Floats]:
        """Key and value, fp32 [layers, kv_heads, head_dim], of a position or of a pending row.

        For tests and for people who look for errors. Raises ValueError.
        """
        shape = self._shape
        form = (shape.layers, shape.kv_heads, shape.head_width)
        keys, values = np.empty(form, np.float32), np.empty(form, np.float32)
        for layer in range(shape.layers):
            status = self._functions.swiftspec_cache_read(
                self.handle, layer, pending, row, _address(keys[layer]), _address(values[layer])
            )
            _check(status, f"there is no {'pending row' if pending else 'position'} {row}")
        return keys[..., : shape.head_dim], values[..., : shape.head_dim]


class NativeModel:
    """Forward passes over packed arrays, which may be read-only memory maps."""

    def __init__(
        self,
        library: Library,
        shape: NativeShape,
        arrays: Arrays,
        cosines: Floats,
        sines: Floats,
        *,
        threads: int,
        isa: str,
    ) -> None:
        """`cosines` and `sines` are the rotary tables, fp32 [context, head_dim / 2].

        Raises ValueError for arrays that do not fit the shape or an `isa` that does not run here,
        MemoryError.
        """
        self.shape, self.isa, self.compiler = shape, isa, library.compiler
        self.context = len(cosines)
        self._library = library
        self._kept = _Weights(shape, arrays, cosines, sines)
        if not library.has_isa(isa):
            raise ValueError(f"kernels for {isa!r} are not in this build or do not run here")
        if not 1 <= threads <= 256:
            raise ValueError(f"{threads} threads; it must be 1 to 256")
        handle = library.functions.swiftspec_model_create(
            _c_shape(shape, self.context), self._kept.weights, threads, isa.encode()
        )
        if not handle:
            raise MemoryError("no memory or no threads for the model's forward pass")
        self._handle: int = handle
        self._close = weakref.finalize(self, library.functions.swiftspec_model_destroy, handle)

    def cache_bytes(self, capacity: int) -> int:
        """Bytes that a cache of `capacity` positions takes."""
        return int(self._library.functions.swiftspec_cache_bytes(self._handle, capacity))

    def new_cache(self, capacity: int) -> NativeCache:
        """An empty cache. Raises MemoryError."""
        return NativeCache(self._library, self._handle, self.shape, capacity)

    def append(
        self, cache: NativeCache, tokens: Sequence[int], *, logits: str = "last"
    ) -> Floats | None:
        """Commit tokens after the prefix.

        Logits are fp32 [1, head_rows] with "last", [rows, head_rows] with "all", None with "none".
        Raises ValueError, CacheFull.
        """
        wanted = {"none": _NO_LOGITS, "last": _LAST_LOGITS, "all": _ALL_LOGITS}[logits]
        self._own(cache)
        ids = _int32(tokens)
        rows = (0, 1, len(ids))[wanted]
        out = np.empty((rows, self.shape.head_rows), np.float32) if rows else None
        status = self._library.functions.swiftspec_append(
            self._handle, cache.handle, ids.ctypes.data, len(ids), wanted, _address(out)
        )
        _check(status, "a token is out of range, or there is none")
        return out

    def grow(self, cache: NativeCache, tokens: Sequence[int], parents: Sequence[int]) -> Floats:
        """Logits fp32 [rows, head_rows] of rows added to the pending tree.

        parents[i] is the index of the parent among all pending rows, earlier rows of this call
        included, or -1 for the prefix's end: each row attends to the prefix and its ancestors (a
        non-square mask). A call adds up to MAX_TREE_ROWS rows, a tree holds MAX_PENDING, a path
        MAX_DEPTH. Raises ValueError, CacheFull; the tree is as before then.
        """
        return self._grow(cache, tokens, parents, fresh=False)

    def speculate(
        self, cache: NativeCache, tokens: Sequence[int], parents: Sequence[int]
    ) -> Floats:
        """As `grow`, of a new tree that replaces the pending one. Raises ValueError, CacheFull."""
        return self._grow(cache, tokens, parents, fresh=True)

    def _grow(
        self, cache: NativeCache, tokens: Sequence[int], parents: Sequence[int], *, fresh: bool
    ) -> Floats:
        self._own(cache)
        ids, links = _int32(tokens), _int32(parents)
        check_tree_rows(len(ids), len(links))
        out = np.empty((len(ids), self.shape.head_rows), np.float32)
        addresses = (ids.ctypes.data, links.ctypes.data, len(ids), fresh, _address(out))
        status = self._library.functions.swiftspec_grow(self._handle, cache.handle, *addresses)
        _check(status, BAD_TREE)
        return out

    def reroot(self, cache: NativeCache, path: Sequence[int], keep: Sequence[int]) -> None:
        """Move a root-to-node path of pending rows into the prefix, and keep the rows `keep`.

        `keep` ascends, and each one's parent is in it or is the path's last row (the prefix's end
        if the path is empty). The kept rows are the pending tree then, numbered in this order; all
        others are dropped. KV is moved, nothing is computed. Raises ValueError; nothing has changed
        then.
        """
        self._own(cache)
        rows, kept = _int32(path), _int32(keep)
        status = self._library.functions.swiftspec_reroot(
            cache.handle, rows.ctypes.data, len(rows), kept.ctypes.data, len(kept)
        )
        _check(status, BAD_REROOT)

    def commit(self, cache: NativeCache, path: Sequence[int]) -> None:
        """`reroot` that keeps nothing pending. Raises ValueError."""
        self.reroot(cache, path, [])

    def truncate(self, cache: NativeCache, length: int) -> None:
        """Forget positions from `length` on, and a pending tree. Raises ValueError."""
        status = self._library.functions.swiftspec_truncate(cache.handle, length)
        _check(status, f"cannot truncate to {length} positions")

    def _own(self, cache: NativeCache) -> None:
        if cache.model != self._handle:
            raise ValueError("the cache belongs to another model")


class _Weights:
    """The C structures over packed arrays, and the arrays, kept alive."""

    def __init__(self, shape: NativeShape, arrays: Arrays, cosines: Floats, sines: Floats) -> None:
        self._arrays = arrays
        self._held: list[npt.NDArray[np.generic]] = []
        hidden, width = shape.hidden, shape.hidden_width
        half = shape.head_dim // 2
        self.weights = CWeights()
        self.weights.embedding = self._linear("embedding", shape.vocab, width)
        head = "embedding" if shape.tied else "head"
        self.weights.head = self._linear(head, shape.head_rows, width)
        self.weights.final_norm = self._vector("final_norm", hidden)
        self.weights.cosines = self._hold(cosines, np.float32, (len(cosines), half), "cosines")
        self.weights.sines = self._hold(sines, np.float32, (len(cosines), half), "sines")
        self._layers = (CLayer * shape.layers)(
            *(self._layer(shape, i) for i in range(shape.layers))
        )
        self.weights.layers = self._layers

    def _layer(self, shape: NativeShape, i: int) -> CLayer:
        name, qkv = f"layers.{i}", shape.qkv_heads * shape.head_channels
        layer = CLayer()
        layer.qkv = self._linear(f"{name}.qkv", qkv, shape.hidden_width)
        layer.output = self._linear(f"{name}.output", shape.hidden, shape.attention_width)
        gate_up = 2 * round_up(shape.ff, LANES)
        layer.gate_up = self._linear(f"{name}.gate_up", gate_up, shape.hidden_width)
        layer.down = self._linear(f"{name}.down", shape.hidden, shape.ff_width)
        layer.attention_norm = self._vector(f"{name}.attention_norm", shape.hidden)
        layer.ff_norm = self._vector(f"{name}.ff_norm", shape.hidden)
        if shape.qkv_bias:
            layer.qkv_bias = self._vector(f"{name}.qkv_bias", qkv)
        if shape.qk_norm:
            layer.q_norm = self._vector(f"{name}.q_norm", shape.head_dim)
            layer.k_norm = self._vector(f"{name}.k_norm", shape.head_dim)
        return layer

    def _linear(self, name: str, out: int, width: int) -> CLinear:
        panels = round_up(out, PANEL) // PANEL
        form = (panels, width // 4, 2, LANES, 4)
        scales = self._named(f"{name}.scales", np.float32, (panels * PANEL,))
        return CLinear(self._named(f"{name}.panels", np.uint8, form), scales)

    def _vector(self, name: str, size: int) -> int:
        return self._named(name, np.float32, (size,))

    def _named(self, name: str, dtype: npt.DTypeLike, form: tuple[int, ...]) -> int:
        if name not in self._arrays:
            raise ValueError(f"packed array {name} is missing")
        return self._hold(self._arrays[name], dtype, form, name)

    def _hold(
        self,
        array: npt.NDArray[np.generic],
        dtype: npt.DTypeLike,
        form: tuple[int, ...],
        name: str,
    ) -> int:
        if array.dtype != dtype or array.shape != form or not array.flags.c_contiguous:
            raise ValueError(f"packed array {name} is {array.dtype} {array.shape}, not {form}")
        self._held.append(array)
        return array.ctypes.data


def _c_shape(shape: NativeShape, context: int) -> CShape:
    sizes = (shape.hidden, shape.layers, shape.heads, shape.kv_heads, shape.head_dim, shape.ff)
    return CShape(*sizes, shape.vocab, context, shape.head_rows, shape.norm_eps)


def _int32(numbers: Sequence[int]) -> npt.NDArray[np.int32]:
    try:
        return np.ascontiguousarray(numbers, np.int32)
    except OverflowError as error:
        raise ValueError("a number does not fit into 32 bits") from error


def _address(array: Floats | None) -> int | None:
    return None if array is None else array.ctypes.data


def check_tree_rows(tokens: int, parents: int) -> None:
    """Raise ValueError unless one call may add so many rows."""
    if tokens != parents or not 1 <= tokens <= MAX_TREE_ROWS:
        raise ValueError(f"a call adds 1 to {MAX_TREE_ROWS} rows, each with a parent")


def _check(status: int, bad_argument: str) -> None:
    if status == _BAD_ARGUMENT:
        raise ValueError(bad_argument)
    if status == _DOES_NOT_FIT:
        raise CacheFull("the rows do not fit into the cache or the model's context")
    if status == _OUT_OF_MEMORY:
        raise MemoryError("no memory for the forward pass")
    if status in _TREE_LIMITS:
        raise ValueError(_TREE_LIMITS[status])
    if status != _OK:
        raise RuntimeError(f"the native library answered {status}")


__all__ = ["Arrays", "CacheFull", "NativeCache", "NativeModel"]
