"""Model descriptions, weight files, tokenizers and where they come from. No torch."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, float], None]
"""What is being done, for people, and the fraction (0 to 1) of it that is done."""


def no_progress(phase: str, fraction: float) -> None:
    """Report progress to nobody."""
