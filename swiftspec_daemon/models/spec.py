"""What a decoder-only language model is made of: numbers, no weights and no tensors.

Built from a hub-format `config.json` (`swiftspec_daemon.models.config`) or from GGUF metadata
(`swiftspec_daemon.models.gguf`). Knows nothing of files, tokenizers or backends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Architecture = Literal["llama", "qwen2", "qwen3"]


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary position embedding in the half-split ("NeoX") layout.

    `inv_freq` scaling follows the hub's `rope_scaling` kinds:
    "none", "linear" (divide positions), "llama3" (wavelength bands), "yarn" (bands and an
    attention factor). Parameters of a kind that are not used are None.
    """

    theta: float = 10_000.0
    kind: Literal["none", "linear", "llama3", "yarn"] = "none"
    factor: float = 1.0
    low_freq_factor: float | None = None
    high_freq_factor: float | None = None
    original_context: int | None = None
    beta_fast: float | None = None
    beta_slow: float | None = None
    attention_factor: float | None = None
    """Multiplies cosines and sines; None takes what YaRN's paper suggests for `factor`."""
    freq_factors: tuple[float, ...] | None = None
    """Divisors of the inverse frequencies, one a dimension pair, where a GGUF file brings them
    (its form of "llama3" scaling); `kind` is "none" then."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Shapes and constants of one model.

    Linear weights are named and shaped as on the hub: [out features, in features].
    """

    architecture: Architecture
    hidden: int
    """Width of the residual stream."""
    layers: int
    heads: int
    """Query heads."""
    kv_heads: int
    """Key/value heads; heads % kv_heads == 0 (grouped-query attention)."""
    head_dim: int
    ff: int
    """Width of the gated feed-forward network."""
    vocab: int
    """Rows of the embedding; token ids are below it."""
    context: int
    """Positions the model was made for."""
    norm_eps: float
    rope: RopeSpec = field(default_factory=RopeSpec)
    tied: bool = False
    """The LM head is the embedding."""
    qkv_bias: bool = False
    """Q, K and V projections have a bias (Qwen2)."""
    qk_norm: bool = False
    """RMSNorm over each head of Q and K before RoPE (Qwen3)."""
    sliding_window: int | None = None
    """Positions that a token attends to, itself included; None for all."""
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()

    @property
    def parameters(self) -> int:
        """Number of weights, biases and norms included."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        bias = self.head_dim * (self.heads + 2 * self.kv_heads) if self.qkv_bias else 0
        qk = 2 * self.head_dim if self.qk_norm else 0
        layer = attention + bias + qk + 3 * self.hidden * self.ff + 2 * self.hidden
        embedding = self.vocab * self.hidden * (1 if self.tied else 2)
        return self.layers * layer + embedding + self.hidden

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Every weight by its hub name, with its shape."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        layer: dict[str, tuple[int, ...]] = {
            "input_layernorm.weight": (self.hidden,),
            "self_attn.q_proj.weight": (q, self.hidden),
            "self_attn.k_proj.weight": (kv, self.hidden),
            "self_attn.v_proj.weight": (kv, self.hidden),
            "self_attn.o_proj.weight": (self.hidden, q),
            "post_attention_layernorm.weight": (self.hidden,),
            "mlp.gate_proj.weight": (self.ff, self.hidden),
            "mlp.up_proj.weight": (self.ff, self.hidden),
            "mlp.down_proj.weight": (self.hidden, self.ff),
        }
        if self.qkv_bias:
            layer |= {f"self_attn.{name}_proj.bias": (q if name == "q" else kv,) for name in "qkv"}
        if self.qk_norm:
            layer |= {f"self_attn.{name}_norm.weight": (self.head_dim,) for name in "qk"}
        shapes: dict[str, tuple[int, ...]] = {
            "model.embed_tokens.weight": (self.vocab, self.hidden)
        }
        for index in range(self.layers):
            shapes |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
        shapes["model.norm.weight"] = (self.hidden,)
        if not self.tied:
            shapes["lm_head.weight"] = (self.vocab, self.hidden)
        return shapes
