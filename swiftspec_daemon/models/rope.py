"""Rotary position embedding: frequencies of every kind, and tables of cosines and sines.

Su et al., RoFormer (arXiv 2104.09864); linear scaling as in the hub's `rope_scaling`; "llama3" as
in Llama 3.1; YaRN, Peng et al. (arXiv 2309.00071). Computed as transformers does, in float32
where it does, so that results agree. Knows no weights and no tokens.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from swiftspec_daemon.models.spec import RopeSpec

FloatArray = npt.NDArray[np.float32]


def inverse_frequencies(rope: RopeSpec, head_dim: int) -> tuple[FloatArray, float]:
    """Radians a position for each dimension pair, [head_dim / 2], and the attention factor.

    The attention factor multiplies cosines and sines; it is 1 but for YaRN.
    """
    exponents = np.arange(0, head_dim, 2, dtype=np.float64) / head_dim
    frequencies = rope.theta**-exponents
    attention = 1.0
    if rope.kind == "linear":
        frequencies = frequencies / rope.factor
    elif rope.kind == "llama3":
        frequencies = _llama3(rope, frequencies)
    elif rope.kind == "yarn":
        frequencies = _yarn(rope, frequencies, head_dim)
        attention = rope.attention_factor or (
            0.1 * math.log(rope.factor) + 1.0 if rope.factor > 1 else 1.0
        )
    if rope.freq_factors is not None:
        frequencies = frequencies / np.asarray(rope.freq_factors, dtype=np.float64)
    return frequencies.astype(np.float32), attention


def cos_sin(
    rope: RopeSpec, head_dim: int, positions: npt.NDArray[np.integer]
) -> tuple[FloatArray, FloatArray]:
    """Cosines and sines, each [positions, head_dim / 2], attention factor included.

    Element i of a head turns with element i + head_dim / 2:
    `(x[i] * cos - x[i + half] * sin, x[i + half] * cos + x[i] * sin)`.
    """
    frequencies, attention = inverse_frequencies(rope, head_dim)
    # The product is rounded to float32 as in the models' training code; at long positions a more
    # exact angle would be a different one.
    angles = positions.astype(np.float32)[:, None] * frequencies[None, :]
    exact = angles.astype(np.float64)
    return (
        (np.cos(exact) * attention).astype(np.float32),
        (np.sin(exact) * attention).astype(np.float32),
    )


def _llama3(rope: RopeSpec, frequencies: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Long wavelengths are stretched by `factor`, short ones kept, those between blended."""
    low, high = rope.low_freq_factor or 1.0, rope.high_freq_factor or 4.0
    rotations = (rope.original_context or 8192) * frequencies / (2 * math.pi)
    keep = np.clip((rotations - low) / (high - low), 0.0, 1.0)
    return (1 - keep) * frequencies / rope.factor + keep * frequencies


def _yarn(
    rope: RopeSpec, frequencies: npt.NDArray[np.float64], head_dim: int
) -> npt.NDArray[np.float64]:
    """Blend of stretched and kept frequencies over a range of dimensions (section 3.2)."""

    def dimension(rotations: float) -> float:
        ratio = (rope.original_context or 1) / (rotations * 2 * math.pi)
        return head_dim * math.log(ratio) / (2 * math.log(rope.theta))

    low = max(math.floor(dimension(rope.beta_fast or 32.0)), 0)
    high = min(math.ceil(dimension(rope.beta_slow or 1.0)), head_dim - 1)
    width = (high - low) or 0.001
    stretch = np.clip((np.arange(head_dim // 2) - low) / width, 0.0, 1.0)
    return stretch * frequencies / rope.factor + (1 - stretch) * frequencies
