"""The GGUF container: metadata, and tensors by name, unpacked to float32.

Reads versions 2 and 3, little-endian (the format's specification is docs/gguf.md of ggml). Its
own reader, because the `gguf` package's takes seconds for a vocabulary; the block formats are
unpacked by that package. Knows nothing of architectures. Every length is checked against the file,
so a truncated or foreign file is a ModelError.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from swiftspec_daemon.errors import ModelError, ModelNotFound, UnsupportedModel

_MAGIC = b"GGUF"
_SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q",
    12: "<d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
_MAX_DIMENSIONS = 4
_MOST_ENTRIES = 1_000_000
"""Metadata entries or tensors beyond this are a damaged header."""

TENSOR_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1",
    10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS",
    17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S",
    23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 30: "BF16",
    34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4",
}  # fmt: skip
BLOCKS = {
    "F32": (1, 4), "F16": (1, 2), "BF16": (1, 2), "Q4_0": (32, 18), "Q4_1": (32, 20),
    "Q5_0": (32, 22), "Q5_1": (32, 24), "Q8_0": (32, 34), "Q4_K": (256, 144),
    "Q5_K": (256, 176), "Q6_K": (256, 210),
}  # fmt: skip
"""Readable types: weights in a block, bytes of a block."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies and how it is packed."""

    name: str
    type: str
    """"F32", "Q4_K", ...; a number's text for types that are not known."""
    shape: tuple[int, ...]
    """Outermost dimension first, as NumPy has it (GGUF itself stores the reverse)."""
    offset: int
    """Bytes from the start of the file."""

    @property
    def nbytes(self) -> int:
        """Bytes in the file. Only for readable types."""
        weights, size = BLOCKS[self.type]
        return math.prod(self.shape) // weights * size


class GGUFFile:
    """An open GGUF file, memory-mapped read-only.

    `metadata` maps keys to Python scalars, strings, NumPy arrays and lists of strings;
    `tensors` maps names to `TensorInfo`. Raises ModelNotFound, ModelError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as stream:
                self._map = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise ModelNotFound(f"There is no file {path}.") from None
        except OSError as error:
            raise ModelError(f"{path} cannot be read: {error.strerror}.") from None
        except ValueError:  # mmap of an empty file
            raise ModelError(f"{path} is empty.", "Fetch the model again.") from None
        self.metadata: dict[str, Any] = {}
        self.tensors: dict[str, TensorInfo] = {}
        try:
            self._read_header()
        except (struct.error, UnicodeDecodeError, ValueError, OverflowError) as error:
            raise self._damaged(f"its header ends or breaks early ({error})") from None

    def raw(self, info: TensorInfo) -> npt.NDArray[np.uint8]:
        """A tensor's bytes as they are in the file, read-only."""
        return np.frombuffer(self._map, dtype=np.uint8, count=info.nbytes, offset=info.offset)

    def tensor(self, name: str) -> npt.NDArray[np.float32]:
        """A tensor unpacked to float32, C-contiguous. KeyError if there is none of that name."""
        info = self.tensors[name]
        raw = self.raw(info)
        if info.type == "F32":
            return raw.view("<f4").astype(np.float32).reshape(info.shape)
        if info.type == "F16":
            return raw.view("<f2").astype(np.float32).reshape(info.shape)
        from gguf import GGMLQuantizationType, quants  # imported late: 0.2 s

        weights, size = BLOCKS[info.type]
        rows = raw.reshape(-1, info.shape[-1] // weights * size)
        unpacked = quants.dequantize(rows, GGMLQuantizationType[info.type])
        return np.ascontiguousarray(unpacked, dtype=np.float32).reshape(info.shape)

    def _damaged(self, what: str) -> ModelError:
        return ModelError(
            f"{self.path} is no complete GGUF file: {what}.", "Fetch or copy the file again."
        )

    def _read_header(self) -> None:
        reader = _Reader(self._map)
        if reader.take(4) != _MAGIC:
            raise self._damaged("it does not start with GGUF")
        version = reader.scalar("<I")
        if version not in (2, 3):
            raise self._damaged(f"version {version} is not one that we read (2, 3)")
        tensor_count, entry_count = reader.scalar("<Q"), reader.scalar("<Q")
        if max(tensor_count, entry_count) > _MOST_ENTRIES:
            raise self._damaged("its counts make no sense")
        for _ in range(entry_count):
            key = reader.string()
            self.metadata[key] = reader.value(reader.scalar("<I"))
        infos = [self._read_info(reader) for _ in range(tensor_count)]
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise self._damaged(f"alignment {alignment} is not a power of two")
        start = -(-reader.position // alignment) * alignment
        for name, kind, shape, offset in infos:
            self.tensors[name] = self._check_info(TensorInfo(name, kind, shape, start + offset))

    def _read_info(self, reader: _Reader) -> tuple[str, str, tuple[int, ...], int]:
        name = reader.string()
        dimensions = reader.scalar("<I")
        if not 1 <= dimensions <= _MAX_DIMENSIONS:
            raise self._damaged(f"tensor {name} has {dimensions} dimensions")
        shape = tuple(reader.scalar("<Q") for _ in range(dimensions))[::-1]
        number = reader.scalar("<I")
        return name, TENSOR_TYPES.get(number, str(number)), shape, reader.scalar("<Q")

    def _check_info(self, info: TensorInfo) -> TensorInfo:
        if info.name in self.tensors:
            raise self._damaged(f"tensor {info.name} is there twice")
        if info.type not in BLOCKS:
            raise UnsupportedModel(
                f"{self.path.name}: tensor {info.name} is packed as {info.type}, which is not "
                "supported.",
                f"Use a file packed as one of {', '.join(BLOCKS)}.",
            )
        if info.shape[-1] % BLOCKS[info.type][0]:
            raise self._damaged(f"tensor {info.name}'s rows are no multiple of a {info.type} block")
        if info.offset + info.nbytes > len(self._map):
            raise self._damaged(f"tensor {info.name} lies beyond its end")
        return info


class _Reader:
    """A cursor over the header. Raises struct.error or ValueError at the end of the file."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self.position = 0

    def take(self, count: int) -> bytes:
        end = self.position + count
        if end > len(self._data):
            raise ValueError(f"{count} bytes wanted at {self.position}")
        chunk = self._data[self.position : end]
        self.position = end
        return chunk

    def scalar(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def string(self) -> str:
        return self.take(self.scalar("<Q")).decode("utf-8")

    def value(self, kind: int) -> Any:
        if kind in _SCALARS:
            return self.scalar(_SCALARS[kind])
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self._array()
        raise ValueError(f"unknown value type {kind}")

    def _array(self) -> Any:
        kind, count = self.scalar("<I"), self.scalar("<Q")
        if kind == _STRING:
            if count > len(self._data):
                raise ValueError(f"an array of {count} strings")
            return self._strings(count)
        if kind not in _SCALARS:
            raise ValueError(f"an array of value type {kind}")
        dtype = np.dtype(_SCALARS[kind])
        return np.frombuffer(self.take(count * dtype.itemsize), dtype=dtype)

    def _strings(self, count: int) -> list[str]:
        """Vocabularies: some 100,000 strings, so a tight loop."""
        data, position, length = self._data, self.position, struct.Struct("<Q").unpack_from
        strings = []
        for _ in range(count):
            start = position + 8
            position = start + length(data, position)[0]
            if position > len(data):
                raise ValueError(f"a string beyond the end at {start}")
            strings.append(data[start:position].decode("utf-8"))
        self.position = position
        return strings
