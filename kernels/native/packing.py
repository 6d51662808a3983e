"""Weights in the form that the kernels read: int8 panels with a scale for each output channel.

The form is the same for every instruction set. A matrix [out, in] is padded with zeros, each
output channel is divided by (its largest magnitude / 127) and rounded to nearest, and the bytes,
plus 128, are laid out as uint8 [out / 32][in / 4][2][16][4]: the last axis and the second walk
the inputs, the others the output channels. Scales are fp32 [out].

Knows arrays only; names of a checkpoint's tensors are the caller's matter.

Packed arrays of a model, by name (`i` counts layers; padded sizes are in `shape.py`):

    embedding.panels|scales            [vocab, hidden]
    head.panels|scales                 [head_rows, hidden]; absent if tied
    final_norm                         fp32 [hidden]
    layers.i.qkv.panels|scales         [(heads + 2 kv_heads) * head_channels, hidden]
    layers.i.output.panels|scales      [hidden, heads * head_width]
    layers.i.gate_up.panels|scales     [2 * ff, hidden], 16 gate channels, then 16 up channels, ...
    layers.i.down.panels|scales        [hidden, ff]
    layers.i.attention_norm, .ff_norm  fp32 [hidden]
    layers.i.qkv_bias                  fp32 [(heads + 2 kv_heads) * head_channels]; if biased
    layers.i.q_norm, .k_norm           fp32 [head_dim]; if normed
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from .shape import GROUP, LANES, PANEL, NativeShape, round_up

LAYOUT = "int8-panels-1"
"""Names this form; changes whenever it does."""

Floats = npt.NDArray[np.float32]
Named = tuple[str, npt.NDArray[np.generic]]

_ROWS_AT_ONCE = 4096


def quantise(weight: Floats) -> tuple[npt.NDArray[np.int8], Floats]:
    """Int8 values [out, in] and fp32 scales [out]. Raises ValueError for values not finite."""
    values = np.empty(weight.shape, np.int8)
    scales = np.empty(weight.shape[0], np.float32)
    for start in range(0, weight.shape[0], _ROWS_AT_ONCE):
        part = np.asarray(weight[start : start + _ROWS_AT_ONCE], np.float32)
        top = np.abs(part).max(axis=1)
        if not np.isfinite(top).all():
            raise ValueError("a weight is not a finite number")
        scale = (top / np.float32(127)).astype(np.float32)
        divisor = np.where(scale > 0, scale, np.float32(1))[:, None]
        values[start : start + _ROWS_AT_ONCE] = np.clip(np.rint(part / divisor), -127, 127)
        scales[start : start + _ROWS_AT_ONCE] = scale
    return values, scales


def to_panels(values: npt.NDArray[np.int8]) -> npt.NDArray[np.uint8]:
    """Int8 [out, in], padded to whole panels and groups, as panels."""
    out, width = values.shape
    padded = np.zeros((round_up(out, PANEL), round_up(width, GROUP)), np.int8)
    padded[:out, :width] = values
    shifted = padded.view(np.uint8) ^ np.uint8(0x80)
    split = shifted.reshape(-1, 2, LANES, padded.shape[1] // 4, 4)
    return np.ascontiguousarray(split.transpose(0, 3, 1, 2, 4))


def from_panels(panels: npt.NDArray[np.uint8]) -> npt.NDArray[np.int8]:
    """The padded int8 matrix [out, in] of panels."""
    count, fours = panels.shape[:2]
    rows = panels.transpose(0, 2, 3, 1, 4).reshape(count * PANEL, fours * 4)
    return (rows ^ np.uint8(0x80)).view(np.int8)


def pack_linear(name: str, weight: Floats) -> Iterator[Named]:
    """`name`.panels and `name`.scales of a matrix [out, in]."""
    values, scales = quantise(weight)
    padded = np.zeros(round_up(len(scales), PANEL), np.float32)
    padded[: len(scales)] = scales
    yield f"{name}.panels", to_panels(values)
    yield f"{name}.scales", padded


def join_qkv(shape: NativeShape, q: Floats, k: Floats, v: Floats) -> Floats:
    """Projections or biases of queries, keys and values as one, each head padded to panels.

    Matrices are [heads * head_dim, hidden]; biases [heads * head_dim].
    """
    joined = np.concatenate([q, k, v])
    inputs = joined.shape[1:]
    padded = np.zeros((shape.qkv_heads, shape.head_channels, *inputs), np.float32)
    padded[:, : shape.head_dim] = joined.reshape(shape.qkv_heads, shape.head_dim, *inputs)
    return padded.reshape(-1, *inputs)


def pad_output(shape: NativeShape, output: Floats) -> Floats:
    """The output projection [hidden, heads * head_dim] with its input heads padded."""
    padded = np.zeros((shape.hidden, shape.heads, shape.head_width), np.float32)
    padded[:, :, : shape.head_dim] = output.reshape(shape.hidden, shape.heads, shape.head_dim)
    return padded.reshape(shape.hidden, -1)


def join_gate_up(gate: Floats, up: Floats) -> Floats:
    """Gate and up projections [ff, hidden], interleaved by 16 channels."""
    ff, hidden = gate.shape
    padded = np.zeros((round_up(ff, LANES) // LANES, 2, LANES, hidden), np.float32)
    for i, part in enumerate((gate, up)):
        rows = np.zeros((round_up(ff, LANES), hidden), np.float32)
        rows[:ff] = part
        padded[:, i] = rows.reshape(-1, LANES, hidden)
    return padded.reshape(-1, hidden)
