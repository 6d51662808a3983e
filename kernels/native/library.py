"""Finds and loads the shared library, and says which build it is.

Knows the C interface of `api.h` and nothing of models. Calls through it release the GIL.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from .build import LIBRARY_NAME, SOURCES, source_digest

ISA_VARIABLE = "SWIFTSPEC_NATIVE_ISA"
"""Environment variable that forces an instruction set, or NumPy."""
NUMPY = "numpy"

ABI_VERSION = 4
"""Must equal kAbiVersion in api.h."""

_REBUILD = "Rebuild it with `pip install -e .` (from a clone), or install the package again."


class LibraryUnavailable(Exception):
    """The library is missing, stale or not loadable; the message says what to do."""


class CShape(ctypes.Structure):
    """SwiftspecShape of api.h."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("hidden", "layers", "heads", "kv_heads")),
        *((name, ctypes.c_int32) for name in ("head_dim", "ff", "vocab", "context", "head_rows")),
        ("norm_eps", ctypes.c_float),
    ]


class CLinear(ctypes.Structure):
    """SwiftspecLinear of api.h."""

    _fields_ = [("panels", ctypes.c_void_p), ("scales", ctypes.c_void_p)]


class CLayer(ctypes.Structure):
    """SwiftspecLayer of api.h."""

    _fields_ = [
        *((name, CLinear) for name in ("qkv", "output", "gate_up", "down")),
        *((name, ctypes.c_void_p) for name in ("attention_norm", "ff_norm", "qkv_bias")),
        *((name, ctypes.c_void_p) for name in ("q_norm", "k_norm")),
    ]


class CWeights(ctypes.Structure):
    """SwiftspecWeights of api.h."""

    _fields_ = [
        ("embedding", CLinear),
        ("head", CLinear),
        *((name, ctypes.c_void_p) for name in ("final_norm", "cosines", "sines")),
        ("layers", ctypes.POINTER(CLayer)),
    ]


@dataclass(frozen=True)
class Library:
    """The loaded library."""

    functions: ctypes.CDLL
    compiler: str
    """For people: "gcc 12.2"."""
    best_isa: str
    """The fastest instruction set of this build that runs here."""

    def has_isa(self, isa: str) -> bool:
        """Whether `isa` is in this build and runs here."""
        return bool(self.functions.swiftspec_has_isa(isa.encode()))


def load(path: Path | None = None) -> Library:
    """The library beside this file, or at `path`. Raises LibraryUnavailable."""
    return _load(path if path is not None else SOURCES / LIBRARY_NAME)


@functools.cache
def _load(path: Path) -> Library:
    if not path.exists():
        raise LibraryUnavailable(f"The native kernels have not been built ({path}). {_REBUILD}")
    try:
        functions = ctypes.CDLL(str(path))
        _declare(functions)
    except (OSError, AttributeError) as error:
        raise LibraryUnavailable(
            f"The native kernels cannot be loaded ({error}). {_REBUILD}"
        ) from error
    if functions.swiftspec_abi_version() != ABI_VERSION:
        raise LibraryUnavailable(f"The native kernels are of another version ({path}). {_REBUILD}")
    if functions.swiftspec_source_digest().decode() != source_digest():
        raise LibraryUnavailable(f"The native kernels are older than their sources. {_REBUILD}")
    return Library(
        functions,
        functions.swiftspec_compiler().decode(),
        functions.swiftspec_best_isa().decode(),
    )


def describe() -> str:
    """The kernels that a model would run on, for people: "avx512-vnni, gcc 12.2"."""
    wanted = os.environ.get(ISA_VARIABLE) or None
    try:
        library = load()
    except LibraryUnavailable as error:
        return f"NumPy, very slow. {error}"
    if wanted == NUMPY:
        return f"NumPy, very slow, because {ISA_VARIABLE} says so"
    return f"{wanted or library.best_isa}, {library.compiler}"


def _declare(functions: ctypes.CDLL) -> None:
    number, pointer, text = ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p
    signatures: dict[str, tuple[object, list[object]]] = {
        "abi_version": (number, []),
        "source_digest": (text, []),
        "compiler": (text, []),
        "best_isa": (text, []),
        "has_isa": (number, [text]),
        "kernels": (pointer, [text]),
        "top_k": (number, [pointer, pointer, number, number, number, pointer, pointer, pointer]),
        "model_create": (
            pointer,
            [ctypes.POINTER(CShape), ctypes.POINTER(CWeights), number, text],
        ),
        "model_destroy": (None, [pointer]),
        "cache_bytes": (ctypes.c_uint64, [pointer, number]),
        "cache_create": (pointer, [pointer, number]),
        "cache_destroy": (None, [pointer]),
        "cache_length": (number, [pointer]),
        "cache_pending": (number, [pointer]),
        "cache_read": (number, [pointer, number, number, number, pointer, pointer]),
        "append": (number, [pointer, pointer, pointer, number, number, pointer]),
        "grow": (number, [pointer, pointer, pointer, pointer, number, number, pointer]),
        "reroot": (number, [pointer, pointer, number, pointer, number]),
        "truncate": (number, [pointer, number]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(functions, f"swiftspec_{name}")
        function.restype, function.argtypes = result, arguments


if __name__ == "__main__":
    sys.stdout.write(describe() + "\n")
