"""The mathematics of our architectures in plain NumPy, float32: the oracle of the kernels.

Llama (arXiv 2302.13971), Qwen2 (arXiv 2407.10671: bias on Q, K, V) and Qwen3 (arXiv 2505.09388:
RMSNorm over each head of Q and K). Reads the whole text at once, keeps no cache and is slow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from swiftspec_daemon.models.rope import cos_sin
from swiftspec_daemon.models.spec import ModelSpec
from swiftspec_daemon.models.weights import WeightSource

Floats = npt.NDArray[np.float32]


class ReferenceModel:
    """A model whose weights are unpacked layer by layer at each call.

    `keep=True` keeps them: quicker when called often, four bytes a parameter.
    """

    def __init__(self, spec: ModelSpec, weights: WeightSource, *, keep: bool = False) -> None:
        self.spec = spec
        self._weights = weights
        self._kept: dict[str, Floats] | None = {} if keep else None

    def forward(self, tokens: Sequence[int]) -> Floats:
        """Logits [tokens, vocab] of a text from position 0."""
        spec = self.spec
        hidden = self._tensor("model.embed_tokens.weight")[np.asarray(tokens)]
        cos, sin = cos_sin(spec.rope, spec.head_dim, np.arange(len(tokens)))
        mask = _causal_mask(len(tokens), spec.sliding_window)
        for layer in range(spec.layers):
            prefix = f"model.layers.{layer}."
            normed = self._norm(hidden, f"{prefix}input_layernorm.weight")
            hidden = hidden + self._attention(normed, f"{prefix}self_attn.", cos, sin, mask)
            normed = self._norm(hidden, f"{prefix}post_attention_layernorm.weight")
            hidden = hidden + self._feed_forward(normed, f"{prefix}mlp.")
        head = "model.embed_tokens.weight" if spec.tied else "lm_head.weight"
        logits: Floats = self._norm(hidden, "model.norm.weight") @ self._tensor(head).T
        return logits

    def greedy(self, prompt: Sequence[int], count: int) -> list[int]:
        """The `count` ids that follow, each the most likely one (the lowest of equals)."""
        tokens = list(prompt)
        for _ in range(count):
            tokens.append(int(self.forward(tokens)[-1].argmax()))
        return tokens[len(prompt) :]

    def _attention(self, x: Floats, prefix: str, cos: Floats, sin: Floats, mask: Floats) -> Floats:
        spec = self.spec
        q = self._heads(x, prefix, "q", spec.heads)
        k = self._heads(x, prefix, "k", spec.kv_heads)
        v = self._heads(x, prefix, "v", spec.kv_heads)
        if spec.qk_norm:
            q = self._norm(q, f"{prefix}q_norm.weight")
            k = self._norm(k, f"{prefix}k_norm.weight")
        q, k = _rotate(q, cos, sin), _rotate(k, cos, sin)
        group = spec.heads // spec.kv_heads
        k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
        scores = np.einsum("qhd,khd->hqk", q, k) / np.float32(math.sqrt(spec.head_dim)) + mask
        mixed = np.einsum("hqk,khd->qhd", _softmax(scores), v)
        out: Floats = mixed.reshape(len(x), -1) @ self._tensor(f"{prefix}o_proj.weight").T
        return out

    def _heads(self, x: Floats, prefix: str, name: str, heads: int) -> Floats:
        """A projection split into heads, [tokens, heads, head_dim]."""
        y = x @ self._tensor(f"{prefix}{name}_proj.weight").T
        if self.spec.qkv_bias:
            y = y + self._tensor(f"{prefix}{name}_proj.bias")
        result: Floats = y.reshape(len(x), heads, self.spec.head_dim)
        return result

    def _feed_forward(self, x: Floats, prefix: str) -> Floats:
        """SwiGLU (arXiv 2002.05202)."""
        gate = x @ self._tensor(f"{prefix}gate_proj.weight").T
        up = x @ self._tensor(f"{prefix}up_proj.weight").T
        # exp may overflow to infinity for very negative gates; the quotient is then 0, as it should
        with np.errstate(over="ignore"):
            silu = gate / (1 + np.exp(-gate))
        out: Floats = (silu * up) @ self._tensor(f"{prefix}down_proj.weight").T
        return out

    def _norm(self, x: Floats, name: str) -> Floats:
        """RMSNorm over the last axis (arXiv 1910.07467)."""
        mean_square = np.mean(np.square(x), axis=-1, keepdims=True)
        out: Floats = x / np.sqrt(mean_square + np.float32(self.spec.norm_eps)) * self._tensor(name)
        return out

    def _tensor(self, name: str) -> Floats:
        if self._kept is None:
            return self._weights.tensor(name)
        if name not in self._kept:
            self._kept[name] = self._weights.tensor(name)
        return self._kept[name]


def _rotate(x: Floats, cos: Floats, sin: Floats) -> Floats:
    """RoPE over [tokens, heads, head_dim]; tables [tokens, head_dim / 2]."""
    low, high = np.split(x, 2, axis=-1)
    c, s = cos[:, None, :], sin[:, None, :]
    return np.concatenate([low * c - high * s, high * c + low * s], axis=-1)


def _causal_mask(count: int, window: int | None) -> Floats:
    """0 where a token (row) attends, -inf elsewhere, [count, count]."""
    distance = np.arange(count)[:, None] - np.arange(count)[None, :]
    allowed = (distance >= 0) & (distance < (window or count))
    return np.where(allowed, np.float32(0), np.float32(-np.inf)).astype(np.float32)


def _softmax(scores: Floats) -> Floats:
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    out: Floats = weights / weights.sum(axis=-1, keepdims=True)
    return out
