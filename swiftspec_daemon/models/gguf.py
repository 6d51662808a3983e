"""GGUF files of the architectures we know: a `ModelSpec` and weights under their hub names.

Undoes what llama.cpp's converter did to Llama's Q and K rows (it interleaves the two halves of
each head for its own rotary layout). Knows the `<architecture>.*` metadata keys; the container is
`gguf_format`'s, the vocabulary `tokenizer_gguf`'s.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from swiftspec_daemon.errors import ModelError, UnsupportedModel
from swiftspec_daemon.models import config
from swiftspec_daemon.models.gguf_format import GGUFFile
from swiftspec_daemon.models.spec import Architecture, ModelSpec, RopeSpec

_ARCHITECTURES: dict[str, Architecture] = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_ROPE_FACTORS = "rope_freqs.weight"
_LAYER = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")


def hub_name(name: str) -> str | None:
    """The hub's name of a GGUF tensor; None for one that is no weight of the known kinds."""
    match = _LAYER.fullmatch(name)
    if match is None:
        return _NAMES.get(name)
    index, part, kind = match.groups()
    return f"model.layers.{index}.{_LAYER_NAMES[part]}.{kind}" if part in _LAYER_NAMES else None


def spec_from_gguf(file: GGUFFile) -> ModelSpec:
    """The spec that a GGUF file's metadata describes. Raises UnsupportedModel, ModelError."""
    name = file.metadata.get("general.architecture")
    if name not in _ARCHITECTURES:
        raise UnsupportedModel(
            f"{file.path.name} holds a model of architecture {name}, which has no implementation "
            "of our own.",
            config.USE_TRANSFORMERS,
        )
    architecture = _ARCHITECTURES[name]
    keys = _Keys(file, name)
    _refuse_variants(file, keys, architecture)
    hidden, heads = keys.integer("embedding_length"), keys.integer("attention.head_count")
    head_dim = keys.integer("attention.key_length", hidden // heads)
    context = keys.integer("context_length")
    window = keys.integer("attention.sliding_window", 0)
    bos, eos = file.metadata.get("tokenizer.ggml.bos_token_id"), _eos_ids(file)
    spec = ModelSpec(
        architecture=architecture,
        hidden=hidden,
        layers=keys.integer("block_count"),
        heads=heads,
        kv_heads=keys.integer("attention.head_count_kv", heads),
        head_dim=head_dim,
        ff=keys.integer("feed_forward_length"),
        vocab=_vocabulary(file),
        context=context,
        norm_eps=_shortest(keys.number("attention.layer_norm_rms_epsilon", 1e-6)),
        rope=_rope(file, keys, context, head_dim),
        tied="output.weight" not in file.tensors,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        qk_norm=architecture == "qwen3",
        sliding_window=window if 0 < window < context else None,
        bos_id=bos if isinstance(bos, int) else None,
        eos_ids=eos,
    )
    config.check(spec)
    return spec


class GGUFWeights:
    """The weights of a GGUF file under their hub names (see `weights.WeightSource`)."""

    def __init__(self, file: GGUFFile, spec: ModelSpec) -> None:
        self._file = file
        self._spec = spec
        self._names = {hub: name for name in file.tensors if (hub := hub_name(name)) is not None}

    def names(self) -> Iterator[str]:
        return iter(self._names)

    def has(self, name: str) -> bool:
        return name in self._names

    def shape(self, name: str) -> tuple[int, ...]:
        return self._file.tensors[self._names[name]].shape

    def tensor(self, name: str) -> npt.NDArray[np.float32]:
        tensor = self._file.tensor(self._names[name])
        if self._spec.architecture == "llama":
            if ".q_proj." in name:
                return _halves(tensor, self._spec.heads)
            if ".k_proj." in name:
                return _halves(tensor, self._spec.kv_heads)
        return tensor


def _halves(tensor: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Rows of each head from interleaved pairs to two halves, [heads * head_dim, ...]."""
    rows = tensor.reshape(heads, -1, 2, *tensor.shape[1:])
    return np.ascontiguousarray(rows.swapaxes(1, 2)).reshape(tensor.shape)


class _Keys:
    """Metadata under the architecture's prefix, checked."""

    def __init__(self, file: GGUFFile, prefix: str) -> None:
        self._file = file
        self._prefix = prefix

    def get(self, key: str) -> Any:
        return self._file.metadata.get(f"{self._prefix}.{key}")

    def integer(self, key: str, default: int | None = None) -> int:
        value = self.get(key)
        if value is None:
            value = default
        least = 0 if default == 0 else 1
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**31:
            raise self._senseless(key, value)
        return value

    def number(self, key: str, default: float) -> float:
        value = self.get(key)
        if value is None:
            value = default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e30:
            raise self._senseless(key, value)
        return float(value)

    def _senseless(self, key: str, value: Any) -> ModelError:
        shown = "an array" if isinstance(value, np.ndarray | list) else repr(value)
        return ModelError(
            f"{self._file.path.name} gives {self._prefix}.{key} = {shown}, not a number above 0.",
            "Fetch or copy the file again.",
        )


def _refuse_variants(file: GGUFFile, keys: _Keys, architecture: Architecture) -> None:
    experts = keys.get("expert_count")
    if experts:
        raise UnsupportedModel(
            f"{file.path.name} is a mixture of {experts} experts, which is not supported.",
            config.USE_TRANSFORMERS,
        )
    if "blk.0.attn_output.bias" in file.tensors or (
        architecture != "qwen2" and "blk.0.attn_q.bias" in file.tensors
    ):
        raise UnsupportedModel(
            f"{file.path.name} has attention biases, which are not supported.",
            config.USE_TRANSFORMERS,
        )
    rotated, key_length = keys.get("rope.dimension_count"), keys.get("attention.key_length")
    if rotated and key_length and rotated != key_length:
        raise UnsupportedModel("Partial rotary embedding is not supported.")


def _vocabulary(file: GGUFFile) -> int:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelError(
            f"{file.path.name} has no token embedding (token_embd.weight).",
            "It is one part of a split model, or no language model.",
        )
    return embedding.shape[0]


def _rope(file: GGUFFile, keys: _Keys, context: int, head_dim: int) -> RopeSpec:
    theta = keys.number("rope.freq_base", 10_000.0)
    factors = None
    if _ROPE_FACTORS in file.tensors:
        values = file.tensor(_ROPE_FACTORS)
        if values.shape != (head_dim // 2,) or not np.all(values > 0):
            raise ModelError(f"{file.path.name}: {_ROPE_FACTORS} has the wrong shape or sign.")
        factors = tuple(float(value) for value in values)
    kind = keys.get("rope.scaling.type")
    if kind in (None, "none"):
        factor = keys.number("rope.scale_linear", 1.0)
        if factor != 1.0:
            return RopeSpec(theta=theta, kind="linear", factor=factor, freq_factors=factors)
        return RopeSpec(theta=theta, freq_factors=factors)
    factor = keys.number("rope.scaling.factor", 1.0)
    if kind == "linear":
        return RopeSpec(theta=theta, kind="linear", factor=factor, freq_factors=factors)
    if kind == "yarn":
        return RopeSpec(
            theta=theta,
            kind="yarn",
            factor=factor,
            original_context=keys.integer("rope.scaling.original_context_length", context),
            beta_fast=keys.number("rope.scaling.yarn_beta_fast", 32.0),
            beta_slow=keys.number("rope.scaling.yarn_beta_slow", 1.0),
            freq_factors=factors,
        )
    raise UnsupportedModel(
        f"RoPE scaling of kind {kind!r} is not supported.", config.USE_TRANSFORMERS
    )


def _eos_ids(file: GGUFFile) -> tuple[int, ...]:
    ids = (file.metadata.get(f"tokenizer.ggml.{kind}_token_id") for kind in ("eos", "eot", "eom"))
    return tuple(dict.fromkeys(item for item in ids if isinstance(item, int)))


def _shortest(value: float) -> float:
    """A float32 of the file as the decimal that was meant: 9.999999747e-06 is 1e-05."""
    return float(str(np.float32(value)))


def open_gguf(path: Path) -> tuple[GGUFFile, ModelSpec]:
    """The file and its spec. Raises ModelNotFound, ModelError, UnsupportedModel."""
    file = GGUFFile(path)
    return file, spec_from_gguf(file)
