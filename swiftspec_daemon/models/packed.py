"""Converted models: one file of named arrays that opens by memory map in milliseconds.

    0     magic (8 bytes), offset and length of the header (two u64), its sha256 (32 bytes)
    4096  arrays, each at a multiple of 64 bytes
    ...   header: JSON {"meta": ..., "arrays": {name: {dtype, shape, offset}}, "sha256": of what
          stands between 4096 and the header}, the file's end

All numbers little-endian. Written to a temporary file and renamed, so a reader sees a whole file
or none. What the arrays mean is the backend's business, except for the token byte table.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import mmap
import os
import struct
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from swiftspec_daemon.errors import ModelError, ModelNotFound
from swiftspec_daemon.models.tokenizer import Tokenizer

_MAGIC = b"SWIFTPK2"
_PREAMBLE = struct.Struct("<8sQQ32s")
_PAGE, _ALIGNMENT = 4096, 64
_PIECE = 1 << 24
"""Bytes that are checked at once."""
_TOKEN_BYTES, _TOKEN_OFFSETS = "tokenizer.bytes", "tokenizer.offsets"

Arrays = Mapping[str, npt.NDArray[Any]]


def write(
    path: Path, meta: Mapping[str, Any], arrays: Iterable[tuple[str, npt.NDArray[Any]]]
) -> None:
    """Write a packed file; `arrays` is consumed one by one, so memory stays small.

    `meta` is JSON data. Raises ModelError where the disk is full or not writable.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                _write(stream, meta, arrays)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise ModelError(
            f"The converted model cannot be written to {path}: {error.strerror}.",
            "Make room there, or set SWIFTSPEC_HOME to a folder with room.",
        ) from None


def open_packed(path: Path) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Meta and read-only arrays backed by the file. Raises ModelNotFound, ModelError.

    After a ModelError the caller converts the model again.
    """
    data = _mapped(path)
    header, _ = _read_header(path, data)
    arrays = {}
    for name, entry in header["arrays"].items():
        dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
        count = math.prod(shape)
        array = np.frombuffer(data, dtype=dtype, count=count, offset=entry["offset"])
        arrays[name] = array.reshape(shape)
    return header["meta"], arrays


def contents_are_right(path: Path) -> bool:
    """Whether the arrays of a packed file are as they were written; reads all of it.

    Raises as `open_packed`.
    """
    with _mapped(path) as data:
        header, start = _read_header(path, data)
        digest = hashlib.sha256()
        for at in range(_PAGE, start, _PIECE):
            digest.update(data[at : min(at + _PIECE, start)])
    return bool(digest.hexdigest() == header["sha256"])


def token_arrays(tokenizer: Tokenizer, vocab: int) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """The byte table of the tokenizer's ids as two arrays: all bytes, and [ids + 1] offsets.

    Ids below `vocab`, the rows of the model's head, which may be padded beyond the tokenizer's.
    """
    ids = min(vocab, tokenizer.vocab_size)
    table = [tokenizer.token_bytes(token_id) for token_id in range(ids)]
    offsets = np.zeros(ids + 1, dtype=np.int64)
    np.cumsum([len(item) for item in table], out=offsets[1:])
    yield _TOKEN_BYTES, np.frombuffer(b"".join(table), dtype=np.uint8)
    yield _TOKEN_OFFSETS, offsets


def token_table(arrays: Arrays) -> list[bytes]:
    """The bytes of each of the tokenizer's ids, from an opened file; b"" for special tokens."""
    joined = arrays[_TOKEN_BYTES].tobytes()
    offsets = arrays[_TOKEN_OFFSETS].tolist()
    return [joined[a:b] for a, b in itertools.pairwise(offsets)]


def _mapped(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as stream:
            return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise ModelNotFound(f"There is no converted model {path}.") from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise _damaged(path) from None


def _write(
    stream: BinaryIO, meta: Mapping[str, Any], arrays: Iterable[tuple[str, npt.NDArray[Any]]]
) -> None:
    stream.write(bytes(_PAGE))
    entries: dict[str, dict[str, Any]] = {}
    contents = hashlib.sha256()
    for name, array in arrays:
        gap = bytes(-stream.tell() % _ALIGNMENT)
        stream.write(gap)
        contents.update(gap)
        entries[name] = {
            "dtype": array.dtype.newbyteorder("<").str,
            "shape": list(array.shape),
            "offset": stream.tell(),
        }
        little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
        data = little.reshape(-1).view(np.uint8).data
        stream.write(data)
        contents.update(data)
    whole = {"meta": meta, "arrays": entries, "sha256": contents.hexdigest()}
    header = json.dumps(whole).encode()
    start = stream.tell()
    stream.write(header)
    stream.seek(0)
    stream.write(_PREAMBLE.pack(_MAGIC, start, len(header), hashlib.sha256(header).digest()))
    stream.flush()
    os.fsync(stream.fileno())


def _read_header(path: Path, data: mmap.mmap) -> tuple[dict[str, Any], int]:
    """The header and where it starts; its checksum, place and the arrays' bounds checked."""
    if len(data) < _PAGE:
        raise _damaged(path)
    magic, start, length, digest = _PREAMBLE.unpack(data[: _PREAMBLE.size])
    if magic != _MAGIC or start + length != len(data):
        raise _damaged(path)
    text = data[start : start + length]
    if hashlib.sha256(text).digest() != digest:
        raise _damaged(path)
    header: dict[str, Any] = json.loads(text)
    for entry in header["arrays"].values():
        size = np.dtype(entry["dtype"]).itemsize * math.prod(entry["shape"])
        if entry["offset"] + size > start:
            raise _damaged(path)
    return header, start


def _damaged(path: Path) -> ModelError:
    return ModelError(
        f"{path} is no complete converted model.", "It will be made again from the original."
    )
