"""The reference forward against transformers, on tiny random models of each architecture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from swiftspec_daemon.models.config import read_spec
from swiftspec_daemon.models.reference import ReferenceModel
from swiftspec_daemon.models.weights import SafetensorsWeights, check_shapes

Saved = Callable[..., tuple[Any, Path]]
TOLERANCE = 1e-4
"""Largest difference of a logit; logits here have a spread of about 10."""

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama, tied": ("llama", {"tie_word_embeddings": True}),
    "llama, no sharing of heads": ("llama", {"num_key_value_heads": 4}),
    "llama, one key head of odd width": ("llama", {"num_key_value_heads": 1, "head_dim": 20}),
    "llama, linear": ("llama", {"rope_parameters": {
        "rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}}),
    "llama, llama3": ("llama", {"rope_parameters": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64, "rope_theta": 1e4}}),
    "mistral": ("mistral", {"sliding_window": None}),
    "mistral, window": ("mistral", {"sliding_window": 7}),
    "qwen2": ("qwen2", {}),
    "qwen2, window": ("qwen2", {
        "use_sliding_window": True, "sliding_window": 7, "max_window_layers": 0}),
    "qwen3": ("qwen3", {"head_dim": 24}),
    "qwen3, tied, yarn": ("qwen3", {"tie_word_embeddings": True, "rope_parameters": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64,
        "rope_theta": 1e4}}),
}  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_as_transformers(variant: str, saved: Saved) -> None:
    kind, options = VARIANTS[variant]
    model, folder = saved(kind, **options)
    spec, weights = read_spec(folder), SafetensorsWeights(folder)
    check_shapes(spec, weights)
    assert spec.parameters == sum(p.numel() for p in model.parameters())
    tokens = np.random.default_rng(1).integers(0, spec.vocab, 40).tolist()
    logits = ReferenceModel(spec, weights).forward(tokens)
    with torch.inference_mode():
        expected = model(torch.tensor([tokens])).logits[0].numpy()
    assert logits.dtype == np.float32
    assert expected.std() > 1  # else the comparison would say nothing
    np.testing.assert_allclose(logits, expected, rtol=0, atol=TOLERANCE)


def test_greedy_as_transformers(saved: Saved) -> None:
    model, folder = saved("qwen2")
    reference = ReferenceModel(read_spec(folder), SafetensorsWeights(folder), keep=True)
    generated = model.generate(
        torch.tensor([[5, 6, 7]]), max_new_tokens=12, do_sample=False, eos_token_id=None
    )
    assert reference.greedy([5, 6, 7], 12) == generated[0, 3:].tolist()


def test_sharded_folder_gives_the_same(saved: Saved) -> None:
    model, folder = saved("llama", max_shard_size="40KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    logits = ReferenceModel(read_spec(folder), SafetensorsWeights(folder)).forward([1, 2, 3])
    with torch.inference_mode():
        expected = model(torch.tensor([[1, 2, 3]])).logits[0].numpy()
    np.testing.assert_allclose(logits, expected, rtol=0, atol=TOLERANCE)
