"""The native CPU kernels: a whole forward pass of int8 weights in one call.

C++ sources with a C interface (`api.h`), the Python side that builds, loads and calls them, and
the same arithmetic in plain NumPy (`reference.py`). Imports none of the project's other packages;
importing it loads nothing, `argmax` and `top_k` (`selection.py`) come when they are asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .selection import argmax, top_k


def __getattr__(name: str) -> Any:
    if name in ("argmax", "top_k"):
        from . import selection

        return getattr(selection, name)
    raise AttributeError(f"module {__name__} has no attribute {name}")


__all__ = ["argmax", "top_k"]
