"""From a hub-format `config.json` to a `ModelSpec`.

Knows the keys that transformers writes for the Llama, Mistral, Qwen2 and Qwen3 classes, old and
new spellings. Reads no weights. What it cannot express it refuses by name: such a model can still
be run by the transformers backend.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from swiftspec_daemon.errors import ModelError, ModelNotFound, UnsupportedModel
from swiftspec_daemon.models.spec import Architecture, ModelSpec, RopeSpec

USE_TRANSFORMERS = 'Run it with the transformers backend (model.backend = "transformers").'

_ARCHITECTURES: dict[str, Architecture] = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
_MODEL_TYPES: dict[str, str] = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
# What the configuration classes of transformers assume where a key is absent.
_DEFAULT_CONTEXT = {"llama": 2048, "qwen2": 32768, "qwen3": 32768}


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises ModelNotFound, ModelError."""
    try:
        value = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise ModelNotFound(
            f"The model folder {file.parent} has no {file.name}.",
            "Fetch the model again, or copy the missing file there.",
        ) from None
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise ModelError(f"{file} is not valid JSON: {error}.", "Fetch the model again.") from None
    if not isinstance(value, dict):
        raise ModelError(f"{file} holds no JSON object.", "Fetch the model again.")
    return value


def read_spec(folder: Path) -> ModelSpec:
    """The spec of a hub-format model folder. Raises ModelNotFound, ModelError, UnsupportedModel."""
    config = read_json(folder / "config.json")
    generation = folder / "generation_config.json"
    return spec_from_config(config, read_json(generation) if generation.exists() else {})


_MOST_LAYERS = 1000
"""More are no model but a damaged configuration, which would keep us busy for hours."""


def spec_from_config(
    config: Mapping[str, Any], generation_config: Mapping[str, Any] | None = None
) -> ModelSpec:
    """The spec that a `config.json` describes; end-of-text ids from both files, in that order.

    Raises UnsupportedModel for what our backends cannot run, ModelError for senseless values.
    """
    class_name = _class_name(config)
    architecture = _ARCHITECTURES[class_name]
    _refuse_variants(config, architecture)
    hidden = _integer(config, "hidden_size")
    heads = _integer(config, "num_attention_heads")
    layers = _integer(config, "num_hidden_layers")
    if layers > _MOST_LAYERS:
        raise UnsupportedModel(f"Models of {layers} layers are not supported.")
    context = _integer(config, "max_position_embeddings", _DEFAULT_CONTEXT[architecture])
    spec = ModelSpec(
        architecture=architecture,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=_integer(config, "num_key_value_heads", heads),
        head_dim=_integer(config, "head_dim", 128 if architecture == "qwen3" else hidden // heads),
        ff=_integer(config, "intermediate_size"),
        vocab=_integer(config, "vocab_size"),
        context=context,
        norm_eps=_number(config, "rms_norm_eps", 1e-6),
        rope=_rope(config, context),
        tied=bool(config.get("tie_word_embeddings", False)),
        qkv_bias=architecture == "qwen2",
        qk_norm=architecture == "qwen3",
        sliding_window=_sliding_window(config, class_name, layers, context),
        bos_id=_ids(config, "bos_token_id")[0] if _ids(config, "bos_token_id") else None,
        eos_ids=end_ids(config, generation_config or {}),
    )
    check(spec)
    return spec


def end_ids(config: Mapping[str, Any], generation_config: Mapping[str, Any]) -> tuple[int, ...]:
    """Ids that end a text, from both files, in that order."""
    return tuple(
        dict.fromkeys((*_ids(config, "eos_token_id"), *_ids(generation_config, "eos_token_id")))
    )


def check(spec: ModelSpec) -> None:
    """Raise ModelError where the numbers contradict each other."""
    if spec.heads % spec.kv_heads:
        raise ModelError(
            f"The model's {spec.heads} query heads are not a multiple of its "
            f"{spec.kv_heads} key/value heads.",
            "The model's configuration is damaged; fetch it again.",
        )
    if spec.head_dim % 2:
        raise UnsupportedModel(f"Heads of odd size ({spec.head_dim}) are not supported.")


def _class_name(config: Mapping[str, Any]) -> str:
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    if name is None:
        name = _MODEL_TYPES.get(str(config.get("model_type")), config.get("model_type"))
    if name not in _ARCHITECTURES:
        raise UnsupportedModel(
            f"The architecture {name or '(none named)'} has no implementation of our own.",
            USE_TRANSFORMERS,
        )
    return str(name)


def _refuse_variants(config: Mapping[str, Any], architecture: Architecture) -> None:
    """Raise UnsupportedModel for options of a known class that change its mathematics."""
    quantization = config.get("quantization_config")
    if quantization:
        method = quantization.get("quant_method") if isinstance(quantization, dict) else None
        raise UnsupportedModel(
            f"Weights quantised by {method or 'an unnamed method'} are not supported.",
            "Use the unquantised model or a GGUF file of it.",
        )
    activation = config.get("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise UnsupportedModel(f"The activation {activation} is not supported.", USE_TRANSFORMERS)
    # In these classes `attention_bias` also gives the output projection a bias; Qwen2 has a
    # fixed bias on Q, K and V alone and no such key.
    if architecture != "qwen2" and config.get("attention_bias"):
        raise UnsupportedModel(
            "Attention biases (attention_bias) are not supported.", USE_TRANSFORMERS
        )
    if config.get("mlp_bias"):
        raise UnsupportedModel(
            "Feed-forward biases (mlp_bias) are not supported.", USE_TRANSFORMERS
        )


def _rope(config: Mapping[str, Any], context: int) -> RopeSpec:
    """From `rope_parameters` (transformers 5) or `rope_theta` and `rope_scaling` (before)."""
    values: dict[str, Any] = {}
    for key in ("rope_scaling", "rope_parameters"):
        given = config.get(key)
        if given is not None and not isinstance(given, dict):
            raise ModelError(f"The configuration's {key} is not an object.")
        values |= given or {}
    if config.get("partial_rotary_factor", values.get("partial_rotary_factor", 1.0)) != 1.0:
        raise UnsupportedModel("Partial rotary embedding is not supported.", USE_TRANSFORMERS)
    theta = _number(values, "rope_theta", _number(config, "rope_theta", 10_000.0))
    kind = values.get("rope_type", values.get("type", "default"))
    if kind in ("default", None):
        return RopeSpec(theta=theta)
    if kind == "linear":
        return RopeSpec(theta=theta, kind="linear", factor=_number(values, "factor"))
    if kind == "llama3":
        return RopeSpec(
            theta=theta,
            kind="llama3",
            factor=_number(values, "factor"),
            low_freq_factor=_number(values, "low_freq_factor"),
            high_freq_factor=_number(values, "high_freq_factor"),
            original_context=_integer(values, "original_max_position_embeddings", context),
        )
    if kind == "yarn":
        return _yarn(values, theta, context)
    raise UnsupportedModel(f"RoPE scaling of kind {kind!r} is not supported.", USE_TRANSFORMERS)


def _yarn(values: Mapping[str, Any], theta: float, context: int) -> RopeSpec:
    for key in ("mscale", "mscale_all_dim"):
        if values.get(key):
            raise UnsupportedModel(f"YaRN with {key} is not supported.", USE_TRANSFORMERS)
    if values.get("truncate", True) is not True:
        raise UnsupportedModel("YaRN with truncate = false is not supported.", USE_TRANSFORMERS)
    original = _integer(values, "original_max_position_embeddings", context)
    given = values.get("attention_factor")
    return RopeSpec(
        theta=theta,
        kind="yarn",
        factor=_number(values, "factor", context / original),
        original_context=original,
        beta_fast=_number(values, "beta_fast", 32.0),
        beta_slow=_number(values, "beta_slow", 1.0),
        attention_factor=None if given is None else _number(values, "attention_factor"),
    )


def _sliding_window(
    config: Mapping[str, Any], class_name: str, layers: int, context: int
) -> int | None:
    """The window that all layers share, None where it never cuts anything off."""
    if class_name == "LlamaForCausalLM":
        return None
    kinds = config.get("layer_types")
    if class_name == "MistralForCausalLM":
        # Its configuration class assumes a window of 4096 where the key is absent.
        window = config.get("sliding_window", 4096)
        windowed = layers if window else 0
    elif not config.get("use_sliding_window", False):
        return None
    else:
        window = config.get("sliding_window", 4096)
        first = _integer(config, "max_window_layers", 28, least=0)
        windowed = max(0, layers - first) if window else 0
    if isinstance(kinds, list):
        windowed = sum(kind == "sliding_attention" for kind in kinds)
    if not windowed or not window or int(window) >= context:
        return None
    if windowed < layers:
        raise UnsupportedModel(
            f"A sliding window on {windowed} of {layers} layers is not supported.",
            USE_TRANSFORMERS,
        )
    return int(window)


def _integer(
    values: Mapping[str, Any], key: str, default: int | None = None, least: int = 1
) -> int:
    value = values.get(key)
    if value is None:
        value = default
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**31:
        raise ModelError(
            f"The model's configuration gives {key} = {value!r}, not an integer above {least - 1}.",
            "The model's configuration is damaged; fetch it again.",
        )
    return value


def _number(values: Mapping[str, Any], key: str, default: float | None = None) -> float:
    value = values.get(key)
    if value is None:
        value = default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e30:
        raise ModelError(
            f"The model's configuration gives {key} = {value!r}, not a number above 0.",
            "The model's configuration is damaged; fetch it again.",
        )
    return float(value)


def _ids(values: Mapping[str, Any], key: str) -> tuple[int, ...]:
    value = values.get(key)
    items = value if isinstance(value, list) else [value]
    return tuple(item for item in items if isinstance(item, int) and item >= 0)
