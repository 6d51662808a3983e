"""One request's drafts, on the target's side: what to verify next, and what its outcome teaches.

Joins the sources (n-gram look-up, draft models here, a draft in a process of its own) under the
planner; their trees are merged as SpecInfer merges them, with calibrated probabilities, so that
the best subtree is the one with the most expected tokens, wherever its nodes come from.
Knows no logits, no KV and no other request.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from swiftspec_daemon.engine.drafts.rest import Rest
from swiftspec_daemon.errors import SwiftSpecError
from swiftspec_daemon.speculation.calibration import Calibration, Proposal
from swiftspec_daemon.speculation.costs import CostTable
from swiftspec_daemon.speculation.counters import SpeculationCounters
from swiftspec_daemon.speculation.decoding import DecodeState
from swiftspec_daemon.speculation.drafter import TreeDrafter
from swiftspec_daemon.speculation.merging import MergedTree
from swiftspec_daemon.speculation.planner import Planner
from swiftspec_daemon.speculation.suffix import SuffixSource
from swiftspec_daemon.speculation.tree import TokenTree

log = logging.getLogger(__name__)

NGRAM = 1
"""The look-up's bit in `TokenTree.marks`."""
PAST = 1 << 16
"""That of the look-up in past suggestions, above all drafts' bits."""
LOOKUPS = {NGRAM: "ngram", PAST: "past"}
"""Names of both, for people."""
_LOOKUP_NODES = 24


def draft_bit(index: int) -> int:
    """The bit of the index-th draft model."""
    return 2 << index


def _draft_name(index: int) -> str:
    return f"draft {index + 1}" if index else "draft"


class RemoteTree(NamedTuple):
    """What a draft in a process of its own has sent for this round."""

    tree: TokenTree
    matched: int
    """How many of the tokens verified last were in its tree."""
    forwards: int
    busy_ms: float
    """It computed since its last tree, and"""
    idle_ms: float
    """waited for the target."""


class RemoteDraft(Protocol):
    """A draft in a process of its own."""

    @property
    def stale(self) -> int:
        """Trees that came for a round that was over."""

    def begin(self, tokens: Sequence[int], prompt: int) -> None:
        """Start on this request, or again after a suspension."""

    def look(self) -> None:
        """Take in what has come, and send on what had no room yet."""

    def verified(self, tokens: Sequence[int]) -> None:
        """Tell what was decided."""

    def tree(self) -> RemoteTree | None:
        """This round's tree, within the planner's deadline."""

    def end(self) -> None:
        """The request is over or suspended."""


@dataclass(frozen=True, slots=True)
class LocalDraft:
    """A draft model in the target's process."""

    open: Callable[[Sequence[int], DecodeState], TreeDrafter | None]
    """A drafter that is begun behind these tokens; None if they are too many for it."""
    costs: CostTable
    """Of its forward passes."""


@dataclass(slots=True)
class Sources:
    """The sources that a request uses."""

    lookup: SuffixSource | None = None
    local: list[LocalDraft] = field(default_factory=list)
    remote: RemoteDraft | None = None


class DraftSession:
    """The drafts of one request, from its first step to its last.

    A round: `propose`, then `verified` with its outcome. `begin` comes first, and again after a
    suspension.
    """

    def __init__(
        self,
        sources: Sources,
        planner: Planner,
        calibration: Calibration,
        clock: Callable[[], float],
    ) -> None:
        self._sources = sources
        self._planner = planner
        self._calibration = calibration
        self._clock = clock
        self.counters = SpeculationCounters()
        drafts = len(sources.local) or (sources.remote is not None)
        self._names = LOOKUPS | {draft_bit(i): _draft_name(i) for i in range(drafts)}
        self._root = 0
        self._room = 0
        self._decided = 0
        """Tokens of the last round."""
        self._pending = 0
        """Of the round that the planner has begun."""
        self._drafters: list[TreeDrafter | None] = []
        """None for one that has failed in this request, or that the text is too long for."""
        self._proposals: list[Proposal] = []
        self._candidates = MergedTree(calibration, 0)
        self._proposed_at = 0.0
        self._draft_s = self._own_s = 0.0
        self._rows = 1
        self._rest = Rest()

    def begin(self, tokens: Sequence[int], prompt: int, state: DecodeState) -> None:
        """Start behind all decided `tokens`, of which `prompt` are the prompt's."""
        self._root, self._room, self._decided = tokens[-1], state.room, 0
        self._rest = Rest()
        if self._sources.lookup is not None:
            self._sources.lookup.begin(tokens)
        self._drafters = [None] * len(self._sources.local)
        for index, draft in enumerate(self._sources.local):
            with self._guarded(index):
                self._drafters[index] = draft.open(tokens, state)
        self._open_round(1)
        if self._sources.remote is not None:
            self._sources.remote.begin(tokens, prompt)

    def prefilled(self) -> None:
        """The target has run a block of its prompt: the drafts here may do so too."""
        if self._sources.remote is not None:
            self._sources.remote.look()
        for index, drafter in enumerate(self._drafters):
            if drafter is not None and not drafter.ready and self._planner.pays(draft_bit(index)):
                with self._guarded(index):
                    drafter.step()

    def propose(self, pending: int, most: int) -> TokenTree:
        """What to verify now: a tree rooted at the last decided token, of that token alone for a
        plain step.

        `pending` decided tokens have no KV in the target; the tree may have `most` nodes.
        """
        started = self._clock()
        if self._rest.left:
            self._proposed_at = started
            return TokenTree(self._root)
        self._draft_s = 0.0
        self._proposals = []
        self._candidates = MergedTree(self._calibration, self._root)
        if pending != self._pending:
            self._open_round(pending)
        self._look_up()
        self._await_remote()
        for index, drafter in enumerate(self._drafters):
            if drafter is not None:
                with self._guarded(index):
                    self._draft(index, drafter)
        chosen = self._choose(most)
        self._rows = pending + len(chosen) - 1
        self._proposed_at = self._clock()
        self._own_s = self._proposed_at - started - self._draft_s
        return chosen

    def _choose(self, most: int) -> TokenTree:
        if not self._proposals:
            return TokenTree(self._root)
        return self._candidates.best(min(self._planner.choose_size(self._candidates), most))

    def verified(
        self,
        proposed: TokenTree | None,
        decided: Sequence[int],
        accepted: int,
        state: DecodeState | None,
    ) -> None:
        """Learn from a round, plain ones included, and make ready for the next.

        `proposed` is None for a pass that no proposal was asked for; `state` is behind the last
        token, None if the text ends there.
        """
        now = self._clock()
        if self._rest.left:
            self._rest_on(decided, now - self._proposed_at, state)
            return
        matched: dict[int, int] = {}
        if proposed is not None:
            for proposal in self._proposals:
                matched[proposal.source] = self._calibration.learn(proposal, decided)
            self._planner.verified(len(decided), self._rows, now - self._proposed_at, matched)
        if state is not None:
            if proposed is not None and self._sources.remote is None:
                self._rest = Rest(self._planner.rest(self._catch_up_s(len(decided))))
            matches = self._go_on(decided, state)
            if matches and proposed is not None:
                self._count_fall(max(matches) == len(decided))
        if proposed is not None:
            counters = self.counters
            counters.record(proposed, decided[:accepted], len(decided), self._names)
            counters.target_s += now - self._proposed_at
            counters.target_idle_s += self._draft_s
            counters.own_s += self._own_s + self._clock() - now

    def _go_on(self, decided: Sequence[int], state: DecodeState) -> list[int]:
        """Make the sources ready for the next round; how many tokens each draft here foresaw."""
        self._root, self._room = decided[-1], state.room
        self._decided = len(decided)
        self._open_round(1)
        if self._sources.remote is not None:
            self._sources.remote.verified(decided)
        if self._sources.lookup is not None:
            self._sources.lookup.extend(decided)
            self._rest.guess = self._sources.lookup.glance() if self._rest.left else None
        return self._accept(decided, state)

    # --- rest ---------------------------------------------------------------------------------

    def _catch_up_s(self, decided: int) -> dict[int, float]:
        """Of each draft here: seconds that it needs before its next step."""
        return {
            draft_bit(index): self._sources.local[index].costs(drafter.missing + decided)
            for index, drafter in enumerate(self._drafters)
            if drafter is not None
        }

    def _rest_on(self, decided: Sequence[int], seconds: float, state: DecodeState | None) -> None:
        """A plain round in which nothing was asked. Look-ups are watched from afar: when one would
        have been right twice running, the rest is over."""
        rest, lookup = self._rest, self._sources.lookup
        rest.went_by(decided, seconds)
        self.counters.record(TokenTree(self._root), [], len(decided), self._names)
        self.counters.target_s += seconds
        if state is None:
            self._planner.rested(rest.rounds, rest.seconds)
            return
        self._root, self._room = decided[-1], state.room
        if lookup is not None:
            lookup.extend(decided)
            rest.guess = lookup.glance()
        if rest.left:
            return
        self._planner.rested(rest.rounds, rest.seconds)
        if rest.roused:
            self._planner.rouse(NGRAM)
        self._open_round(1)
        self._accept(rest.tokens, state)

    def close(self) -> None:
        """The request is over or suspended."""
        if self._sources.remote is not None:
            self._sources.remote.end()

    # --- the sources --------------------------------------------------------------------------

    def _open_round(self, pending: int) -> None:
        self._pending = pending
        self._planner.begin_round(pending=pending, remaining=self._room)

    def _look_up(self) -> None:
        lookup = self._sources.lookup
        if lookup is None:
            return
        most = min(_LOOKUP_NODES, max(0, self._room - 1))
        started = self._clock()
        past = lookup.recall(most, PAST)
        # Asked only where there is something, or the planner would judge it by having nothing.
        if len(past) > 1 and self._planner.wants(PAST):
            self._planner.spend(PAST, 1, self._clock() - started)
            self._take_in(Proposal(PAST, past, lookup.confidences))
        if not self._planner.wants(NGRAM):
            return
        started = self._clock()
        tree = lookup.propose(most)
        self._planner.spend(NGRAM, 1, self._clock() - started)
        self._take_in(Proposal(NGRAM, tree, lookup.confidences))

    def _await_remote(self) -> None:
        remote = self._sources.remote
        if remote is None:
            return
        started = self._clock()
        came = remote.tree()
        self.counters.stale_trees = remote.stale
        self._draft_s += self._clock() - started
        if came is None:
            self.counters.missed_deadlines += 1
            return
        self._count_remote(came)
        self._take_in(Proposal(draft_bit(0), came.tree))

    def _count_remote(self, came: RemoteTree) -> None:
        self.counters.draft_steps += came.forwards
        self.counters.draft_s += came.busy_ms / 1e3
        self.counters.draft_idle_s += came.idle_ms / 1e3
        if self._decided:
            self._count_fall(came.matched == self._decided)

    def _count_fall(self, fell_in: bool) -> None:
        """Whether all tokens of a round were in the draft's tree, the target's own too."""
        if fell_in:
            self.counters.fall_ins += 1
        else:
            self.counters.fall_outs += 1

    def _take_in(self, proposal: Proposal) -> None:
        if len(proposal.tree) > 1:
            self._proposals.append(proposal)
            self._candidates.update(proposal)

    def _draft(self, index: int, drafter: TreeDrafter) -> None:
        """Let a draft model grow its tree as long as that pays."""
        bit = draft_bit(index)
        costs, candidates = self._sources.local[index].costs, self._candidates
        own = Proposal(bit, drafter.tree)
        while True:
            if len(own.tree) > 1:
                candidates.update(own)
            place = candidates.place(bit)
            leaves = [place[node] for node in drafter.leaves()]
            missing = drafter.missing
            catch_up_s = costs(missing) if missing > 1 else 0.0
            width = self._planner.next_width(bit, candidates, leaves, catch_up_s=catch_up_s)
            if not width or not self._step(bit, drafter, width):
                break
        if len(own.tree) > 1:
            self._proposals.append(own)

    def _accept(self, decided: Sequence[int], state: DecodeState) -> list[int]:
        """Re-root the drafts here; how many of the tokens each of them foresaw."""
        matches = []
        for index, drafter in enumerate(self._drafters):
            if drafter is not None:
                with self._guarded(index):
                    matches.append(drafter.accept(decided, state))
        return matches

    @contextlib.contextmanager
    def _guarded(self, index: int) -> Iterator[None]:
        """A draft that fails is left out for the rest of the request, which goes on without."""
        try:
            yield
        except SwiftSpecError as error:
            log.warning("%s is left out of a request: %s", _draft_name(index), error)
            self._drafters[index] = None

    def _step(self, bit: int, drafter: TreeDrafter, width: int) -> bool:
        started = self._clock()
        drafter.width = width
        rows = drafter.step()
        seconds = self._clock() - started
        self._draft_s += seconds
        self.counters.draft_s += seconds
        self.counters.draft_steps += rows > 0
        if rows:
            self._planner.spend(bit, rows, seconds)
        return rows > 0
