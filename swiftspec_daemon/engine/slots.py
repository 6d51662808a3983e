"""Which KV slot a request gets, and how much of its prompt is there already.

A handful of slots, each with the token ids whose KV it holds. Knows no device and no clock: the
caller moves the real caches as it is told. KV is never copied between slots.

Choice for a prompt:
1. the free slot of the same sequence, or a free slot that shares a longer prefix: one without
   owner, or one of another sequence that loses next to nothing by it (the same file, opened again);
2. an empty slot; then the least recently used free one (a request without a sequence takes one
   without owner first, so that such requests do not drive out every document);
3. if all slots are held by suspended requests, the least recently used of those: its request
   computes its KV anew when it goes on.
A slot of another sequence is not taken for a prefix that is only a part of what it holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_WORTHWHILE_PREFIX = 16
"""A shorter common prefix (BOS, a template's head) is no reason to take an ownerless slot."""
_SAME_TEXT = 0.875
"""The part of another sequence's prompt that must be common before its slot is taken."""


@dataclass(slots=True)
class Slot:
    """One KV cache's bookkeeping. `tokens` is what the cache holds, kept so by the caller."""

    index: int
    tokens: list[int] = field(default_factory=list)
    prompt: int = 0
    """Tokens of the last request's prompt; what follows them in `tokens` was generated."""
    sequence: str = ""
    holder: int | None = None
    """The request that uses it, running or suspended."""
    last_used: int = 0


@dataclass(frozen=True, slots=True)
class Assignment:
    """The answer to `Slots.acquire`; `slot.tokens` is cut to the part that is reused."""

    slot: Slot
    cached: int
    """Tokens at the start whose KV is reused; the cache must be truncated to this length."""
    robbed: int | None
    """The suspended request that has lost its slot."""


class Slots:
    """All slots of a worker."""

    def __init__(self, count: int) -> None:
        self._slots = [Slot(index) for index in range(count)]
        self._uses = 0

    def __iter__(self) -> Iterator[Slot]:
        return iter(self._slots)

    def acquire(self, tokens: Sequence[int], sequence: str, holder: int) -> Assignment:
        """A slot for a request that will hold `tokens` (not empty).

        At least the last token is left to compute, for its logits.
        """
        slot = self._choose(tokens, sequence)
        robbed = slot.holder
        cached = min(common_prefix(slot.tokens, tokens), len(tokens) - 1)
        del slot.tokens[cached:]
        slot.prompt = len(tokens)
        slot.sequence = sequence
        slot.holder = holder
        self._touch(slot)
        return Assignment(slot, cached, robbed)

    def release(self, slot: Slot) -> None:
        """The request that holds it is finished, cancelled or dropped; the KV stays."""
        slot.holder = None
        self._touch(slot)

    def _touch(self, slot: Slot) -> None:
        self._uses += 1
        slot.last_used = self._uses

    def _choose(self, tokens: Sequence[int], sequence: str) -> Slot:
        free = [slot for slot in self._slots if slot.holder is None]
        if not free:
            return min(self._slots, key=lambda slot: slot.last_used)
        matching = self._matching(free, tokens, sequence)
        if matching is not None:
            return matching
        empty = [slot for slot in free if not slot.tokens]
        if empty:
            return empty[0]
        ownerless = [slot for slot in free if not slot.sequence]
        candidates = ownerless if ownerless and not sequence else free
        return min(candidates, key=lambda slot: slot.last_used)

    def _matching(self, free: list[Slot], tokens: Sequence[int], sequence: str) -> Slot | None:
        own = [s for s in free if sequence and s.sequence == sequence]
        others = [s for s in free if s not in own]
        shared = [s for s in others if self._may_be_shared(s, common_prefix(s.tokens, tokens))]
        # max keeps the first of equals: the sequence's own slot
        return max(own + shared, key=lambda s: common_prefix(s.tokens, tokens), default=None)

    @staticmethod
    def _may_be_shared(slot: Slot, prefix: int) -> bool:
        if slot.sequence:
            held = min(slot.prompt, len(slot.tokens))
            return prefix >= _WORTHWHILE_PREFIX and prefix >= _SAME_TEXT * held
        return prefix >= _WORTHWHILE_PREFIX or 0 < prefix == len(slot.tokens)


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """How many tokens at the start are equal."""
    limit = min(len(left), len(right))
    if list(left[:limit]) == list(right[:limit]):
        return limit
    return next(i for i in range(limit) if left[i] != right[i])
