"""Which backend a model gets, what is refused before loading, and texts of real backends."""

from __future__ import annotations

import numpy as np
import psutil
import pytest
import tokenizers
from tokenizers import decoders, pre_tokenizers

from swiftspec_daemon.engine import loading, memory
from swiftspec_daemon.engine.config import DEFAULT_CONTEXT, WorkerConfig
from swiftspec_daemon.engine.loading import choose_context, choose_threads, open_model
from swiftspec_daemon.errors import (
    EngineError,
    ModelNotFound,
    SettingsError,
    UnsupportedModel,
    UsageError,
)
from swiftspec_daemon.models import no_progress

SHAPE = {
    "vocab_size": 264, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 1, "num_key_value_heads": 1, "max_position_embeddings": 128,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    """Makes a folder with a tiny random model and a tokenizer of single bytes."""

    def make(kind):
        import torch
        import transformers

        torch.manual_seed(0)
        config = {
            "llama": lambda: transformers.LlamaConfig(**SHAPE, eos_token_id=256),
            "gpt2": lambda: transformers.GPT2Config(
                vocab_size=264, n_embd=32, n_layer=1, n_head=2, n_positions=128, eos_token_id=256
            ),
        }[kind]()
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        model.save_pretrained(tmp_path / kind)
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        vocabulary = {piece: token for token, piece in enumerate(alphabet)}
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens(["<|end|>"])
        tokenizer.save(str(tmp_path / kind / "tokenizer.json"))
        return str(tmp_path / kind), model

    return make


def logits_of(model, tokens):
    """By the backend in one go, after an empty cache."""
    cache = model.backend.new_cache(model.backend.context)
    return model.backend.append(cache, tokens, logits=True)


@pytest.mark.parametrize(("backend", "tolerance"), [("native", 0.05), ("transformers", 1e-4)])
def test_a_model_that_we_know(folder, backend, tolerance):
    import torch

    name, oracle = folder("llama")
    phases = []
    config = WorkerConfig(model=name, backend=backend, context=100, threads=1)
    model = open_model(config, lambda phase, fraction: phases.append(fraction))
    assert model.backend.name == backend
    assert (model.backend.context, model.backend.vocab) == (100, 264)
    assert list(model.eos_ids) == [256]
    assert sorted(model.token_bytes[:256]) == [bytes([i]) for i in range(256)]
    assert list(model.token_bytes[256:]) == [b""]  # the end token; the head has 7 more rows
    assert min(phases) >= 0
    assert max(phases) <= 1
    tokens = [7, 90, 200, 31]
    with torch.inference_mode():
        expected = oracle(torch.tensor([tokens])).logits[0, -1].numpy()
    found = logits_of(model, tokens)
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()


def test_auto_takes_native_where_it_can_and_transformers_where_it_must(folder, monkeypatch):
    known, _ = folder("llama")
    unknown, _ = folder("gpt2")
    assert open_model(WorkerConfig(model=known, threads=1), no_progress).backend.name == "native"
    other = open_model(WorkerConfig(model=unknown, threads=1), no_progress)
    assert other.backend.name == "transformers"
    assert other.backend.context == 128
    monkeypatch.setattr(loading, "_transformers_installed", lambda: False)
    with pytest.raises(UnsupportedModel) as caught:
        open_model(WorkerConfig(model=unknown), no_progress)
    assert "transformers" in caught.value.hint
    with pytest.raises(UnsupportedModel):
        open_model(WorkerConfig(model=unknown, backend="native"), no_progress)


@pytest.mark.parametrize("backend", ["native", "transformers"])
def test_what_cannot_be_is_refused(folder, backend, monkeypatch):
    name, _ = folder("llama")
    with pytest.raises(SettingsError, match="made for 128 positions"):
        open_model(WorkerConfig(model=name, backend=backend, context=129), no_progress)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("M", (), {"available": 1 << 20})())
    with pytest.raises(EngineError, match="does not fit in memory"):
        open_model(WorkerConfig(model=name, backend=backend), no_progress)


def test_models_that_are_not_there():
    with pytest.raises(ModelNotFound):
        open_model(WorkerConfig(model="no/such"), no_progress)
    with pytest.raises(ModelNotFound):
        open_model(WorkerConfig(), no_progress)
    with pytest.raises(UsageError, match="toy"):
        open_model(WorkerConfig(model="toy:vocab=many"), no_progress)


def test_context():
    assert choose_context(None, 100_000) == DEFAULT_CONTEXT
    assert choose_context(None, 1000) == 1000
    assert choose_context(None, 32_768, window=2048) == 2048
    assert choose_context(32_768, 32_768, window=2048) == 32_768
    with pytest.raises(SettingsError):
        choose_context(1001, 1000)


def test_threads(monkeypatch):
    assert choose_threads(5) == 5
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: 64)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(64)), raising=False)
    assert choose_threads(0) == 8
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {3}, raising=False)
    assert choose_threads(0) == 1


def test_memory_budget():
    gigabyte = 10**9
    memory.require("m", weight_bytes=gigabyte, kv_bytes=gigabyte, available=3 * gigabyte)
    with pytest.raises(EngineError) as caught:
        memory.require("m", weight_bytes=2 * gigabyte, kv_bytes=gigabyte, available=3 * gigabyte)
    assert "2.0 GB for weights and 1.0 GB for keys and values" in caught.value.message
    assert "model.kv_slots" in caught.value.hint
