"""GGUF files of tiny models, written by the `gguf` package, against the models they came from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swiftspec_daemon.errors import ModelError, ModelNotFound, UnsupportedModel
from swiftspec_daemon.models.config import spec_from_config
from swiftspec_daemon.models.gguf import GGUFWeights, open_gguf, spec_from_gguf
from swiftspec_daemon.models.gguf_format import BLOCKS, GGUFFile
from swiftspec_daemon.models.reference import ReferenceModel
from swiftspec_daemon.models.rope import inverse_frequencies
from swiftspec_daemon.models.weights import check_shapes

Tiny = Callable[..., Any]
Write = Callable[..., Path]


def tensors_of(model: Any) -> dict[str, np.ndarray]:
    return {name: p.detach().numpy() for name, p in model.named_parameters()}


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_spec_weights_and_logits_of_each_architecture(
    kind: str, tiny_model: Tiny, write_gguf: Write
) -> None:
    model = tiny_model(kind, head_dim=32) if kind == "qwen3" else tiny_model(kind)
    file, spec = open_gguf(write_gguf(model, kind))
    expected = spec_from_config(model.config.to_dict() | {"architectures": [type(model).__name__]})
    for attribute in expected.__slots__:
        if attribute not in ("bos_id", "eos_ids"):  # the file has no vocabulary
            assert getattr(spec, attribute) == getattr(expected, attribute), attribute
    weights = GGUFWeights(file, spec)
    check_shapes(spec, weights)
    tensors = tensors_of(model)
    assert set(weights.names()) == set(tensors)
    for name, tensor in tensors.items():
        found = weights.tensor(name)
        assert found.dtype == np.float32
        assert found.flags.c_contiguous
        np.testing.assert_array_equal(found, tensor)
    with torch.inference_mode():
        logits = model(torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])).logits[0].numpy()
    found = ReferenceModel(spec, weights).forward([3, 1, 4, 1, 5, 9, 2, 6])
    np.testing.assert_allclose(found, logits, rtol=0, atol=1e-4)


@pytest.mark.parametrize("packing", ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_each_packing(packing: str, tiny_model: Tiny, write_gguf: Write) -> None:
    model = tiny_model("qwen2")
    file, spec = open_gguf(write_gguf(model, "qwen2", packing))
    weights = GGUFWeights(file, spec)
    largest = {"F16": 1e-3, "BF16": 4e-3, "Q8_0": 0.01, "Q5_0": 0.08, "Q5_1": 0.08}
    for name, tensor in tensors_of(model).items():
        found = weights.tensor(name)
        if tensor.ndim == 1:
            np.testing.assert_array_equal(found, tensor)
            continue
        kind = gguf.GGMLQuantizationType[packing]
        packed = gguf.quants.quantize(tensor, kind)
        np.testing.assert_array_equal(found, gguf.quants.dequantize(packed, kind))
        assert np.abs(found - tensor).max() < largest.get(packing, 0.15) * np.abs(tensor).max()


def test_packed_q_and_k_come_back_in_order(tiny_model: Tiny, write_gguf: Write) -> None:
    model = tiny_model("llama")
    file, spec = open_gguf(write_gguf(model, "llama", "Q8_0"))
    name = "model.layers.1.self_attn.k_proj.weight"
    found, tensor = GGUFWeights(file, spec).tensor(name), tensors_of(model)[name]
    assert np.abs(found - tensor).max() < 0.01 * np.abs(tensor).max()


@pytest.mark.parametrize("packing", ["Q4_K", "Q5_K", "Q6_K"])
def test_k_packings_as_the_gguf_package_unpacks_them(packing: str, tmp_path: Path) -> None:
    """No encoder of these is at hand, so blocks of random bits with sane scales."""
    rng = np.random.default_rng(3)
    kind, (weights, size) = gguf.GGMLQuantizationType[packing], BLOCKS[packing]
    rows = rng.integers(0, 256, (5, 2, size), dtype=np.uint8)
    scales = rng.uniform(0.01, 0.1, (5, 2, 2)).astype(np.float16).view(np.uint8)
    if packing == "Q6_K":
        rows[..., -2:] = scales[..., :2]
    else:
        rows[..., :4] = scales
    rows = rows.reshape(5, 2 * size)
    writer = gguf.GGUFWriter(tmp_path / "k.gguf", "llama")
    writer.add_tensor("x", rows, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = GGUFFile(tmp_path / "k.gguf").tensor("x")
    assert found.shape == (5, 2 * weights)
    np.testing.assert_array_equal(found, gguf.quants.dequantize(rows, kind))


def test_a_q4_0_block_by_hand(tmp_path: Path) -> None:
    """Half-precision scale, then 16 bytes: low nibbles are the first 16 weights, minus 8."""
    block = np.concatenate(
        [np.array([0.5], np.float16).view(np.uint8), np.arange(16, dtype=np.uint8) | 0xF0]
    )
    writer = gguf.GGUFWriter(tmp_path / "q.gguf", "llama")
    writer.add_tensor("x", block[None], raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    expected = [0.5 * (i - 8) for i in range(16)] + [3.5] * 16
    assert GGUFFile(tmp_path / "q.gguf").tensor("x").tolist() == [expected]


def test_llama3_scaling_by_the_factors_of_the_file(tiny_model: Tiny, write_gguf: Write) -> None:
    """llama.cpp stores 1, `factor` and values between for the three bands; transformers scales."""
    parameters = {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64, "rope_theta": 1e4,
    }  # fmt: skip
    model = tiny_model("llama", rope_parameters=parameters)
    spec = spec_from_config(model.config.to_dict() | {"architectures": ["LlamaForCausalLM"]})
    scaled, _ = inverse_frequencies(spec.rope, spec.head_dim)
    plain = 1e4 ** -(np.arange(0, spec.head_dim, 2) / spec.head_dim)
    factors = (plain / scaled).astype(np.float32)
    path = write_gguf(
        model, "llama", extra=lambda writer: writer.add_tensor("rope_freqs.weight", factors)
    )
    file, found = open_gguf(path)
    assert found.rope.freq_factors == tuple(factors.tolist())
    tokens = list(range(20))
    with torch.inference_mode():
        logits = model(torch.tensor([tokens])).logits[0].numpy()
    reference = ReferenceModel(found, GGUFWeights(file, found)).forward(tokens)
    np.testing.assert_allclose(reference, logits, rtol=0, atol=1e-4)


def test_scalings_in_the_metadata(tiny_model: Tiny, write_gguf: Write) -> None:
    model = tiny_model("llama")

    def linear(writer: gguf.GGUFWriter) -> None:
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(4.0)

    def yarn(writer: gguf.GGUFWriter) -> None:
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(2.0)
        writer.add_rope_scaling_orig_ctx_len(128)

    def longrope(writer: gguf.GGUFWriter) -> None:
        writer.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE)

    rope = open_gguf(write_gguf(model, "llama", name="linear.gguf", extra=linear))[1].rope
    assert (rope.kind, rope.factor) == ("linear", 4.0)
    rope = open_gguf(write_gguf(model, "llama", name="yarn.gguf", extra=yarn))[1].rope
    assert (rope.kind, rope.factor, rope.original_context) == ("yarn", 2.0, 128)
    with pytest.raises(UnsupportedModel, match="longrope"):
        open_gguf(write_gguf(model, "llama", name="long.gguf", extra=longrope))


def test_other_architectures_are_named(tiny_model: Tiny, write_gguf: Write) -> None:
    with pytest.raises(UnsupportedModel, match="gemma3"):
        spec_from_gguf(GGUFFile(write_gguf(tiny_model("qwen2"), "gemma3")))


def test_other_packings_are_named(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    rows = np.zeros((2, 84), np.uint8)
    writer.add_tensor("blk.0.attn_q.weight", rows, raw_dtype=gguf.GGMLQuantizationType.Q2_K)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedModel, match=r"blk\.0\.attn_q\.weight is packed as Q2_K"):
        GGUFFile(tmp_path / "x.gguf")


def test_metadata_of_every_type(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_uint8("a", 7)
    writer.add_int64("b", -5)
    writer.add_float32("c", 0.5)
    writer.add_bool("d", True)
    writer.add_string("e", "größe 你好")
    writer.add_array("f", ["x", "", "yy"])
    writer.add_array("g", [1, 2, 3])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    metadata = GGUFFile(tmp_path / "x.gguf").metadata
    assert [metadata[key] for key in "abcde"] == [7, -5, 0.5, True, "größe 你好"]
    assert metadata["f"] == ["x", "", "yy"]
    assert metadata["g"].tolist() == [1, 2, 3]


def test_a_file_that_is_not_there_empty_or_foreign(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound):
        GGUFFile(tmp_path / "x.gguf")
    (tmp_path / "x.gguf").write_bytes(b"")
    with pytest.raises(ModelError, match="empty"):
        GGUFFile(tmp_path / "x.gguf")
    (tmp_path / "x.gguf").write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(ModelError, match="does not start with GGUF"):
        GGUFFile(tmp_path / "x.gguf")
    with pytest.raises(ModelError):
        GGUFFile(tmp_path)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_damage_never_escapes_as_another_error(
    data: st.DataObject, tiny_model: Tiny, write_gguf: Write, tmp_path: Path
) -> None:
    path = tmp_path / "tiny.gguf"
    if not path.exists():
        write_gguf(tiny_model("llama"), "llama", "Q8_0")
    whole = bytearray(path.read_bytes())
    broken = tmp_path / "broken.gguf"
    if data.draw(st.booleans()):
        del whole[data.draw(st.integers(0, len(whole) - 1)) :]
    else:  # the header is where a flipped byte could do harm
        for position in data.draw(st.lists(st.integers(0, 3000), min_size=1, max_size=4)):
            whole[position] ^= data.draw(st.integers(1, 255))
    broken.write_bytes(whole)
    try:
        file, spec = open_gguf(broken)
        weights = GGUFWeights(file, spec)
        check_shapes(spec, weights)
        for name in spec.tensor_shapes():
            weights.tensor(name)
    except ModelError:
        pass


def test_every_truncation_is_noticed(tiny_model: Tiny, write_gguf: Write, tmp_path: Path) -> None:
    whole = write_gguf(tiny_model("llama"), "llama").read_bytes()
    broken = tmp_path / "broken.gguf"
    for length in [*range(4, 2000, 97), len(whole) // 2, len(whole) - 33]:
        broken.write_bytes(whole[:length])
        with pytest.raises(ModelError, match="no complete GGUF file"):
            GGUFFile(broken)
