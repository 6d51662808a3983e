"""The mathematics of the models in fp64 NumPy, with unquantised weights, written apart from the
kernels' own reference: whole sequences at once, full masks, hub tensor names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from swiftspec_daemon.models.rope import inverse_frequencies
from swiftspec_daemon.models.spec import ModelSpec


def logits(
    spec: ModelSpec,
    weights: Mapping[str, np.ndarray],
    tokens: Sequence[int],
    *,
    parents: Sequence[int] | None = None,
) -> np.ndarray:
    """Logits fp64 [tokens, vocab] of a chain, or of a tree: parents[i] < i, -1 for a root."""
    if parents is None:
        parents = [i - 1 for i in range(len(tokens))]
    sees = np.zeros((len(tokens), len(tokens)), bool)
    for i, parent in enumerate(parents):
        if parent >= 0:
            sees[i] = sees[parent]
        sees[i, i] = True
    positions = sees.sum(axis=1) - 1

    def w(name: str) -> np.ndarray:
        return np.asarray(weights[name], np.float64)

    x = w("model.embed_tokens.weight")[list(tokens)]
    for i in range(spec.layers):
        layer = f"model.layers.{i}."
        normed = _norm(x, w(layer + "input_layernorm.weight"), spec.norm_eps)
        x = x + _attention(spec, w, layer + "self_attn.", normed, positions, sees)
        normed = _norm(x, w(layer + "post_attention_layernorm.weight"), spec.norm_eps)
        gate = normed @ w(layer + "mlp.gate_proj.weight").T
        up = normed @ w(layer + "mlp.up_proj.weight").T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w(layer + "mlp.down_proj.weight").T
    head = "model.embed_tokens.weight" if spec.tied else "lm_head.weight"
    return _norm(x, w("model.norm.weight"), spec.norm_eps) @ w(head).T


def _norm(x, gain, eps):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * gain


def _attention(spec, w, name, x, positions, sees):
    def heads(part, count):
        y = x @ w(f"{name}{part}_proj.weight").T
        if spec.qkv_bias:
            y = y + w(f"{name}{part}_proj.bias")
        y = y.reshape(len(x), count, spec.head_dim)
        if spec.qk_norm and part != "v":
            y = _norm(y, w(f"{name}{part}_norm.weight"), spec.norm_eps)
        return y

    q = _rotate(spec, heads("q", spec.heads), positions)
    k = _rotate(spec, heads("k", spec.kv_heads), positions)
    v = heads("v", spec.kv_heads)
    k, v = (np.repeat(y, spec.heads // spec.kv_heads, axis=1) for y in (k, v))
    scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(spec.head_dim)
    scores = np.where(sees[None], scores, -np.inf)
    probabilities = np.exp(scores - scores.max(axis=-1, keepdims=True))
    probabilities /= probabilities.sum(axis=-1, keepdims=True)
    mixed = np.einsum("hij,jhd->ihd", probabilities, v).reshape(len(x), -1)
    return mixed @ w(f"{name}o_proj.weight").T


def _rotate(spec, x, positions):
    half = spec.head_dim // 2
    frequencies, factor = inverse_frequencies(spec.rope, spec.head_dim)
    angles = (positions[:, None] * frequencies.astype(np.float64))[:, None]
    a, b = x[..., :half], x[..., half:]
    return (
        np.concatenate(
            [a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)],
            axis=-1,
        )
        * factor
    )
