"""Tiny random models, made by transformers and saved in the hub's format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

TinyModel = Callable[..., Any]

SHAPE = {
    "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
}  # fmt: skip


@pytest.fixture(scope="session")
def tiny_model() -> TinyModel:
    """Makes a random model: `tiny_model("llama", head_dim=24)` is a transformers model, fp32."""
    import torch
    import transformers

    torch.set_num_threads(1)
    classes = {
        "llama": transformers.LlamaConfig,
        "mistral": transformers.MistralConfig,
        "qwen2": transformers.Qwen2Config,
        "qwen3": transformers.Qwen3Config,
    }

    def make(kind: str, *, seed: int = 0, **options: Any) -> Any:
        torch.manual_seed(seed)
        config = classes[kind](**(SHAPE | options))
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        # Weights large enough, and norms and biases different enough from their defaults, that
        # leaving one out shows in the logits.
        for name, parameter in model.named_parameters():
            mean = 1.0 if "norm" in name else 0.0
            torch.nn.init.normal_(parameter, mean=mean, std=0.15)
        return model

    return make


@pytest.fixture
def saved(tiny_model: TinyModel, tmp_path: Path) -> Callable[..., tuple[Any, Path]]:
    """Makes a tiny model and its folder, weights and configuration only."""

    def make(kind: str, *, max_shard_size: str = "50GB", **options: Any) -> tuple[Any, Path]:
        model = tiny_model(kind, **options)
        folder = tmp_path / kind
        model.save_pretrained(folder, max_shard_size=max_shard_size)
        return model, folder

    return make


LAYER_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}  # fmt: skip
OTHER_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def gguf_name(name: str) -> str:
    """llama.cpp's name of a hub tensor."""
    if name in OTHER_NAMES:
        return OTHER_NAMES[name]
    _, _, index, *parts, kind = name.split(".")
    return f"blk.{index}.{LAYER_NAMES['.'.join(parts)]}.{kind}"


def interleave(rows: np.ndarray, heads: int) -> np.ndarray:
    """What llama.cpp's converter does to the rows of Llama's Q and K projections."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows.shape))


@pytest.fixture
def write_gguf(tmp_path: Path) -> Callable[..., Path]:
    """Writes a transformers model as GGUF: `write_gguf(model, "llama", packing="Q8_0")`."""

    def write(
        model: Any,
        architecture: str,
        packing: str = "F32",
        name: str = "tiny.gguf",
        extra: Callable[[Any], None] = lambda writer: None,
    ) -> Path:
        config, path = model.config, tmp_path / name
        writer = gguf.GGUFWriter(path, architecture)
        writer.add_block_count(config.num_hidden_layers)
        writer.add_context_length(config.max_position_embeddings)
        writer.add_embedding_length(config.hidden_size)
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_head_count(config.num_attention_heads)
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
        if getattr(config, "head_dim", None):
            writer.add_key_length(config.head_dim)
        extra(writer)
        tensors = {name: p.detach().numpy() for name, p in model.named_parameters()}
        for hub, tensor in tensors.items():
            if architecture == "llama" and (".q_proj." in hub or ".k_proj." in hub):
                key = "num_attention_heads" if ".q_proj." in hub else "num_key_value_heads"
                tensor = interleave(tensor, getattr(config, key))
            kind = gguf.GGMLQuantizationType[packing if tensor.ndim == 2 else "F32"]
            packed = gguf.quants.quantize(tensor, kind)
            writer.add_tensor(gguf_name(hub), packed, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write
