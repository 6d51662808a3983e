"""Small random models of each architecture, their packed arrays and rotary tables."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from swiftspec_daemon.engine.backends import native
from swiftspec_daemon.kernels.native.choose import open_model
from swiftspec_daemon.models import rope
from swiftspec_daemon.models.spec import ModelSpec, RopeSpec

CONTEXT = 600


def spec(architecture="llama", **changes) -> ModelSpec:
    """Two layers, grouped queries, everything small."""
    values = {
        "architecture": architecture,
        "hidden": 96,
        "layers": 2,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 64,
        "ff": 160,
        "vocab": 101,
        "context": CONTEXT,
        "norm_eps": 1e-5,
        "rope": RopeSpec(),
        "tied": False,
        "qkv_bias": architecture == "qwen2",
        "qk_norm": architecture == "qwen3",
    }
    return ModelSpec(**{**values, **changes})


SPECS = {
    "llama": spec(),
    "llama-tied-head80-odd": spec(hidden=100, heads=6, head_dim=80, ff=150, vocab=67, tied=True),
    "llama-head128": spec(head_dim=128, heads=2, kv_heads=2),
    "llama-head8": spec(head_dim=8, heads=3, kv_heads=1, hidden=24, ff=40, vocab=33),
    "llama-group7": spec(head_dim=24, heads=14, kv_heads=2, hidden=130),
    "qwen2": spec("qwen2", vocab=131),
    "qwen3": spec("qwen3", tied=True, head_dim=40),
    "llama3-rope": spec(
        rope=RopeSpec(
            theta=5e5,
            kind="llama3",
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_context=128,
        )
    ),
    "yarn-rope": spec(rope=RopeSpec(kind="yarn", factor=4.0, original_context=64)),
}


class DictWeights:
    """A WeightSource over a dictionary."""

    def __init__(self, tensors: dict[str, np.ndarray]) -> None:
        self.tensors = tensors

    def names(self) -> Iterator[str]:
        return iter(self.tensors)

    def has(self, name: str) -> bool:
        return name in self.tensors

    def shape(self, name: str) -> tuple[int, ...]:
        return self.tensors[name].shape

    def tensor(self, name: str) -> np.ndarray:
        return self.tensors[name]


@dataclass(frozen=True)
class Tiny:
    """A model, as hub tensors and packed."""

    spec: ModelSpec
    weights: dict[str, np.ndarray]
    arrays: dict[str, np.ndarray]

    def open(self, isa: str, threads: int = 1):
        """The model on the kernels."""
        tables = rope.cos_sin(self.spec.rope, self.spec.head_dim, np.arange(CONTEXT))
        shape = native.native_shape(self.spec)
        return open_model(shape, self.arrays, *tables, threads=threads, isa=isa)

    def tokens(self, count: int, seed: int = 0) -> list[int]:
        """Random token ids."""
        return np.random.default_rng(seed).integers(0, self.spec.vocab, count).tolist()


@functools.cache
def model(name: str, layers: int = 2) -> Tiny:
    """The random model of SPECS[name]."""
    of = dataclasses.replace(SPECS[name], layers=layers)
    return build(of, random_weights(of))


def build(of: ModelSpec, weights: dict[str, np.ndarray]) -> Tiny:
    """Packs hub tensors."""
    _, arrays = native.convert(of, DictWeights(weights), lambda phase, fraction: None)
    return Tiny(of, weights, dict(arrays))


def random_weights(of: ModelSpec, seed: int = 0) -> dict[str, np.ndarray]:
    """Hub tensors whose activations stay near one."""
    random = np.random.default_rng(seed)

    def matrix(*form: int) -> np.ndarray:
        return (random.standard_normal(form) / np.sqrt(form[-1])).astype(np.float32)

    def gain(size: int) -> np.ndarray:
        return (1 + 0.2 * random.standard_normal(size)).astype(np.float32)

    q, kv = of.heads * of.head_dim, of.kv_heads * of.head_dim
    tensors = {"model.embed_tokens.weight": matrix(of.vocab, of.hidden) * of.hidden**0.5}
    for i in range(of.layers):
        attention, mlp = f"model.layers.{i}.self_attn.", f"model.layers.{i}.mlp."
        for part, size in (("q", q), ("k", kv), ("v", kv)):
            tensors[f"{attention}{part}_proj.weight"] = matrix(size, of.hidden)
            if of.qkv_bias:
                tensors[f"{attention}{part}_proj.bias"] = gain(size) - 1
            if of.qk_norm and part != "v":
                tensors[f"{attention}{part}_norm.weight"] = gain(of.head_dim)
        tensors[f"{attention}o_proj.weight"] = matrix(of.hidden, q)
        tensors[f"{mlp}gate_proj.weight"] = matrix(of.ff, of.hidden)
        tensors[f"{mlp}up_proj.weight"] = matrix(of.ff, of.hidden)
        tensors[f"{mlp}down_proj.weight"] = matrix(of.hidden, of.ff)
        tensors[f"model.layers.{i}.input_layernorm.weight"] = gain(of.hidden)
        tensors[f"model.layers.{i}.post_attention_layernorm.weight"] = gain(of.hidden)
    tensors["model.norm.weight"] = gain(of.hidden)
    if not of.tied:
        tensors["lm_head.weight"] = matrix(of.vocab, of.hidden)
    return {name: np.asarray(tensor, np.float32) for name, tensor in tensors.items()}
