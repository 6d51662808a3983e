"""The native backend: converting a checkpoint, and the Backend contract over packed arrays."""

import dataclasses

import numpy as np
import pytest

from swiftspec_daemon.engine.backend import Backend
from swiftspec_daemon.engine.backends import native
from swiftspec_daemon.errors import (
    ContextTooLong,
    EngineError,
    ModelError,
    UnsupportedModel,
    UsageError,
)


@pytest.fixture
def backend(tiny) -> Backend:
    model = tiny.model("llama")
    return native.NativeBackend(model.spec, model.arrays, 1, 256)


def test_what_it_says_of_itself(tiny, backend):
    model = tiny.model("llama")
    assert (backend.name, backend.vocab, backend.context) == ("native", 101, 256)
    isa, compiler = backend.kernels.split(", ")
    assert isa
    assert compiler
    assert backend.weight_bytes == sum(array.nbytes for array in model.arrays.values())


def test_append_speculate_commit_truncate(tiny, backend):
    tokens = tiny.model("llama").tokens(40)
    cache = backend.new_cache(64)
    assert backend.append(cache, tokens[:30], logits=False) is None
    tree = backend.speculate(cache, tokens[30:33], [-1, 0, 0])
    backend.commit(cache, [0, 2])
    assert (cache.length, cache.capacity) == (32, 64)
    fresh = backend.new_cache(64)
    last = backend.append(fresh, [*tokens[:31], tokens[32]], logits=True)
    np.testing.assert_array_equal(last, tree[2])
    assert last.shape == (101,)
    assert last.dtype == np.float32
    backend.truncate(cache, 10)
    assert cache.length == 10


def test_errors_are_the_projects(backend):
    cache = backend.new_cache(16)
    with pytest.raises(ContextTooLong, match="context"):
        backend.append(cache, [1] * 17, logits=True)
    with pytest.raises(UsageError):
        backend.append(cache, [101], logits=True)
    with pytest.raises(UsageError):
        backend.speculate(cache, [1], [0])
    with pytest.raises(UsageError):
        backend.commit(cache, [0])
    with pytest.raises(UsageError):
        backend.truncate(cache, 1)


def test_no_memory_is_an_error_of_the_projects(backend, monkeypatch):
    def refuse(capacity):
        raise MemoryError(f"no memory for the keys and values of {capacity} positions")

    monkeypatch.setattr(backend._model, "new_cache", refuse)
    with pytest.raises(EngineError, match=r"no memory.*Lower model.context"):
        backend.new_cache(64)


def test_packed_arrays_may_be_read_only_maps(tiny, tmp_path):
    model = tiny.model("qwen3")
    mapped = {}
    for name, array in model.arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
        mapped[name] = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
    results = []
    for arrays in (model.arrays, mapped):
        backend = native.NativeBackend(model.spec, arrays, 1, 64)
        results.append(backend.append(backend.new_cache(64), [1, 2, 3], logits=True))
    np.testing.assert_array_equal(*results)


def test_a_window_shorter_than_the_context_is_refused(tiny):
    model = tiny.model("llama")
    windowed = dataclasses.replace(model.spec, sliding_window=128)
    with pytest.raises(UnsupportedModel, match=r"window of 128.*model.context to 128"):
        native.NativeBackend(windowed, model.arrays, 1, 129)
    native.NativeBackend(windowed, model.arrays, 1, 128)


def test_head_sizes_that_are_no_multiple_of_8_are_refused(tiny):
    odd = dataclasses.replace(tiny.SPECS["llama"], head_dim=20)
    with pytest.raises(UnsupportedModel, match="head size 20"):
        native.convert(odd, tiny.DictWeights({}), lambda phase, fraction: None)


def test_arrays_of_another_model_are_refused(tiny):
    with pytest.raises(ModelError, match=r"packed array .* is uint8"):
        native.NativeBackend(tiny.SPECS["qwen3"], tiny.model("llama").arrays, 1, 64)


def converted(tiny, weights):
    steps = []
    _, arrays = native.convert(
        tiny.SPECS["qwen2"], tiny.DictWeights(weights), lambda phase, part: steps.append(part)
    )
    return dict(arrays), steps


def test_progress_grows_to_one(tiny):
    _, steps = converted(tiny, tiny.model("qwen2").weights)
    assert steps == sorted(steps)
    assert steps[-1] == 1.0


def test_converting_takes_one_tensor_after_another(tiny):
    """The first arrays come before the last tensors are read, so memory stays small."""
    read = []

    class Watched(tiny.DictWeights):
        def tensor(self, name):
            read.append(name)
            return super().tensor(name)

    weights = Watched(tiny.model("qwen2").weights)
    meta, arrays = native.convert(tiny.SPECS["qwen2"], weights, lambda phase, part: None)
    assert meta == {"layout": native.LAYOUT}
    assert next(iter(arrays))[0] == "embedding.panels"
    assert read == ["model.embed_tokens.weight"]


@pytest.mark.parametrize("name", ["model.norm.weight", "model.layers.1.self_attn.k_proj.bias"])
def test_missing_and_misshapen_tensors_are_named(tiny, name):
    weights = dict(tiny.model("qwen2").weights)
    tensor = weights.pop(name)
    with pytest.raises(ModelError, match=f"lack the tensor {name}"):
        converted(tiny, weights)
    weights[name] = tensor[:-1]
    with pytest.raises(ModelError, match=f"{name} has shape"):
        converted(tiny, weights)


def test_damaged_weights_are_named(tiny):
    weights = dict(tiny.model("qwen2").weights)
    damaged = weights["model.layers.1.mlp.down_proj.weight"].copy()
    damaged[3, 4] = np.nan
    weights["model.layers.1.mlp.down_proj.weight"] = damaged
    with pytest.raises(ModelError, match=r"layers.1.down are damaged"):
        converted(tiny, weights)
