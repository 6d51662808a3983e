"""Names to models, and converted copies: made once, made again when something changed."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer as Library
from tokenizers import decoders, pre_tokenizers
from tokenizers import models as library_models

from swiftspec_daemon.errors import ModelError, ModelNotFound, UnsupportedModel
from swiftspec_daemon.models import Progress, catalog, inspection, packed
from swiftspec_daemon.models.spec import ModelSpec
from swiftspec_daemon.models.weights import WeightSource

Saved = Callable[..., tuple[Any, Path]]


@pytest.fixture
def folder(saved: Saved) -> Path:
    """A complete hub-format folder: tiny qwen2, and a tokenizer of single bytes."""
    _, path = saved("qwen2", vocab_size=260)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Library(library_models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.save(str(path / "tokenizer.json"))
    return path


def halves(spec: ModelSpec, weights: WeightSource, progress: Progress) -> catalog.Conversion:
    """A conversion for tests: every weight in half precision."""

    def arrays() -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
        names = list(weights.names())
        for index, name in enumerate(names):
            yield name, weights.tensor(name).astype(np.float16)
            progress("converting", (index + 1) / len(names))

    return {"layout": "halves"}, arrays()


def test_a_folder(folder: Path) -> None:
    model = catalog.resolve(str(folder))
    assert (model.name, model.path, model.format) == (str(folder), folder, "safetensors")
    assert model.spec is not None
    assert model.spec.architecture == "qwen2"
    assert catalog.open_weights(model).shape("model.norm.weight") == (64,)
    assert catalog.open_tokenizer(model).vocab_size == 257


def test_a_fetched_model_by_its_name(folder: Path, home: Path) -> None:
    shutil.copytree(folder, catalog.hub_dir() / "org" / "tiny-1.5B")
    assert catalog.list_models() == ["org/tiny-1.5B"]
    assert catalog.resolve("org/tiny-1.5B").path == home / "cache/models/hub/org/tiny-1.5B"


def test_a_gguf_file(write_gguf: Callable[..., Path], tiny_model: Callable[..., Any]) -> None:
    path = write_gguf(tiny_model("llama"), "llama")
    model = catalog.resolve(str(path))
    assert (model.format, model.path) == ("gguf", path)
    assert model.spec is not None
    in_folder = catalog.resolve(str(path.parent))  # a folder with nothing but the file
    assert in_folder.path == path


@pytest.mark.parametrize(
    "name",
    [
        "none",
        "org/none",
        "/no/such/folder",
        "x.gguf",
        "",
        "~nobody9/x",
        "a\0b",
        "x" * 5000,
        "../org",
    ],
)
def test_unknown_names_say_what_is_there(name: str, folder: Path) -> None:
    shutil.copytree(folder, catalog.hub_dir() / "org" / "tiny")
    with pytest.raises(ModelNotFound) as caught:
        catalog.resolve(name)
    assert "org/tiny" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "path"),
    [("none", False), ("org/none", False), ("/no/folder", True), ("./x", True), ("x.gguf", True)],
)
def test_the_hint_fits_a_path_or_a_name(name: str, path: bool) -> None:
    with pytest.raises(ModelNotFound) as caught:
        catalog.resolve(name)
    assert ("file or folder" in caught.value.message) == path
    assert ("models fetch" in caught.value.hint) == (not path)


def test_the_default_model_before_it_is_fetched() -> None:
    with pytest.raises(ModelNotFound) as caught:
        catalog.resolve("default")
    assert "swiftspec models fetch" in caught.value.hint


@pytest.mark.parametrize("gone", ["config.json", "tokenizer.json", "model.safetensors"])
def test_half_a_folder_names_what_is_missing(gone: str, folder: Path) -> None:
    (folder / gone).unlink()
    with pytest.raises(ModelNotFound, match=gone):
        catalog.resolve(str(folder))


def test_models_of_other_kinds_are_for_transformers(folder: Path) -> None:
    (folder / "config.json").write_text('{"architectures": ["GPT2LMHeadModel"]}')
    model = catalog.resolve(str(folder))
    assert model.spec is None
    assert "GPT2LMHeadModel" in model.reason
    with pytest.raises(UnsupportedModel, match="GPT2LMHeadModel") as caught:
        catalog.open_weights(model)
    assert "transformers" in caught.value.hint


def test_pickled_weights_are_for_transformers(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    model = catalog.resolve(str(folder))
    assert model.spec is None
    assert "pytorch_model.bin" in model.reason


def test_conversion_holds_weights_spec_and_token_bytes(folder: Path) -> None:
    model = catalog.resolve(str(folder))
    seen: list[float] = []
    file = catalog.ensure_packed(model, "halves-1", halves, lambda _, f: seen.append(f))
    meta, arrays = packed.open_packed(file)
    assert model.spec is not None
    assert catalog.spec_of(meta) == model.spec
    assert meta["layout"] == "halves"
    tokenizer = catalog.open_tokenizer(model)
    assert meta["eos_ids"] == list(tokenizer.eos_ids) == [256]
    table = packed.token_table(arrays)
    assert table == [tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]
    assert table[256:] == [b""]  # the end token; the model's head has 3 more rows
    for name in model.spec.tensor_shapes():
        expected = catalog.open_weights(model).tensor(name).astype(np.float16)
        np.testing.assert_array_equal(arrays[name], expected)
    assert seen[-1] == 1.0


def test_conversion_happens_once_and_again_when_something_changed(folder: Path) -> None:
    count = 0

    def counting(spec: ModelSpec, weights: WeightSource, progress: Progress) -> catalog.Conversion:
        nonlocal count
        count += 1
        return halves(spec, weights, progress)

    model = catalog.resolve(str(folder))
    first = catalog.ensure_packed(model, "halves-1", counting)
    assert catalog.ensure_packed(model, "halves-1", counting) == first
    assert count == 1
    first.write_bytes(first.read_bytes()[:-1])  # cut short: made again in its place
    assert catalog.ensure_packed(model, "halves-1", counting) == first
    assert count == 2
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights + b" ")
    changed = catalog.ensure_packed(model, "halves-1", counting)
    assert changed != first
    assert count == 3
    assert not first.exists()  # the copy of the old files is removed
    other = catalog.ensure_packed(model, "halves-2", counting)
    assert other not in (first, changed)
    assert changed.exists()


def damage(file: Path) -> None:
    """Other bytes in the middle, none more or less."""
    data = bytearray(file.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 64] = bytes(byte ^ 0x55 for byte in data[middle : middle + 64])
    file.write_bytes(data)


def test_a_damaged_copy_is_made_again(folder: Path) -> None:
    model = catalog.resolve(str(folder))
    file = catalog.ensure_packed(model, "halves-1", halves)
    right = file.read_bytes()
    damage(file)
    assert catalog.ensure_packed(model, "halves-1", halves) == file
    assert file.read_bytes() == right


def test_a_whole_copy_is_read_through_only_when_it_may_have_changed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = catalog.resolve(str(folder))
    file = catalog.ensure_packed(model, "halves-1", halves)
    read: list[Path] = []
    really = packed.contents_are_right
    monkeypatch.setattr(packed, "contents_are_right", lambda f: read.append(f) or really(f))
    catalog.ensure_packed(model, "halves-1", halves)
    assert read == []
    file.touch()
    catalog.ensure_packed(model, "halves-1", halves)
    catalog.ensure_packed(model, "halves-1", halves)
    assert read == [file]


def test_what_killed_conversions_left_is_removed(folder: Path) -> None:
    model = catalog.resolve(str(folder))
    file = catalog.packed_file(model, "halves-1")
    left = file.with_name(f".{file.name}.abcd1234")
    other = file.with_name(".another-model.packed.abcd1234")
    left.write_bytes(b"half")
    other.write_bytes(b"half")
    catalog.ensure_packed(model, "halves-1", halves)
    assert not left.exists()
    assert other.exists()


def test_verify_finds_a_damaged_copy_and_removes_it(folder: Path) -> None:
    model = catalog.resolve(str(folder))
    file = catalog.ensure_packed(model, "halves-1", halves)
    copies = [check for check in inspection.verify(model) if check.name == "converted copy"]
    assert [check.passed for check in copies] == [True]
    damage(file)
    copies = [check for check in inspection.verify(model) if check.name == "converted copy"]
    assert [check.passed for check in copies] == [False]
    assert not file.exists()


def test_two_at_once_convert_once(folder: Path) -> None:
    running = 0
    most = 0
    total = 0
    lock = threading.Lock()

    def slow(spec: ModelSpec, weights: WeightSource, progress: Progress) -> catalog.Conversion:
        nonlocal running, most, total
        with lock:
            running += 1
            total += 1
            most = max(most, running)
        meta, arrays = halves(spec, weights, progress)
        everything = list(arrays)
        with lock:
            running -= 1
        return meta, iter(everything)

    model = catalog.resolve(str(folder))
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(catalog.ensure_packed(model, "h", slow)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 4
    assert len(set(found)) == 1
    assert (most, total) == (1, 1)


def test_a_conversion_that_fails_leaves_nothing(folder: Path) -> None:
    def broken(spec: ModelSpec, weights: WeightSource, progress: Progress) -> catalog.Conversion:
        raise ModelError("not this one")

    model = catalog.resolve(str(folder))
    with pytest.raises(ModelError, match="not this one"):
        catalog.ensure_packed(model, "x", broken)
    assert not catalog.packed_file(model, "x").exists()
    catalog.ensure_packed(model, "x", halves)
