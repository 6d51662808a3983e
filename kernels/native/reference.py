"""The quantised forward pass in plain NumPy: what the native kernels compute, written to be read.

It is the executable specification of the arithmetic (int8 weights by output channel, int8
activations by row and group of 64 inputs, bfloat16 keys and values, softmax over chunks of 128
absolute positions), the oracle of the kernels' tests, and the fallback where no compiler was
found: slow, and with fp32 copies of the weights in memory. Same interface as `NativeModel`. Rows
are independent of each other: matrix products are exact, everything else is done row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .model import (
    BAD_REROOT,
    BAD_TREE,
    TREE_FULL,
    TREE_TOO_DEEP,
    Arrays,
    CacheFull,
    Floats,
    check_tree_rows,
)
from .packing import from_panels
from .shape import CHUNK, GROUP, LANES, MAX_DEPTH, MAX_PENDING, NativeShape, round_up


def to_bf16(x: Floats) -> Floats:
    """Rounded to bfloat16 (nearest, ties to even), as fp32."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return (rounded << np.uint32(16)).view(np.float32)


def quantise_rows(x: Floats) -> tuple[Floats, Floats]:
    """Whole numbers in [-127, 127], as fp32 [rows, groups, 64], and scales [rows, groups]."""
    groups = x.reshape(len(x), -1, GROUP)
    top = np.abs(groups).max(axis=-1)
    inverse = np.where(top > 1e-30, np.float32(127) / np.maximum(top, np.float32(1e-30)), 0)
    return np.rint(groups * inverse[..., None].astype(np.float32)), top / np.float32(127)


class QuantisedLinear:
    """One packed matrix, unpacked to whole numbers in fp32 [out, in]."""

    def __init__(self, arrays: Arrays, name: str) -> None:
        self._values = from_panels(arrays[f"{name}.panels"]).astype(np.float32)  # type: ignore[arg-type]
        self._scales = np.asarray(arrays[f"{name}.scales"], np.float32)

    def __call__(self, x: Floats) -> Floats:
        """x [rows, in] times the matrix, fp32 [rows, out]; inputs are padded with zeros."""
        padded = np.zeros((len(x), self._values.shape[1]), np.float32)
        padded[:, : x.shape[1]] = x
        values, scales = quantise_rows(padded)
        total = np.zeros((len(x), self._values.shape[0]), np.float32)
        for group in range(scales.shape[1]):
            inputs = slice(group * GROUP, (group + 1) * GROUP)
            # Below 2^24, so fp32 sums it exactly in any order.
            exact = values[:, group] @ self._values[:, inputs].T
            total += exact * scales[:, group, None]
        return total * self._scales

    def row(self, index: int) -> Floats:
        """One row of the matrix, padded."""
        scaled: Floats = self._values[index] * self._scales[index]
        return scaled


class ReferenceCache:
    """Keys and values [layers, kv_heads, position, head_dim], and those of a pending tree."""

    def __init__(self, shape: NativeShape, capacity: int) -> None:
        form = (shape.layers, shape.kv_heads)
        self.shape = shape
        self.capacity = capacity
        self.length = 0
        self.keys = np.zeros((*form, capacity, shape.head_dim), np.float32)
        self.values = np.zeros_like(self.keys)
        self.tail_keys = np.zeros((*form, MAX_PENDING, shape.head_dim), np.float32)
        self.tail_values = np.zeros_like(self.tail_keys)
        self.parents: list[int] = []

    @property
    def pending(self) -> int:
        """Rows of the pending tree."""
        return len(self.parents)

    def read(self, row: int, *, pending: bool = False) -> tuple[Floats, Floats]:
        """As NativeCache.read."""
        if not 0 <= row < (self.pending if pending else self.length):
            raise ValueError(f"there is no {'pending row' if pending else 'position'} {row}")
        keys, values = (self.tail_keys, self.tail_values) if pending else (self.keys, self.values)
        return keys[:, :, row].copy(), values[:, :, row].copy()

    def path_to(self, slot: int) -> tuple[int, ...]:
        """Pending rows from a root to `slot`; empty for -1."""
        path: list[int] = []
        while slot >= 0:
            path.insert(0, slot)
            slot = self.parents[slot]
        return tuple(path)


@dataclass(frozen=True)
class _Row:
    position: int
    prefix: int
    """Positions of the cache that the row sees."""
    slots: tuple[int, ...]
    """Tail slots that it sees, itself last; empty for a row of the prefix."""


class ReferenceModel:
    """Same interface as NativeModel."""

    def __init__(self, shape: NativeShape, arrays: Arrays, cosines: Floats, sines: Floats) -> None:
        """Arguments as for NativeModel."""
        self.shape, self.isa, self.compiler = shape, "numpy", f"numpy {np.__version__}"
        self.context = len(cosines)
        self._arrays, self._cosines, self._sines = arrays, cosines, sines
        self._embedding = QuantisedLinear(arrays, "embedding")
        self._head = self._embedding if shape.tied else QuantisedLinear(arrays, "head")
        names = ("qkv", "output", "gate_up", "down")
        self._linear = [
            {name: QuantisedLinear(arrays, f"layers.{i}.{name}") for name in names}
            for i in range(shape.layers)
        ]

    def cache_bytes(self, capacity: int) -> int:
        """Bytes that a cache of `capacity` positions takes."""
        shape = self.shape
        rows = shape.layers * shape.kv_heads * (capacity + MAX_PENDING)
        return 2 * 4 * rows * shape.head_dim

    def new_cache(self, capacity: int) -> ReferenceCache:
        """An empty cache."""
        return ReferenceCache(self.shape, capacity)

    def append(
        self, cache: ReferenceCache, tokens: Sequence[int], *, logits: str = "last"
    ) -> Floats | None:
        """As NativeModel.append."""
        self._check(cache, tokens, len(tokens))
        rows = [_Row(cache.length + i, cache.length + i + 1, ()) for i in range(len(tokens))]
        hidden = self._forward(cache, tokens, rows)
        cache.length += len(tokens)
        cache.parents = []
        chosen = hidden[{"none": len(hidden), "last": len(hidden) - 1, "all": 0}[logits] :]
        return self._logits(chosen) if len(chosen) else None

    def grow(self, cache: ReferenceCache, tokens: Sequence[int], parents: Sequence[int]) -> Floats:
        """As NativeModel.grow."""
        check_tree_rows(len(tokens), len(parents))
        first = cache.pending
        if first + len(tokens) > MAX_PENDING:
            raise ValueError(TREE_FULL)
        rows: list[_Row] = []
        for i, parent in enumerate(parents):
            if not -1 <= parent < first + i:
                raise ValueError(BAD_TREE)
            above = rows[parent - first].slots if parent >= first else cache.path_to(parent)
            if len(above) >= MAX_DEPTH:
                raise ValueError(TREE_TOO_DEEP)
            rows.append(_Row(cache.length + len(above), cache.length, (*above, first + i)))
        self._check(cache, tokens, max(len(row.slots) for row in rows))
        hidden = self._forward(cache, tokens, rows)
        cache.parents = [*cache.parents, *parents]
        return self._logits(hidden)

    def speculate(
        self, cache: ReferenceCache, tokens: Sequence[int], parents: Sequence[int]
    ) -> Floats:
        """As NativeModel.speculate."""
        before, cache.parents = cache.parents, []
        try:
            return self.grow(cache, tokens, parents)
        except (ValueError, CacheFull):
            cache.parents = before
            raise

    def reroot(self, cache: ReferenceCache, path: Sequence[int], keep: Sequence[int]) -> None:
        """As NativeModel.reroot."""
        for parent, slot in zip([-1, *path], path, strict=False):
            if not 0 <= slot < cache.pending or cache.parents[slot] != parent:
                raise ValueError(BAD_REROOT)
        moved = {path[-1] if path else -1: -1}
        for new, (before, slot) in enumerate(zip([-1, *keep], keep, strict=False)):
            if not before < slot < cache.pending or cache.parents[slot] not in moved:
                raise ValueError(BAD_REROOT)
            moved[slot] = new
        span = slice(cache.length, cache.length + len(path))
        pairs = ((cache.tail_keys, cache.keys), (cache.tail_values, cache.values))
        for tail, prefix in pairs:
            prefix[:, :, span] = tail[:, :, list(path)]
            tail[:, :, : len(keep)] = tail[:, :, list(keep)]
        cache.length += len(path)
        cache.parents = [moved[cache.parents[slot]] for slot in keep]

    def commit(self, cache: ReferenceCache, path: Sequence[int]) -> None:
        """As NativeModel.commit."""
        self.reroot(cache, path, [])

    def truncate(self, cache: ReferenceCache, length: int) -> None:
        """As NativeModel.truncate."""
        if not 0 <= length <= cache.length:
            raise ValueError(f"cannot truncate to {length} positions")
        cache.length = length
        cache.parents = []

    def _check(self, cache: ReferenceCache, tokens: Sequence[int], new: int) -> None:
        if cache.shape != self.shape:
            raise ValueError("the cache belongs to another model")
        if not tokens or not all(0 <= token < self.shape.vocab for token in tokens):
            raise ValueError("a token is out of range, or there is none")
        if cache.length + new > min(cache.capacity, self.context):
            raise CacheFull("the rows do not fit into the cache or the model's context")

    def _forward(
        self, cache: ReferenceCache, tokens: Sequence[int], rows: Sequence[_Row]
    ) -> Floats:
        """The residual stream after the last layer, [rows, hidden]."""
        hidden = self.shape.hidden
        x = np.stack([self._embedding.row(token)[:hidden] for token in tokens])
        for layer, linear in enumerate(self._linear):
            normed = self._norm_rows(x, f"layers.{layer}.attention_norm")
            queries = self._project_heads(cache, layer, linear["qkv"](normed), rows)
            mixed = np.stack(
                [self._attend(cache, layer, q, row) for q, row in zip(queries, rows, strict=True)]
            )
            x = x + linear["output"](mixed)[:, :hidden]
            gate_up = linear["gate_up"](self._norm_rows(x, f"layers.{layer}.ff_norm"))
            x = x + linear["down"](self._gate(gate_up))[:, :hidden]
        return x

    def _logits(self, x: Floats) -> Floats:
        return self._head(self._norm_rows(x, "final_norm"))[:, : self.shape.head_rows]

    def _norm_rows(self, x: Floats, name: str) -> Floats:
        """RMSNorm (Zhang and Sennrich 2019) over the last axis, row by row."""
        gain = np.asarray(self._arrays[name], np.float32)
        eps = np.float32(self.shape.norm_eps)
        factors = [np.float32(1) / np.sqrt(np.mean(row * row, dtype=np.float32) + eps) for row in x]
        return x * np.array(factors, np.float32)[:, None] * gain

    def _gate(self, gate_up: Floats) -> Floats:
        """silu(gate) * up from channels interleaved by 16."""
        split = gate_up.reshape(len(gate_up), -1, 2, LANES)
        gate, up = split[:, :, 0], split[:, :, 1]
        e = np.exp(np.clip(-gate, np.float32(-87), np.float32(88)), dtype=np.float32)
        gated: Floats = (gate * up / (np.float32(1) + e)).astype(np.float32)
        return gated.reshape(len(gate_up), -1)

    def _project_heads(
        self, cache: ReferenceCache, layer: int, qkv: Floats, rows: Sequence[_Row]
    ) -> Floats:
        """Scaled queries [rows, heads, head_dim]; keys and values go to the cache."""
        shape = self.shape
        if shape.qkv_bias:
            qkv = qkv + np.asarray(self._arrays[f"layers.{layer}.qkv_bias"], np.float32)
        heads = qkv.reshape(len(rows), shape.qkv_heads, -1)[:, :, : shape.head_dim]
        q = heads[:, : shape.heads]
        k = heads[:, shape.heads : shape.heads + shape.kv_heads]
        v = heads[:, shape.heads + shape.kv_heads :]
        if shape.qk_norm:
            q = np.stack([self._norm_rows(row, f"layers.{layer}.q_norm") for row in q])
            k = np.stack([self._norm_rows(row, f"layers.{layer}.k_norm") for row in k])
        for i, row in enumerate(rows):
            key = to_bf16(self._rotate(k[i], row.position))
            if row.slots:
                cache.tail_keys[layer, :, row.slots[-1]] = key
                cache.tail_values[layer, :, row.slots[-1]] = to_bf16(v[i])
            else:
                cache.keys[layer, :, row.position] = key
                cache.values[layer, :, row.position] = to_bf16(v[i])
        scale = np.float32(1 / shape.head_dim**0.5)
        return np.stack([self._rotate(q[i], row.position) * scale for i, row in enumerate(rows)])

    def _rotate(self, x: Floats, position: int) -> Floats:
        """Rotary embedding (Su et al. 2021) of [heads, head_dim], half-split."""
        half = self.shape.head_dim // 2
        cosine, sine = self._cosines[position], self._sines[position]
        a, b = x[:, :half], x[:, half:]
        return np.concatenate([a * cosine - b * sine, b * cosine + a * sine], axis=1)

    def _attend(self, cache: ReferenceCache, layer: int, q: Floats, row: _Row) -> Floats:
        """One row's attention, [heads * head_width]: a softmax for each chunk, then joined."""
        shape, slots = self.shape, list(row.slots)
        keys, values = cache.keys[layer, :, : row.prefix], cache.values[layer, :, : row.prefix]
        if slots:
            keys = np.concatenate([keys, cache.tail_keys[layer][:, slots]], axis=1)
            values = np.concatenate([values, cache.tail_values[layer][:, slots]], axis=1)
        grouped = q.reshape(shape.kv_heads, shape.group, shape.head_dim)
        scores = grouped @ keys.transpose(0, 2, 1)
        positions = scores.shape[-1]
        chunks = round_up(positions, CHUNK) // CHUNK
        padding = ((0, 0), (0, 0), (0, chunks * CHUNK - positions))
        split = np.pad(scores, padding, constant_values=-np.inf)
        split = split.reshape(shape.kv_heads, shape.group, chunks, CHUNK)
        tops = split.max(axis=-1)
        weights = np.exp(split - tops[..., None])
        factors = np.exp(tops - tops.max(axis=-1, keepdims=True))
        sums = (weights.sum(axis=-1) * factors).sum(axis=-1)
        flat = (weights * factors[..., None]).reshape(shape.kv_heads, shape.group, -1)
        mixed = (flat[..., :positions] @ values) / sums[..., None]
        out = np.zeros((shape.heads, shape.head_width), np.float32)
        out[:, : shape.head_dim] = mixed.reshape(shape.heads, shape.head_dim)
        return out.reshape(-1)
