"""Packed files: what was written comes back, damage is noticed, half a file is never seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from swiftspec_daemon.errors import ModelError, ModelNotFound
from swiftspec_daemon.models import packed

ARRAYS: dict[str, np.ndarray] = {
    "bytes": np.arange(7, dtype=np.uint8),
    "scales": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4),
    "int8": np.arange(-8, 8, dtype=np.int8).reshape(2, 2, 4),
    "half": np.array([1.5, 2.5], dtype=np.float16),
    "big endian": np.array([1, 256], dtype=">i4"),
    "strided": np.arange(12, dtype=np.int64).reshape(3, 4)[:, ::2],
    "empty": np.zeros((0, 3), dtype=np.float32),
    "scalar": np.array(3.0),
}
META = {"name": "größe", "numbers": [1, 2.5, None], "nested": {"a": True}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "folder" / "x.packed"
    packed.write(path, META, ARRAYS.items())
    return path


def test_round_trip(file: Path) -> None:
    meta, arrays = packed.open_packed(file)
    assert meta == META
    assert list(arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].dtype == array.dtype.newbyteorder("=")
        assert not arrays[name].flags.writeable
        assert arrays[name].flags.c_contiguous
        if array.size:
            assert arrays[name].ctypes.data % 64 == 0


def test_nothing_but_the_file_stays(file: Path) -> None:
    assert list(file.parent.iterdir()) == [file]


def test_every_truncation_is_noticed(file: Path) -> None:
    whole = file.read_bytes()
    for length in [0, 1, 55, 56, 4095, 4096, *range(4097, len(whole), 13)]:
        file.write_bytes(whole[:length])
        with pytest.raises(ModelError):
            packed.open_packed(file)


def test_a_changed_header_is_noticed(file: Path) -> None:
    whole = file.read_bytes()
    for position in [0, 9, 17, 30, len(whole) - 5]:
        changed = bytearray(whole)
        changed[position] ^= 1
        file.write_bytes(changed)
        with pytest.raises(ModelError):
            packed.open_packed(file)


def test_every_changed_byte_of_the_contents_is_noticed(file: Path) -> None:
    whole = file.read_bytes()
    assert packed.contents_are_right(file)
    start = whole.index(b'{"meta"')
    for at in range(4096, start):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        packed.open_packed(file)  # quick, so it does not look
        assert not packed.contents_are_right(file)


def test_foreign_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound):
        packed.open_packed(tmp_path / "none")
    (tmp_path / "x").write_bytes(b"GGUF" + bytes(10_000))
    with pytest.raises(ModelError):
        packed.open_packed(tmp_path / "x")


def test_a_writer_that_fails_leaves_the_old_file(file: Path) -> None:
    def broken() -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
        yield "a", np.zeros(3)
        raise ModelError("weights end here")

    with pytest.raises(ModelError, match="weights end here"):
        packed.write(file, {}, broken())
    assert packed.open_packed(file)[0] == META
    assert list(file.parent.iterdir()) == [file]


def test_a_folder_that_cannot_be_written_is_a_model_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a file where the folder should be")
    with pytest.raises(ModelError):
        packed.write(tmp_path / "x" / "y.packed", {}, [])
