"""safetensors files: JSON header and raw little-endian arrays, read by memory map.

The format is simple enough (github.com/huggingface/safetensors, "Format") that reading it here
spares the base installation a package and gives clear errors. Unpacks F32, F16 and BF16 to
float32; knows nothing of models.
"""

from __future__ import annotations

import json
import math
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from swiftspec_daemon.errors import ModelError, ModelNotFound, UnsupportedModel

_MOST_HEADER = 100_000_000
_SIZES = {"F32": 4, "F16": 2, "BF16": 2}
_INTEGERS = {"I64": 8, "I32": 4}


@dataclass(frozen=True, slots=True)
class _Entry:
    dtype: str
    shape: tuple[int, ...]
    offset: int


class SafetensorsFile:
    """An open safetensors file. Raises ModelNotFound, ModelError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as stream:
                self._map = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise ModelNotFound(
                f"The model folder {path.parent} has no {path.name}.",
                "Fetch the model again, or copy the missing file there.",
            ) from None
        except OSError as error:
            raise ModelError(f"{path} cannot be read: {error.strerror}.") from None
        except ValueError:
            raise self._damaged("it is empty") from None
        self._entries: dict[str, _Entry] = {}
        self._read_header()

    def names(self) -> list[str]:
        return list(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._entries[name].shape

    def dtype(self, name: str) -> str:
        """ "F32", "F16", "BF16" or another name of the format's."""
        return self._entries[name].dtype

    def tensor(self, name: str) -> npt.NDArray[np.float32]:
        """A tensor as float32, C-contiguous. KeyError if there is none of that name."""
        entry = self._entries[name]
        if entry.dtype not in _SIZES:
            raise UnsupportedModel(
                f"{self.path.name}: tensor {name} is stored as {entry.dtype}; only F32, F16 and "
                "BF16 are supported."
            )
        count = math.prod(entry.shape)
        raw = np.frombuffer(
            self._map, np.uint8, count=count * _SIZES[entry.dtype], offset=entry.offset
        )
        if entry.dtype == "BF16":  # the upper half of a float32
            return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32).reshape(entry.shape)
        return (
            raw.view("<f4" if entry.dtype == "F32" else "<f2")
            .astype(np.float32)
            .reshape(entry.shape)
        )

    def integers(self, name: str) -> npt.NDArray[np.int64]:
        """A tensor of whole numbers. KeyError if there is none; ModelError for another type."""
        entry = self._entries[name]
        if entry.dtype not in _INTEGERS:
            raise ModelError(
                f"{self.path.name}: tensor {name} is stored as {entry.dtype}, not as integers."
            )
        kind = f"<i{_INTEGERS[entry.dtype]}"
        count = math.prod(entry.shape)
        raw = np.frombuffer(self._map, kind, count=count, offset=entry.offset)
        return raw.astype(np.int64).reshape(entry.shape)

    def _damaged(self, what: str) -> ModelError:
        return ModelError(
            f"{self.path} is no complete safetensors file: {what}.", "Fetch the model again."
        )

    def _read_header(self) -> None:
        size = int.from_bytes(self._map[:8], "little")
        if len(self._map) < 8 or not 2 <= size <= min(_MOST_HEADER, len(self._map) - 8):
            raise self._damaged("its header is longer than the file")
        try:
            header = json.loads(self._map[8 : 8 + size])
            for name, value in header.items():
                if name != "__metadata__":
                    self._entries[name] = self._entry(name, value, 8 + size)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._damaged(f"its header cannot be read ({error!r})") from None

    def _entry(self, name: str, value: dict[str, Any], start: int) -> _Entry:
        begin, end = value["data_offsets"]
        shape = tuple(int(extent) for extent in value["shape"])
        dtype = str(value["dtype"])
        size = _SIZES.get(dtype) or _INTEGERS.get(dtype)
        if begin < 0 or begin > end or (size and end - begin != math.prod(shape) * size):
            raise self._damaged(f"tensor {name} has the wrong size")
        if start + end > len(self._map):
            raise self._damaged(f"tensor {name} lies beyond its end")
        return _Entry(dtype, shape, start + begin)
