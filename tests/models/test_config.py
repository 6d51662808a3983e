"""From config.json to ModelSpec: values by hand, and refusals by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from swiftspec_daemon.errors import ModelError, ModelNotFound, UnsupportedModel
from swiftspec_daemon.models.config import read_spec, spec_from_config
from swiftspec_daemon.models.spec import ModelSpec, RopeSpec

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100,
    "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
QWEN2 = LLAMA | {"architectures": ["Qwen2ForCausalLM"]}
QWEN3 = LLAMA | {"architectures": ["Qwen3ForCausalLM"]}
MISTRAL = LLAMA | {"architectures": ["MistralForCausalLM"]}


def test_llama() -> None:
    assert spec_from_config(LLAMA) == ModelSpec(
        architecture="llama", hidden=64, layers=2, heads=4, kv_heads=4, head_dim=16, ff=96,
        vocab=100, context=128, norm_eps=1e-5, rope=RopeSpec(theta=10_000.0), tied=False,
        bos_id=1, eos_ids=(2,),
    )  # fmt: skip


def test_a_published_qwen2_configuration() -> None:
    """Qwen2.5-Coder-1.5B's, as it stands on the hub."""
    config = {
        "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
        "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 1536,
        "initializer_range": 0.02, "intermediate_size": 8960, "max_position_embeddings": 32768,
        "max_window_layers": 28, "model_type": "qwen2", "num_attention_heads": 12,
        "num_hidden_layers": 28, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": True,
        "torch_dtype": "bfloat16", "use_cache": True, "use_sliding_window": False,
        "vocab_size": 151936,
    }  # fmt: skip
    spec = spec_from_config(config, {"eos_token_id": [151645, 151643]})
    assert spec == ModelSpec(
        architecture="qwen2", hidden=1536, layers=28, heads=12, kv_heads=2, head_dim=128, ff=8960,
        vocab=151936, context=32768, norm_eps=1e-6, rope=RopeSpec(theta=1e6), tied=True,
        qkv_bias=True, bos_id=151643, eos_ids=(151643, 151645),
    )  # fmt: skip
    assert spec.parameters == 1_543_714_304  # as the model's page says: 1.54 B


def test_qwen3_has_norms_and_heads_of_its_own_size() -> None:
    spec = spec_from_config(QWEN3 | {"num_key_value_heads": 2})
    assert (spec.qk_norm, spec.qkv_bias, spec.head_dim, spec.kv_heads) == (True, False, 128, 2)


def test_a_missing_class_name_is_taken_from_the_type() -> None:
    config = {key: value for key, value in LLAMA.items() if key != "architectures"}
    assert spec_from_config(config | {"model_type": "llama"}) == spec_from_config(LLAMA)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"rope_theta": 5e5}, RopeSpec(theta=5e5)),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, RopeSpec(theta=5e5)),
        (
            {"rope_theta": 1e5, "rope_scaling": {"type": "linear", "factor": 4.0}},
            RopeSpec(theta=1e5, kind="linear", factor=4.0),
        ),
        (
            {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e5}},
            RopeSpec(theta=1e5, kind="linear", factor=4.0),
        ),
        (
            {
                "rope_scaling": {
                    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
                }
            },
            RopeSpec(
                kind="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                original_context=64,
            ),
        ),
        (
            {"rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 32}},
            RopeSpec(
                kind="yarn", factor=4.0, original_context=32, beta_fast=32.0, beta_slow=1.0
            ),
        ),
    ],
)  # fmt: skip
def test_rope(given: dict[str, Any], expected: RopeSpec) -> None:
    assert spec_from_config(LLAMA | given).rope == expected


@pytest.mark.parametrize(
    ("config", "window"),
    [
        (LLAMA | {"sliding_window": 16}, None),
        (MISTRAL | {"sliding_window": 16}, 16),
        (MISTRAL | {"sliding_window": None}, None),
        (MISTRAL, None),  # its default, 4096, is longer than the context
        (MISTRAL | {"max_position_embeddings": 8192}, 4096),
        (QWEN2 | {"sliding_window": 16}, None),
        (QWEN2 | {"sliding_window": 16, "use_sliding_window": True, "max_window_layers": 0}, 16),
        (QWEN2 | {"sliding_window": 16, "use_sliding_window": True, "max_window_layers": 2}, None),
        (QWEN3 | {"sliding_window": 16, "layer_types": ["full_attention"] * 2}, None),
    ],
)
def test_sliding_window(config: dict[str, Any], window: int | None) -> None:
    assert spec_from_config(config).sliding_window == window


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (LLAMA | {"architectures": ["GPTBigCodeForCausalLM"]}, "GPTBigCodeForCausalLM"),
        (LLAMA | {"architectures": []}, "none named"),
        (LLAMA | {"attention_bias": True}, "attention_bias"),
        (LLAMA | {"mlp_bias": True}, "mlp_bias"),
        (LLAMA | {"hidden_act": "gelu"}, "gelu"),
        (LLAMA | {"partial_rotary_factor": 0.5}, "Partial rotary"),
        (LLAMA | {"quantization_config": {"quant_method": "awq"}}, "awq"),
        (LLAMA | {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "dynamic"),
        (LLAMA | {"rope_scaling": {"rope_type": "longrope"}}, "longrope"),
        (LLAMA | {"rope_scaling": {"type": "yarn", "factor": 2.0, "mscale": 1.0}}, "mscale"),
        (LLAMA | {"head_dim": 15}, "odd size"),
        (
            QWEN2 | {"sliding_window": 16, "use_sliding_window": True, "max_window_layers": 1},
            "1 of 2 layers",
        ),
    ],
)
def test_what_cannot_be_run_is_named(config: dict[str, Any], name: str) -> None:
    with pytest.raises(UnsupportedModel, match=name):
        spec_from_config(config)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", None), ("hidden_size", "64"), ("hidden_size", -1), ("vocab_size", True),
        ("num_hidden_layers", 2.5), ("rms_norm_eps", 0), ("rope_theta", "big"),
        ("num_key_value_heads", 3), ("rope_scaling", [1]), ("vocab_size", 2**40),
    ],
)  # fmt: skip
def test_senseless_values_are_model_errors(key: str, value: Any) -> None:
    with pytest.raises(ModelError):
        spec_from_config(LLAMA | {key: value})


def test_files_that_are_missing_or_broken(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"config\.json"):
        read_spec(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match="not valid JSON"):
        read_spec(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ModelError, match="no JSON object"):
        read_spec(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [2, 7]}')
    assert read_spec(tmp_path).eos_ids == (2, 7)
