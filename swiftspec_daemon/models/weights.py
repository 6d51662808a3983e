"""Weights by their hub names, whatever the files: safetensors folders (sharded too) and GGUF.

Everything comes as float32, C-contiguous, one tensor at a time, so that converting a model takes
little memory. Knows shapes (from a `ModelSpec`) and checks them; knows no arithmetic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import numpy as np
import numpy.typing as npt

from swiftspec_daemon.errors import ModelError, ModelNotFound
from swiftspec_daemon.models.config import read_json
from swiftspec_daemon.models.safetensors import SafetensorsFile
from swiftspec_daemon.models.spec import ModelSpec

INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"


class WeightSource(Protocol):
    """Named weights of one model."""

    def names(self) -> Iterator[str]:
        """Hub names of all weights."""

    def has(self, name: str) -> bool:
        """Whether there is a weight of that name."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Its shape, without unpacking it. KeyError if there is none."""

    def tensor(self, name: str) -> npt.NDArray[np.float32]:
        """The weight as float32, C-contiguous. KeyError if there is none."""


class SafetensorsWeights:
    """The weights of a hub-format folder: `model.safetensors`, or shards listed in an index.

    Raises ModelNotFound naming the first missing file.
    """

    def __init__(self, folder: Path) -> None:
        self._files: dict[str, SafetensorsFile] = {}
        if (folder / INDEX_FILE).exists():
            self._open_shards(folder)
        else:
            file = SafetensorsFile(folder / SINGLE_FILE)
            self._files = dict.fromkeys(file.names(), file)

    def names(self) -> Iterator[str]:
        return iter(self._files)

    def has(self, name: str) -> bool:
        return name in self._files

    def shape(self, name: str) -> tuple[int, ...]:
        return self._files[name].shape(name)

    def tensor(self, name: str) -> npt.NDArray[np.float32]:
        return self._files[name].tensor(name)

    def integers(self, name: str) -> npt.NDArray[np.int64]:
        """A tensor of whole numbers. KeyError if there is none, ModelError for another type."""
        return self._files[name].integers(name)

    def types(self) -> dict[str, int]:
        """How many tensors are stored in each type."""
        kinds = [file.dtype(name) for name, file in self._files.items()]
        return {kind: kinds.count(kind) for kind in sorted(set(kinds))}

    def _open_shards(self, folder: Path) -> None:
        index = read_json(folder / INDEX_FILE).get("weight_map")
        if not isinstance(index, dict) or not all(isinstance(v, str) for v in index.values()):
            raise ModelError(f"{folder / INDEX_FILE} has no weight_map.", "Fetch the model again.")
        shards = {}
        for shard in sorted(set(index.values())):
            if Path(shard).name != shard:
                raise ModelError(f"{folder / INDEX_FILE} names a file outside of its folder.")
            shards[shard] = SafetensorsFile(folder / shard)
        for name, shard in index.items():
            if name not in shards[shard].names():
                raise ModelError(
                    f"{folder / shard} lacks the tensor {name} that the index places there.",
                    "Fetch the model again.",
                )
            self._files[name] = shards[shard]


def check_shapes(
    spec: ModelSpec,
    source: WeightSource,
    changed: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    *,
    absent: Collection[str] = (),
) -> None:
    """Raise ModelNotFound or ModelError unless every tensor of the spec is there and fits.

    `changed` are shapes other than the spec's; those in `absent` need not be there.
    """
    for name, expected in {**spec.tensor_shapes(), **changed}.items():
        if not source.has(name):
            if name in absent:
                continue
            raise ModelNotFound(f"The model's files have no tensor {name}.", "Fetch it again.")
        found = source.shape(name)
        if found != expected:
            raise ModelError(
                f"Tensor {name} has shape {list(found)}, but the model's configuration asks for "
                f"{list(expected)}.",
                "The files do not belong together; fetch the model again.",
            )
