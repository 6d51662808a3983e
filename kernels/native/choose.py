"""Which implementation runs a model: the native library, or NumPy where there is none.

SWIFTSPEC_NATIVE_ISA forces one: "portable", "avx512-vnni", "amx-int8" or "numpy".
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Sequence
from typing import Any, Protocol

from .library import ISA_VARIABLE, NUMPY, LibraryUnavailable, load
from .model import Arrays, Floats, NativeCache, NativeModel
from .reference import ReferenceCache, ReferenceModel
from .shape import NativeShape

_log = logging.getLogger(__name__)


class OpenModel(Protocol):
    """What both implementations offer; a cache goes back to the model that made it."""

    shape: NativeShape
    isa: str
    compiler: str
    context: int

    def cache_bytes(self, capacity: int) -> int: ...

    def new_cache(self, capacity: int) -> NativeCache | ReferenceCache: ...

    def append(
        self, cache: Any, tokens: Sequence[int], *, logits: str = "last"
    ) -> Floats | None: ...

    def speculate(self, cache: Any, tokens: Sequence[int], parents: Sequence[int]) -> Floats: ...

    def grow(self, cache: Any, tokens: Sequence[int], parents: Sequence[int]) -> Floats: ...

    def reroot(self, cache: Any, path: Sequence[int], keep: Sequence[int]) -> None: ...

    def commit(self, cache: Any, path: Sequence[int]) -> None: ...

    def truncate(self, cache: Any, length: int) -> None: ...


def open_model(
    shape: NativeShape,
    arrays: Arrays,
    cosines: Floats,
    sines: Floats,
    *,
    threads: int,
    isa: str | None = None,
) -> OpenModel:
    """The fastest implementation that runs here, or `isa`, or what the environment forces.

    `arrays` are packed (`packing.py`) and must not change; `cosines` and `sines` are fp32
    [context, head_dim / 2]. `threads` changes speed only, never results.
    Raises ValueError for arrays that do not fit or an `isa` that does not run here.
    """
    wanted = isa or os.environ.get(ISA_VARIABLE) or None
    if wanted == NUMPY:
        return ReferenceModel(shape, arrays, cosines, sines)
    try:
        library = load()
    except LibraryUnavailable as error:
        if wanted is not None:
            raise ValueError(f"kernels for {wanted!r} are not here: {error}") from error
        _warn_once(str(error))
        return ReferenceModel(shape, arrays, cosines, sines)
    return NativeModel(
        library, shape, arrays, cosines, sines, threads=threads, isa=wanted or library.best_isa
    )


@functools.cache
def _warn_once(reason: str) -> None:
    _log.warning("%s Until then the model runs on NumPy, more than ten times slower.", reason)
