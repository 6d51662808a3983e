"""What became of a connection's completions: shown, accepted, partly accepted, rejected.

Counts each of them once for each completion. Keeps lengths, no text.
"""

from __future__ import annotations

from dataclasses import dataclass

from swiftspec_daemon.completion.statistics import Statistics
from swiftspec_daemon.protocol.messages import Accepted, Rejected, Shown

_REMEMBERED = 256
"""Finished completions of a connection that feedback may still come for."""


@dataclass(slots=True)
class _Fate:
    length: int
    shown: bool = False
    accepted: bool = False
    partly: bool = False
    rejected: bool = False


class Feedback:
    """The finished completions of one connection."""

    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics
        self._fates: dict[int | str, _Fate] = {}

    def begun(self, request: int | str) -> None:
        """A completion with this id runs; its text is not known yet. A used id starts anew."""
        self._fates.pop(request, None)
        self._fates[request] = _Fate(length=-1)
        while len(self._fates) > _REMEMBERED:
            del self._fates[next(iter(self._fates))]

    def finished(self, request: int | str, length: int) -> None:
        """It has ended with `length` code points."""
        if request in self._fates:
            self._fates[request].length = length

    def record(self, message: Shown | Accepted | Rejected) -> None:
        """Count; completions that are not (or no longer) known are ignored."""
        fate = self._fates.get(message.id)
        if fate is None:
            return
        match message:
            case Shown():
                self._statistics.shown += not fate.shown
                fate.shown = True
            case Accepted(characters=characters):
                self._accept(fate, characters)
            case Rejected():
                self._statistics.rejected += not fate.rejected
                fate.rejected = True

    def _accept(self, fate: _Fate, characters: int | None) -> None:
        part = characters is not None and (fate.length < 0 or characters < fate.length)
        if part and not fate.accepted:
            self._statistics.partly_accepted += not fate.partly
            fate.partly = True
        elif not part:
            self._statistics.accepted += not fate.accepted
            fate.accepted = True
