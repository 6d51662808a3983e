"""When target and draft computed, by the system's monotonic clock: what was at the same time."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swiftspec_daemon.bench import drawing
from swiftspec_daemon.engine.backend import Backend, KVCache, Logits

Span = tuple[int, int]
"""Start and end, nanoseconds."""
_SHOWN_NS = 150_000_000


@dataclass(frozen=True, slots=True)
class Trace:
    """Forward passes of one text."""

    target: list[Span]
    draft: list[Span]

    @property
    def overlap(self) -> float:
        """The share of the draft's computing time in which the target computed too."""
        both = sum(
            max(0, min(end, until) - max(start, since))
            for start, end in self.draft
            for since, until in self.target
        )
        return both / max(1, sum(end - start for start, end in self.draft))

    def plot(self, folder: Path) -> Path:
        """Draw the middle of the text; the file."""
        figure = drawing.new_figure(9.0, 2.4)
        axes = figure.add_subplot()
        middle = self.target[len(self.target) // 3][0]
        rows = (("draft", self.draft, "tab:orange"), ("target", self.target, "tab:blue"))
        for row, (_, spans, colour) in enumerate(rows):
            shown = [
                ((start - middle) / 1e6, (end - start) / 1e6)
                for start, end in spans
                if middle <= start < middle + _SHOWN_NS
            ]
            axes.broken_barh(shown, (row - 0.35, 0.7), facecolor=colour, edgecolor="white")
        axes.set_yticks([0, 1], ["draft's process", "target's process"])
        axes.set(xlabel="ms", title=f"{100 * self.overlap:.0f} % of the draft's time overlaps")
        return drawing.save(figure, folder, "decode.trace")


@dataclass
class Recorder:
    """Collects the spans of both processes."""

    folder: tempfile.TemporaryDirectory[str] = field(
        default_factory=lambda: tempfile.TemporaryDirectory(prefix="swiftspec-trace-")
    )
    target: list[Span] = field(default_factory=list)

    @property
    def draft_file(self) -> str:
        """Where the draft's process writes its own."""
        return str(Path(self.folder.name) / "draft")

    def trace(self) -> Trace:
        """The spans since the target's first one."""
        first = self.target[0][0] if self.target else 0
        lines = Path(self.draft_file).read_text("ascii").split("\n")[:-1]  # the last may be part
        spans = [(int(start), int(end)) for start, end in (line.split() for line in lines)]
        last = self.target[-1][1] if self.target else 0
        return Trace(list(self.target), [s for s in spans if first <= s[0] and s[1] <= last])


class TimedBackend:
    """A backend that notes when its passes ran."""

    def __init__(self, backend: Backend, recorder: Recorder) -> None:
        self._backend = backend
        self._spans = recorder.target

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def append(self, cache: KVCache, tokens: Sequence[int], *, logits: bool) -> Logits | None:
        """As the backend's."""
        started = time.monotonic_ns()
        found = self._backend.append(cache, tokens, logits=logits)
        self._spans.append((started, time.monotonic_ns()))
        return found

    def speculate(self, cache: KVCache, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        """As the backend's."""
        started = time.monotonic_ns()
        found = self._backend.speculate(cache, tokens, parents)
        self._spans.append((started, time.monotonic_ns()))
        return found
