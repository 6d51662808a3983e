"""Models that are damaged, or made for lengths of other names; steps that fail."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from swiftspec_daemon.engine.backends import hub_models
from swiftspec_daemon.engine.backends.transformers import TransformersBackend
from swiftspec_daemon.engine.config import DEFAULT_CONTEXT
from swiftspec_daemon.engine.core import EngineCore
from swiftspec_daemon.engine.generation import Vocabulary
from swiftspec_daemon.engine.messages import Finished, Generate
from swiftspec_daemon.errors import (
    ContextTooLong,
    EngineError,
    ModelError,
    in_one_line,
)
from swiftspec_daemon.models.catalog import ResolvedModel

CPU = torch.device("cpu")
SHAPE = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip
CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**SHAPE),
    "llama, tied": lambda: transformers.LlamaConfig(**SHAPE, tie_word_embeddings=True),
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64
    ),
}


def made(config) -> torch.nn.Module:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def saved(folder: Path, kind: str, changes: dict[str, object] | None = None) -> ResolvedModel:
    """A tiny model in a folder, its configuration changed afterwards."""
    made(CONFIGS[kind]()).save_pretrained(folder)
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | (changes or {})))
    return ResolvedModel("tiny", folder, "safetensors", None)


def refusal(model: ResolvedModel) -> ModelError:
    with pytest.raises(ModelError) as caught:
        TransformersBackend.load(model, device="cpu")
    assert "\n" not in str(caught.value)
    assert len(caught.value.message) < 400
    return caught.value


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_whole_model_is_loaded(tmp_path, kind):
    model = made(CONFIGS[kind]())
    backend = TransformersBackend.load(saved(tmp_path, kind), device="cpu")
    logits = backend.append(backend.new_cache(8), [5, 17, 3], logits=True)
    with torch.inference_mode():
        expected = model(torch.tensor([[5, 17, 3]])).logits[0, -1].numpy()
    assert np.allclose(logits, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "changes", "tensor"),
    [
        ("gpt2", {"n_layer": 3}, "transformer.h.2.attn.c_attn.bias"),
        ("llama", {"num_hidden_layers": 4}, "model.layers.2."),
        ("llama", {"attention_bias": True}, "model.layers.0.self_attn.k_proj.bias"),
        ("llama, tied", {"tie_word_embeddings": False}, "lm_head.weight"),
        ("llama", {"intermediate_size": 40}, "model.layers.0.mlp.down_proj.weight"),
        ("llama", {"vocab_size": 80}, "lm_head.weight"),
        ("gpt2", {"n_positions": 128}, "transformer.wpe.weight"),
    ],
)
def test_tensors_that_do_not_fit_the_configuration_are_refused_by_name(
    tmp_path, kind, changes, tensor
):
    assert tensor in refusal(saved(tmp_path, kind, changes)).message


@pytest.mark.parametrize(
    ("lost", "named"),
    [
        ("model.norm.weight", "lacks the tensor model.norm.weight."),
        ("model.embed_tokens.weight", "lacks the tensor lm_head.weight and 1 more."),  # tied
    ],
)
def test_a_lost_tensor_is_named(tmp_path, lost, named):
    model = saved(tmp_path, "llama, tied")
    file = tmp_path / "model.safetensors"
    save_file({k: v for k, v in load_file(file).items() if k != lost}, file, {"format": "pt"})
    assert named in refusal(model).message


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_size": "32"},
        {"hidden_size": None},
        {"num_attention_heads": 0},
        {"num_attention_heads": 5},
        {"vocab_size": -1},
        {"vocab_size": [64]},
        {"hidden_act": "no such thing"},
        {"rope_parameters": {"rope_type": "no such thing"}},
        {"rope_parameters": 7},
        {"num_hidden_layers": 1.5},
        {"rms_norm_eps": "small"},
        {"model_type": 5},
    ],
    ids=str,
)
def test_a_configuration_of_nonsense_is_a_model_error_of_one_line(tmp_path, changes):
    refusal(saved(tmp_path, "llama", changes))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", b"[]"),
        ("config.json", b"{"),
        ("config.json", b"\xff\xfe"),
        ("config.json", b"null"),
        ("model.safetensors", b""),
        ("model.safetensors", b"\xff" * 64),
        ("model.safetensors", (8).to_bytes(8, "little") + b"{}      "),
    ],
)
def test_files_of_nonsense_are_a_model_error_of_one_line(tmp_path, name, content):
    model = saved(tmp_path, "llama")
    (tmp_path / name).write_bytes(content)
    refusal(model)


@pytest.mark.parametrize("kind", [TypeError, AttributeError, KeyError, AssertionError, Exception])
def test_whatever_loading_raises_is_a_model_error(tmp_path, monkeypatch, kind):
    def fail(*arguments, **options):
        raise kind("one\n  two\n")

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", fail)
    message = refusal(ResolvedModel("tiny", tmp_path, "safetensors", None)).message
    assert "tiny" in message
    assert "two" in message


def test_a_model_that_does_not_run_is_a_model_error(tmp_path, monkeypatch):
    def fail(*arguments, **options):
        raise RuntimeError("no kernel")

    monkeypatch.setattr(transformers.LlamaModel, "forward", fail)
    assert "no kernel" in refusal(saved(tmp_path, "llama")).message


LIMITS = {
    "mpt, max_seq_len": lambda: transformers.MptConfig(
        vocab_size=64, d_model=32, n_heads=4, n_layers=1, max_seq_len=48
    ),
    "gpt2, n_positions": lambda: transformers.GPT2Config(
        vocab_size=64, n_embd=32, n_layer=1, n_head=4, n_positions=48
    ),
    "gptj, n_positions": lambda: transformers.GPTJConfig(
        vocab_size=64, n_embd=32, n_layer=1, n_head=4, n_positions=48, rotary_dim=4
    ),
    "bloom, seq_length": lambda: transformers.BloomConfig(
        vocab_size=64, hidden_size=32, n_layer=1, n_head=4, seq_length=48
    ),
    "opt, max_position_embeddings": lambda: transformers.OPTConfig(
        vocab_size=64, hidden_size=32, ffn_dim=32, num_hidden_layers=1, num_attention_heads=4,
        max_position_embeddings=48, word_embed_proj_dim=32,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", LIMITS)
def test_the_limit_is_found_under_each_name_and_can_be_filled(kind):
    backend = TransformersBackend(made(LIMITS[kind]()), CPU, 4096)
    assert backend.context == 48
    cache = backend.new_cache(64)
    assert backend.append(cache, [1] * 48, logits=True) is not None
    with pytest.raises(ContextTooLong):
        backend.append(cache, [1], logits=True)
    assert TransformersBackend(made(LIMITS[kind]()), CPU, 20).context == 20


@pytest.mark.parametrize(("wanted", "context"), [(None, 4096), (5000, 5000), (9000, 8192)])
def test_the_default_context_is_moderate(tmp_path, wanted, context):
    model = saved(tmp_path, "llama", {"max_position_embeddings": 8192})
    backend = TransformersBackend.load(
        model, device="cpu", context=wanted, default_context=DEFAULT_CONTEXT
    )
    assert backend.context == context


def test_a_limit_that_is_not_said_is_the_users_choice():
    config = transformers.BloomConfig(vocab_size=64, hidden_size=32, n_layer=1, n_head=4)
    assert hub_models.made_for(config) is None
    assert TransformersBackend(made(config), CPU).context == hub_models.UNKNOWN_CONTEXT
    assert TransformersBackend(made(config), CPU, 5000).context == 5000


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("size\nmismatch"),
        IndexError("index out of range in self"),
        ValueError("no"),
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory."),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_failed_step_ends_one_request_and_the_next_is_served(error):
    backend = TransformersBackend(made(CONFIGS["llama"]()), CPU)
    events, failing = [], []

    def fail(*arguments):
        if failing:
            raise failing.pop()

    # in the last layer: the first one has put its keys and values into the cache by then
    backend._model.model.layers[-1].mlp.register_forward_hook(fail)
    core = EngineCore(
        backend,
        Vocabulary.build([b"a"] * 64, [], 64),
        slots=1,
        queue_limit=8,
        step_budget_ms=20.0,
        clock=lambda: 0.0,
        emit=events.append,
    )

    def run(request):
        core.receive(Generate(id=request, prompt=[5, 17, 3], max_tokens=4))
        while core.busy:
            core.step()
        return next(e for e in events if isinstance(e, Finished) and e.id == request)

    assert run(1).reason == "length"
    failing.append(error)
    ended = run(2)
    assert (ended.reason, ended.code) == ("error", "engine_error")
    assert "\n" not in ended.message
    assert run(3).reason == "length"
    tokens = {
        request: [token for e in events if getattr(e, "ids", None) and e.id == request
                  for token in e.ids]
        for request in (1, 3)
    }  # fmt: skip
    assert tokens[1] == tokens[3]


@pytest.mark.parametrize("step", ["append", "grow"])
def test_after_a_failed_step_the_committed_prefix_is_whole(step):
    backend = TransformersBackend(made(CONFIGS["gpt2"]()), CPU)
    cache = backend.new_cache(32)
    backend.append(cache, [5, 17, 3], logits=False)
    expected = backend.speculate(cache, [9, 4], [-1, 0])
    backend.commit(cache, [])
    failing = [RuntimeError("no")]

    def fail(*arguments):
        if failing:
            raise failing.pop()

    backend._model.transformer.h[-1].register_forward_hook(fail)
    steps = {
        "append": lambda: backend.append(cache, [8, 8], logits=True),
        "grow": lambda: backend.grow(cache, [8, 8], [-1, 0]),
    }
    with pytest.raises(EngineError):
        steps[step]()
    assert cache.length == 3
    assert np.array_equal(backend.grow(cache, [9, 4], [-1, 0]), expected)


def test_a_move_that_fails_leaves_an_empty_cache(monkeypatch):
    backend = TransformersBackend(made(CONFIGS["llama"]()), CPU)
    cache = backend.new_cache(32)
    backend.append(cache, [5, 17, 3], logits=False)
    backend.grow(cache, [9, 4], [-1, 0])

    def fail(*arguments):
        raise torch.OutOfMemoryError("no")

    monkeypatch.setattr(backend, "_select", fail)
    with pytest.raises(EngineError):
        backend.commit(cache, [0])
    assert cache.length == 0
    assert backend.append(cache, [5], logits=True) is not None


def test_a_lost_device_is_no_matter_of_one_request():
    with pytest.raises(RuntimeError, match="CUDA error"), hub_models.step_errors():
        raise RuntimeError("CUDA error: device-side assert triggered")


def test_one_line():
    assert in_one_line(ValueError("a\n\tb  c")) == "a b c."
    assert in_one_line(ValueError("Really?")) == "Really?"
    assert in_one_line(KeyError()) == "KeyError."
    assert len(in_one_line(ValueError("x" * 1000))) < 310
