"""The safetensors reader against the safetensors package, and folders with parts missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swiftspec_daemon.errors import ModelError, ModelNotFound, UnsupportedModel
from swiftspec_daemon.models.config import read_spec
from swiftspec_daemon.models.safetensors import SafetensorsFile
from swiftspec_daemon.models.weights import SafetensorsWeights, check_shapes

Saved = Callable[..., tuple[Any, Path]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_each_type(dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(0)
    tensors = {
        "a": torch.randn(3, 5).to(dtype),
        "b": torch.tensor([0.0, -0.0, 1e-30, 65504.0, float("inf")]).to(dtype),
        "c": torch.zeros(0, 4).to(dtype),
    }
    safetensors.torch.save_file(tensors, tmp_path / "x.safetensors", metadata={"format": "pt"})
    file = SafetensorsFile(tmp_path / "x.safetensors")
    assert set(file.names()) == {"a", "b", "c"}
    for name, tensor in tensors.items():
        found = file.tensor(name)
        assert found.dtype == np.float32
        assert found.flags.c_contiguous
        assert found.shape == file.shape(name)
        np.testing.assert_array_equal(found, tensor.float().numpy())


def test_other_types_are_named(tmp_path: Path) -> None:
    safetensors.torch.save_file({"q": torch.zeros(3, dtype=torch.int8)}, tmp_path / "x.safetensors")
    with pytest.raises(UnsupportedModel, match="q is stored as I8"):
        SafetensorsFile(tmp_path / "x.safetensors").tensor("q")


def test_sharded_folders(saved: Saved) -> None:
    model, folder = saved("qwen3", max_shard_size="40KB")
    assert (folder / "model.safetensors.index.json").exists()
    weights = SafetensorsWeights(folder)
    check_shapes(read_spec(folder), weights)
    for name, parameter in model.named_parameters():
        np.testing.assert_array_equal(weights.tensor(name), parameter.detach().numpy())
    assert weights.types() == {"F32": len(list(weights.names()))}


def test_a_missing_shard_is_named(saved: Saved) -> None:
    _, folder = saved("llama", max_shard_size="40KB")
    gone = sorted(folder.glob("model-*.safetensors"))[1]
    gone.unlink()
    with pytest.raises(ModelNotFound, match=gone.name):
        SafetensorsWeights(folder)


def test_a_folder_without_weights(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"model\.safetensors"):
        SafetensorsWeights(tmp_path)


def test_an_index_that_leads_elsewhere_is_refused(saved: Saved) -> None:
    _, folder = saved("llama", max_shard_size="40KB")
    index = folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    name = next(iter(content["weight_map"]))
    content["weight_map"][name] = "../outside.safetensors"
    index.write_text(json.dumps(content))
    with pytest.raises(ModelError, match="outside of its folder"):
        SafetensorsWeights(folder)
    index.write_text("{}")
    with pytest.raises(ModelError, match="no weight_map"):
        SafetensorsWeights(folder)


def test_shapes_are_checked_against_the_configuration(saved: Saved) -> None:
    _, folder = saved("llama")
    config = folder / "config.json"
    content = json.loads(config.read_text())
    config.write_text(json.dumps(content | {"intermediate_size": 95}))
    with pytest.raises(ModelError, match=r"gate_proj.*\[96, 64\].*\[95, 64\]"):
        check_shapes(read_spec(folder), SafetensorsWeights(folder))
    config.write_text(json.dumps(content | {"num_hidden_layers": 3}))
    with pytest.raises(ModelNotFound, match=r"model\.layers\.2\."):
        check_shapes(read_spec(folder), SafetensorsWeights(folder))


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_damage_never_escapes_as_another_error(data: st.DataObject, tmp_path: Path) -> None:
    tensors = {"a": torch.arange(12.0).reshape(3, 4), "b": torch.ones(5, dtype=torch.bfloat16)}
    whole = bytearray(safetensors.torch.save(tensors))
    if data.draw(st.booleans()):
        del whole[data.draw(st.integers(0, len(whole) - 1)) :]
    else:
        for position in data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=4)):
            whole[position] ^= data.draw(st.integers(1, 255))
    (tmp_path / "x.safetensors").write_bytes(whole)
    try:
        file = SafetensorsFile(tmp_path / "x.safetensors")
        for name in file.names():
            file.tensor(name)
    except ModelError:
        pass
