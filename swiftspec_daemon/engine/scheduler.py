"""Whose step is next: one request at a time, by priority, then by turns.

A pure state machine: no clock, no device, no input or output. It knows requests by id, priority
and sequence; what a step does, where KV lies and what is sent is not its business.

Rules:
- The lowest `Priority` number goes first. A request that has begun and is overtaken is suspended;
  it goes on before any other of its priority begins, so each priority has at most one begun.
- Among equals, sequences take turns (the one that began a request longest ago is next), and each
  sequence is served first in, first out. All requests without a sequence are one party.
- When a request arrives, every droppable one of a lower priority is dropped.
- Each priority has a bounded number of places.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from swiftspec_daemon.engine.messages import Priority

_REMEMBERED_TURNS = 256


@dataclass(slots=True)
class _Entry:
    id: int
    priority: Priority
    sequence: str
    arrival: int
    begun: bool = False


@dataclass(frozen=True, slots=True)
class Admission:
    """The answer to `Scheduler.submit`."""

    accepted: bool
    """False if all places of the priority are taken."""
    dropped: tuple[int, ...] = ()
    """Requests that made room and are no longer known here, in order of arrival."""


class Scheduler:
    """The requests that are not finished."""

    def __init__(self, limit: int) -> None:
        """`limit`: places for each priority, begun requests included."""
        self._limit = limit
        self._entries: dict[int, _Entry] = {}
        self._arrivals = 0
        self._begins = 0
        self._turns: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, request: int) -> bool:
        return request in self._entries

    @property
    def ids(self) -> tuple[int, ...]:
        """All requests, in order of arrival."""
        return tuple(self._entries)

    def submit(self, request: int, priority: Priority, sequence: str) -> Admission:
        """Take in a request whose id is not known yet. Raises ValueError if it is."""
        if request in self._entries:
            raise ValueError(f"request {request} is known already")
        if sum(e.priority == priority for e in self._entries.values()) >= self._limit:
            return Admission(accepted=False)
        dropped = tuple(
            e.id for e in self._entries.values() if e.priority > priority and e.priority.droppable
        )
        for other in dropped:
            del self._entries[other]
        self._arrivals += 1
        self._entries[request] = _Entry(request, priority, sequence, self._arrivals)
        return Admission(accepted=True, dropped=dropped)

    def next(self) -> int | None:
        """The request whose step is next, which counts as begun from now on; None if none waits.

        Between two calls without a change the answer is the same.
        """
        if not self._entries:
            return None
        entry = min(self._entries.values(), key=self._rank)
        if not entry.begun:
            entry.begun = True
            self._begins += 1
            self._turns[entry.sequence] = self._begins
            self._turns.move_to_end(entry.sequence)
            if len(self._turns) > _REMEMBERED_TURNS:
                self._turns.popitem(last=False)
        return entry.id

    def remove(self, request: int) -> bool:
        """Forget a request that is finished or cancelled; whether it was known."""
        return self._entries.pop(request, None) is not None

    def _rank(self, entry: _Entry) -> tuple[int, int, int, int]:
        turn = self._turns.get(entry.sequence, 0)
        return (entry.priority, 0 if entry.begun else 1, turn, entry.arrival)
