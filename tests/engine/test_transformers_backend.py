"""The transformers backend against plain forward passes of the same models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from swiftspec_daemon.engine.backends.transformers import TransformersBackend
from swiftspec_daemon.errors import ContextTooLong, EngineError, ModelError, UnsupportedModel
from swiftspec_daemon.models.catalog import ResolvedModel

TOLERANCE = 2e-5
PREFIX = [5, 17, 3, 42, 8, 21, 13]
# A root with two children, one of which has two; and a second root.
TOKENS, PARENTS = [9, 30, 31, 7, 12, 50], [-1, 0, 0, -1, 1, 1]
PATHS = [[0], [0, 1], [0, 2], [3], [0, 1, 4], [0, 1, 5]]
SHAPE = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip

CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**SHAPE),
    "mistral, window 4": lambda: transformers.MistralConfig(**SHAPE, sliding_window=4),
    "qwen2, window on some layers": lambda: transformers.Qwen2Config(
        **SHAPE, use_sliding_window=True, sliding_window=4, max_window_layers=1
    ),
    "gpt2, learned positions": lambda: transformers.GPT2Config(
        vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64
    ),
    "bloom, ALiBi": lambda: transformers.BloomConfig(
        vocab_size=64, hidden_size=32, n_layer=2, n_head=4
    ),
}


@pytest.fixture(scope="module", params=CONFIGS)
def backend(request: pytest.FixtureRequest) -> TransformersBackend:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[request.param]()).eval()
    for parameter in model.parameters():  # large enough that an error shows in the logits
        torch.nn.init.normal_(parameter, std=0.3)
    return TransformersBackend(model, torch.device("cpu"))


def plain(backend: TransformersBackend, tokens: list[int]) -> np.ndarray:
    """Logits of the last token, by the model itself, without a cache."""
    with torch.inference_mode():
        logits = backend._model(input_ids=torch.tensor([tokens]), use_cache=False).logits
    return logits[0, -1].numpy()


def close(found: np.ndarray, expected: np.ndarray) -> bool:
    return bool(np.allclose(found, expected, rtol=0, atol=TOLERANCE * np.abs(expected).max()))


def test_append_in_pieces_gives_plain_logits(backend: TransformersBackend) -> None:
    cache = backend.new_cache(32)
    assert backend.append(cache, PREFIX[:3], logits=False) is None
    logits = backend.append(cache, PREFIX[3:], logits=True)
    assert cache.length == len(PREFIX)
    assert logits is not None
    assert logits.shape == (64,)
    assert logits.dtype == np.float32
    assert close(logits, plain(backend, PREFIX))


def test_tree_rows_give_plain_logits_of_their_paths(backend: TransformersBackend) -> None:
    cache = backend.new_cache(32)
    backend.append(cache, PREFIX, logits=False)
    rows = backend.speculate(cache, TOKENS, PARENTS)
    assert rows.shape == (6, 64)
    for row, path in zip(rows, PATHS, strict=True):
        assert close(row, plain(backend, PREFIX + [TOKENS[i] for i in path]))
    assert cache.length == len(PREFIX)


def test_a_tree_grows_and_is_rerooted(backend: TransformersBackend) -> None:
    """Rows in three calls; the path [0, 1] is committed, its children 4 and 5 stay."""
    cache = backend.new_cache(32)
    backend.append(cache, PREFIX, logits=False)
    for start, stop in ((0, 1), (1, 4), (4, 6)):
        rows = backend.grow(cache, TOKENS[start:stop], PARENTS[start:stop])
        assert rows.shape == (stop - start, 64)
        for row, path in zip(rows, PATHS[start:stop], strict=True):
            assert close(row, plain(backend, PREFIX + [TOKENS[i] for i in path]))
    assert cache.length == len(PREFIX)
    backend.reroot(cache, [0, 1], [4, 5])
    text = [*PREFIX, 9, 30]
    assert cache.length == len(text)
    rows = backend.grow(cache, [2, 3, 4], [1, 0, -1])
    for row, path in zip(rows, ([50, 2], [12, 3], [4]), strict=True):
        assert close(row, plain(backend, [*text, *path]))
    backend.reroot(cache, [], [0, 3])
    assert close(backend.grow(cache, [6], [1])[0], plain(backend, [*text, 12, 3, 6]))
    backend.reroot(cache, [0, 1, 2], [])
    logits = backend.append(cache, [11], logits=True)
    assert logits is not None
    assert close(logits, plain(backend, [*text, 12, 3, 6, 11]))


def test_moves_that_are_none_are_refused(backend: TransformersBackend) -> None:
    cache = backend.new_cache(32)
    backend.append(cache, PREFIX, logits=False)
    backend.grow(cache, TOKENS, PARENTS)
    for path, keep in (([0, 3], []), ([0], [3]), ([0], [5]), ([], [3, 0]), ([3], [3])):
        with pytest.raises(EngineError):
            backend.reroot(cache, path, keep)
    with pytest.raises(EngineError):
        backend.grow(cache, [1], [7])
    with pytest.raises(ContextTooLong):
        backend.grow(cache, [1] * 20, [-1] * 20)
    assert close(backend.grow(cache, [1], [5])[0], plain(backend, [*PREFIX, 9, 30, 50, 1]))


def test_commit_keeps_one_path(backend: TransformersBackend) -> None:
    cache = backend.new_cache(32)
    backend.append(cache, PREFIX, logits=False)
    backend.speculate(cache, TOKENS, PARENTS)
    backend.commit(cache, [0, 1, 5])
    text = [*PREFIX, 9, 30, 50]
    assert cache.length == len(text)
    logits = backend.append(cache, [11], logits=True)
    assert logits is not None
    assert close(logits, plain(backend, [*text, 11]))


def test_a_second_tree_and_an_append_drop_the_pending_one(backend: TransformersBackend) -> None:
    cache = backend.new_cache(32)
    backend.append(cache, PREFIX, logits=False)
    backend.speculate(cache, TOKENS, PARENTS)
    assert close(backend.speculate(cache, [1], [-1])[0], plain(backend, [*PREFIX, 1]))
    logits = backend.append(cache, [2], logits=True)
    assert logits is not None
    assert close(logits, plain(backend, [*PREFIX, 2]))


def test_commit_of_nothing_drops_the_tree(backend: TransformersBackend) -> None:
    cache = backend.new_cache(32)
    backend.append(cache, PREFIX, logits=False)
    backend.speculate(cache, TOKENS, PARENTS)
    backend.commit(cache, [])
    assert cache.length == len(PREFIX)
    assert close(backend.speculate(cache, [1], [-1])[0], plain(backend, [*PREFIX, 1]))


@pytest.mark.parametrize("length", [0, 1, 4])
def test_truncate_and_go_on(backend: TransformersBackend, length: int) -> None:
    cache = backend.new_cache(32)
    backend.append(cache, PREFIX, logits=False)
    backend.speculate(cache, TOKENS, PARENTS)
    backend.truncate(cache, length)
    assert cache.length == length
    logits = backend.append(cache, [33, 34], logits=True)
    assert logits is not None
    assert close(logits, plain(backend, [*PREFIX[:length], 33, 34]))


def test_a_tree_on_an_empty_prefix(backend: TransformersBackend) -> None:
    cache = backend.new_cache(32)
    rows = backend.speculate(cache, TOKENS, PARENTS)
    for row, path in zip(rows, PATHS, strict=True):
        assert close(row, plain(backend, [TOKENS[i] for i in path]))
    backend.commit(cache, [0, 2])
    assert close(backend.speculate(cache, [1], [-1])[0], plain(backend, [9, 31, 1]))


def test_a_full_cache_is_an_error_and_stays_usable(backend: TransformersBackend) -> None:
    cache = backend.new_cache(8)
    backend.append(cache, PREFIX, logits=False)
    with pytest.raises(ContextTooLong):
        backend.append(cache, [1, 2], logits=True)
    with pytest.raises(ContextTooLong):
        backend.speculate(cache, [1, 2], [-1, -1])
    logits = backend.append(cache, [1], logits=True)
    assert logits is not None
    assert close(logits, plain(backend, [*PREFIX, 1]))


def test_a_path_that_is_none_is_refused(backend: TransformersBackend) -> None:
    cache = backend.new_cache(32)
    backend.append(cache, PREFIX, logits=False)
    backend.speculate(cache, TOKENS, PARENTS)
    with pytest.raises(EngineError):
        backend.commit(cache, [0, 3])


def test_kv_bytes_are_what_the_cache_takes(backend: TransformersBackend) -> None:
    cache = backend.new_cache(32)
    backend.append(cache, PREFIX, logits=False)
    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.store.layers)
    assert backend.kv_bytes(len(PREFIX)) == held


def test_trees_go_in_one_pass_where_masks_are_honoured() -> None:
    torch.manual_seed(1)
    llama = transformers.AutoModelForCausalLM.from_config(CONFIGS["llama"]()).eval()
    assert TransformersBackend(llama, torch.device("cpu"))._masked
    bloom = transformers.AutoModelForCausalLM.from_config(CONFIGS["bloom, ALiBi"]()).eval()
    assert not TransformersBackend(bloom, torch.device("cpu"))._masked


def test_models_whose_state_cannot_be_rewound_are_refused() -> None:
    mamba = transformers.AutoModelForCausalLM.from_config(
        transformers.MambaConfig(vocab_size=64, hidden_size=16, num_hidden_layers=1)
    )
    with pytest.raises(UnsupportedModel):
        TransformersBackend(mamba.eval(), torch.device("cpu"))


def test_load_reads_a_folder(tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS["llama"]()).eval()
    model.save_pretrained(tmp_path)
    resolved = ResolvedModel("tiny", tmp_path, "safetensors", None)
    seen: list[float] = []
    backend = TransformersBackend.load(
        resolved, threads=1, device="cpu", context=16, progress=lambda _, f: seen.append(f)
    )
    assert (backend.vocab, backend.context) == (64, 16)
    assert backend.weight_bytes == 4 * sum(p.numel() for p in model.parameters())
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    cache = backend.new_cache(16)
    logits = backend.append(cache, PREFIX, logits=True)
    assert logits is not None
    with torch.inference_mode():
        expected = model(torch.tensor([PREFIX])).logits[0, -1].numpy()
    assert close(logits, expected)


def test_a_broken_folder_is_a_model_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "nothing"}')
    with pytest.raises(ModelError):
        TransformersBackend.load(ResolvedModel("x", tmp_path, "safetensors", None), device="cpu")


def test_an_unknown_device_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EngineError):
        TransformersBackend.load(ResolvedModel("x", tmp_path, "safetensors", None), device="moon")
