"""One draft model's KV for a handful of recent documents.

Without it the draft would compute a document's prompt anew at each keystroke. The choice of a slot
is the target's (`engine.slots`). Knows no request and no process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from swiftspec_daemon.engine.slots import Slots
from swiftspec_daemon.speculation.decoding import DecodeState
from swiftspec_daemon.speculation.drafter import DraftModel, TreeDrafter


class DraftPool:
    """Drafters of one model, one for each slot; one at a time is at work."""

    def __init__(
        self,
        new_model: Callable[[], DraftModel],
        new_drafter: Callable[[DraftModel], TreeDrafter],
        slots: int,
    ) -> None:
        """`new_model` gives the model with an empty cache of its own."""
        self._new_model = new_model
        self._new_drafter = new_drafter
        self._slots = Slots(slots)
        self._models: dict[int, DraftModel] = {}
        self._drafters: dict[int, TreeDrafter] = {}

    def open(self, tokens: Sequence[int], sequence: str, state: DecodeState) -> TreeDrafter:
        """The drafter with the most useful KV, begun on `tokens`; nothing is computed yet."""
        for slot in self._slots:
            if slot.index in self._models:
                slot.tokens[:] = self._models[slot.index].held()
        slot = self._slots.acquire(tokens, sequence, holder=0).slot
        if slot.index not in self._drafters:
            self._models[slot.index] = self._new_model()
            self._drafters[slot.index] = self._new_drafter(self._models[slot.index])
        drafter = self._drafters[slot.index]
        drafter.begin(tokens, state)
        self._slots.release(slot)
        return drafter
