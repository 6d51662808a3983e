"""Figures for plots, and their files. matplotlib is imported only when something is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from swiftspec_daemon.errors import UsageError


def new_figure(width: float = 6.0, height: float = 3.5) -> Any:
    """An empty matplotlib Figure, sizes in inches. Raises UsageError without matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        hint = "Install it with: pip install 'swiftspec-daemon[bench]'"
        raise UsageError("The plots need matplotlib, which is not installed.", hint) from None
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Any, folder: Path, name: str) -> Path:
    """Write `folder`/`name`.png. Raises UsageError where that cannot be done."""
    file = folder / f"{name}.png"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, dpi=120)
    except OSError as error:
        hint = "Name a folder of yours with --out."
        raise UsageError(f"The plots cannot be written: {error.strerror}.", hint) from None
    return file
