"""Which implementation runs a model: the native library, or NumPy where there is none.

SWIFTSPEC_NATIVE_ISA forces one: "portable", "avx512-vnni" or "numpy".
"""

from __future__ import annotations

import functools
import logging
import os

from .library import LibraryUnavailable, load
from .model import Arrays, Floats, NativeModel
from .reference import ReferenceModel
from .shape import NativeShape

ISA_VARIABLE = "SWIFTSPEC_NATIVE_ISA"
NUMPY = "numpy"

_log = logging.getLogger(__name__)


def open_model(
    shape: NativeShape,
    arrays: Arrays,
    cosines: Floats,
    sines: Floats,
    *,
    threads: int,
    isa: str | None = None,
) -> NativeModel | ReferenceModel:
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


def describe() -> str:
    """The kernels that a model would run on, for people: "avx512-vnni, gcc 12.2"."""
    wanted = os.environ.get(ISA_VARIABLE) or None
    try:
        library = load()
    except LibraryUnavailable as error:
        return f"numpy, slow ({error})"
    if wanted == NUMPY:
        return f"numpy, slow ({ISA_VARIABLE}={NUMPY})"
    return f"{wanted or library.best_isa}, {library.compiler}"


@functools.cache
def _warn_once(reason: str) -> None:
    _log.warning("%s Until then the model runs on NumPy, more than ten times slower.", reason)
