"""RoPE frequencies and tables against transformers'."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from swiftspec_daemon.models.config import spec_from_config
from swiftspec_daemon.models.rope import cos_sin, inverse_frequencies
from swiftspec_daemon.models.spec import RopeSpec

KINDS: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default", "rope_theta": 1e5},
    "linear": {"rope_type": "linear", "rope_theta": 1e5, "factor": 4.0},
    "llama3": {
        "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
    },
    "yarn": {
        "rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0,
        "original_max_position_embeddings": 32768,
    },
    "yarn, all given": {
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 16.0, "attention_factor": 0.7,
        "beta_fast": 20.0, "beta_slow": 2.0, "original_max_position_embeddings": 2048,
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("head_dim", [64, 80, 128])
def test_as_transformers(kind: str, head_dim: int) -> None:
    config = LlamaConfig(
        hidden_size=4 * head_dim, num_attention_heads=4, head_dim=head_dim,
        max_position_embeddings=131072, rope_parameters=KINDS[kind],
    )  # fmt: skip
    rope = spec_from_config(config.to_dict() | {"architectures": ["LlamaForCausalLM"]}).rope
    frequencies, attention = inverse_frequencies(rope, head_dim)
    name = KINDS[kind]["rope_type"]
    if name == "default":
        expected, factor = LlamaRotaryEmbedding.compute_default_rope_parameters(config)
    else:
        expected, factor = ROPE_INIT_FUNCTIONS[name](config, torch.device("cpu"))
    np.testing.assert_allclose(frequencies, expected.numpy(), rtol=1e-6)
    assert attention == pytest.approx(factor, rel=1e-12)

    positions = np.array([0, 1, 2, 100, 8191])
    cos, sin = cos_sin(rope, head_dim, positions)
    embedding = LlamaRotaryEmbedding(config)
    expected_cos, expected_sin = embedding(torch.zeros(1), torch.from_numpy(positions)[None])
    # At position 8191 one unit in the last place of a frequency is 5e-4 radians.
    tolerance = {"rtol": 0, "atol": 1e-3}
    np.testing.assert_allclose(cos, expected_cos[0, :, : head_dim // 2].numpy(), **tolerance)
    np.testing.assert_allclose(sin, expected_sin[0, :, : head_dim // 2].numpy(), **tolerance)


def test_factors_of_a_file_divide_the_frequencies() -> None:
    plain, _ = inverse_frequencies(RopeSpec(theta=1e4), 8)
    scaled, _ = inverse_frequencies(RopeSpec(theta=1e4, freq_factors=(1.0, 2.0, 4.0, 8.0)), 8)
    np.testing.assert_allclose(scaled, plain / np.array([1, 2, 4, 8]), rtol=1e-7)


def test_first_frequencies_by_hand() -> None:
    frequencies, attention = inverse_frequencies(RopeSpec(theta=10_000.0), 4)
    assert frequencies.tolist() == [1.0, pytest.approx(0.01)]
    assert attention == 1.0
    cos, sin = cos_sin(RopeSpec(theta=10_000.0), 4, np.array([3]))
    assert cos[0, 0] == pytest.approx(np.cos(3.0))
    assert sin[0, 1] == pytest.approx(np.sin(0.03))
