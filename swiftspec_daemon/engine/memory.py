"""Whether a model fits in memory: refusing before loading beats failing in the middle of a text.

Knows sizes in bytes and what the system says is free; no model and no backend.
"""

from __future__ import annotations

import psutil

from swiftspec_daemon.errors import EngineError

_HEADROOM = 256 * 1024 * 1024
"""Bytes left for everything else."""


def require(name: str, *, weight_bytes: int, kv_bytes: int, available: int | None = None) -> None:
    """Raises EngineError if weights and KV caches do not fit in the memory that is available.

    `available` is in bytes and is asked of the system by default. A memory-mapped file that is in
    the page cache counts as available there, so loading a model again is not refused.
    """
    if available is None:
        available = int(psutil.virtual_memory().available)
    needed = weight_bytes + kv_bytes + _HEADROOM
    if needed > available:
        kv = f" and {_readable(kv_bytes)} for keys and values" if kv_bytes else ""
        raise EngineError(
            f"The model {name} does not fit in memory: it needs {_readable(weight_bytes)} for "
            f"weights{kv}, with {_readable(_HEADROOM)} left over, and "
            f"{_readable(available)} are available.",
            "Choose a smaller model, or lower model.context or model.kv_slots.",
        )


def _readable(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
