"""Speculation on a virtual clock: the same drafter, draft loop and link as the worker processes
run, with latency tables in place of models, so that hardware that is not here can be planned for.

Acceptance comes from a synthetic pair (`speculation.synthetic`) and from nothing else: what a
late or pruned tree loses is an outcome. Knows durations as numbers only; all in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from swiftspec_daemon.speculation.drafter import TreeDrafter
from swiftspec_daemon.speculation.pairing import DraftLoop, TargetLink
from swiftspec_daemon.speculation.pairing_messages import Begin, Plan, ToDraft, Tree
from swiftspec_daemon.speculation.synthetic import (
    Agreement,
    FreeState,
    HashTarget,
    SyntheticDraft,
    path_state,
    state_after,
)
from swiftspec_daemon.speculation.tree import TokenTree

_FREE = FreeState()


@dataclass(frozen=True, slots=True)
class Hardware:
    """How long things take, in seconds."""

    target: Callable[[int], float]
    """A forward pass of the target, by rows."""
    draft: Callable[[int], float]
    """A forward pass of the draft, by rows."""
    overhead: float = 0.0
    """What a round costs besides forward passes: sampling, re-rooting, scheduling."""
    hop: float = 0.0
    """From one worker to the other, one way."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """How a round is made up."""

    size: int
    """Rows that the target verifies, the root included (bs)."""
    width: int
    """Leaves that a draft's forward pass expands at most (w)."""
    steps: int
    """Serial: draft passes before each verification. Asynchronous: expansions while the target
    verifies (d)."""
    just_in_time: int = 64
    """Asynchronous: passes on the critical path at most, for a tree that is too small."""
    branching: int = 8
    patience: float = math.inf
    """Asynchronous: how long the target waits for a tree before it steps on the root alone."""


@dataclass(slots=True)
class Outcome:
    """What a simulated text took."""

    tokens: int = 0
    seconds: float = 0.0
    rounds: int = 0
    drafts: int = 0
    """Forward passes of the draft."""
    target_waits: float = 0.0
    """Seconds in which the target had nothing to verify (serial: the draft's time)."""
    draft_waits: float = 0.0
    """Asynchronous: seconds in which the draft had nothing to do."""
    fall_ins: int = 0
    """Rounds whose own token was in the draft's tree."""
    by_length: dict[int, int] = field(default_factory=dict)
    """Rounds by the number of tokens they gave."""

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds

    @property
    def tokens_per_round(self) -> float:
        """Mean acceptance length, the target's own token counted."""
        return self.tokens / self.rounds

    def count(self, tokens: int) -> None:
        """A round gave so many tokens."""
        self.rounds += 1
        self.tokens += tokens
        self.by_length[tokens] = self.by_length.get(tokens, 0) + 1


class _Text:
    """The target's text so far: what it decides behind a path."""

    def __init__(self, target: HashTarget, prompt: Sequence[int]) -> None:
        self._target = target
        self._state = path_state(prompt)
        self.tokens = list(prompt)

    def verify(self, tree: TokenTree) -> list[int]:
        """Walk the tree by the target's own tokens, which become part of the text."""
        node: int | None = 0
        decided: list[int] = []
        while node is not None:
            token = self._target.behind(self._state)
            self._state = state_after(self._state, token)
            self.tokens.append(token)
            decided.append(token)
            node = tree.child(node, token)
        return decided


def simulate_plain(hardware: Hardware, tokens: int) -> Outcome:
    """Without speculation."""
    outcome = Outcome()
    for _ in range(tokens):
        outcome.count(1)
        outcome.seconds += hardware.target(1) + hardware.overhead
    return outcome


def simulate_serial(
    hardware: Hardware, agreement: Agreement, strategy: Strategy, tokens: int, seed: int = 0
) -> Outcome:
    """Draft, then verify, in turns: the draft's time is on the critical path."""
    outcome = Outcome()
    draft, drafter = _drafter(agreement, strategy, seed)
    text = _Text(HashTarget(), [seed])
    drafter.begin(text.tokens, _FREE)
    while outcome.tokens < tokens:
        before = len(draft.forwards)
        for _ in range(strategy.steps):
            if not drafter.step():
                break
        drafted = sum(map(hardware.draft, draft.forwards[before:]))
        tree = drafter.tree.subtree(drafter.tree.select(strategy.size))
        outcome.target_waits += drafted
        outcome.seconds += drafted + hardware.target(len(tree)) + hardware.overhead
        decided = text.verify(tree)
        outcome.count(len(decided))
        outcome.fall_ins += drafter.accept(decided, _FREE) == len(decided)
    outcome.drafts = len(draft.forwards)
    return outcome


def simulate_async(
    hardware: Hardware, agreement: Agreement, strategy: Strategy, tokens: int, seed: int = 0
) -> Outcome:
    """SwiftSpec's algorithm 1: the draft grows the tree while the target verifies."""
    outcome = Outcome()
    draft = _DraftSide(hardware, agreement, strategy, seed)
    link = TargetLink()
    text = _Text(HashTarget(), [seed])
    plan = Plan(strategy.size, strategy.width, strategy.steps, strategy.just_in_time)
    now, decided = 0.0, list[int]()
    draft.send(now, link.begin(0, "", text.tokens, 1, b"", plan))
    while outcome.tokens < tokens:
        came, tree = _wait(draft, link, now + strategy.patience)
        came = max(came, now)
        if decided and tree is not None:  # the first tree is behind the prompt
            outcome.fall_ins += tree.matched == len(decided)
        outcome.target_waits += came - now
        verified = _rebuilt(tree, text.tokens[-1])
        now = came + hardware.target(len(verified)) + hardware.overhead
        decided = text.verify(verified)
        outcome.count(len(decided))
        message = link.verified(decided, plan)
        if message is not None:
            draft.send(now, message)
    outcome.seconds = now
    outcome.drafts, outcome.draft_waits = len(draft.model.forwards), draft.idle
    return outcome


class _DraftSide:
    """The draft worker's process on its own clock."""

    def __init__(
        self, hardware: Hardware, agreement: Agreement, strategy: Strategy, seed: int
    ) -> None:
        self.model, self._drafter = _drafter(agreement, strategy, seed)
        self.now = self.idle = 0.0
        self._hardware = hardware
        self._loop = DraftLoop[FreeState](self._open, lambda state, tokens: state)
        self._inbox: list[tuple[float, ToDraft]] = []
        self._sent: list[tuple[float, Tree]] = []

    def send(self, now: float, message: ToDraft) -> None:
        """The target sends this at `now`."""
        self._inbox.append((now + self._hardware.hop, message))

    def run(self, until: float) -> list[tuple[float, Tree]]:
        """Work until the first tree is on its way, or until then; trees and their arrivals."""
        while not self._sent:
            self._receive()
            if not self._loop.wants_step:
                if not self._inbox or self._inbox[0][0] > until:
                    break
                self.idle += self._inbox[0][0] - self.now
                self.now = self._inbox[0][0]
            elif self.now >= until:
                break
            else:
                self._step()
        sent, self._sent = self._sent, []
        return sent

    def _receive(self) -> None:
        while self._inbox and self._inbox[0][0] <= self.now:
            self._loop.receive(self._inbox.pop(0)[1])

    def _step(self) -> None:
        before = len(self.model.forwards)
        answer = self._loop.step()
        self.now += sum(map(self._hardware.draft, self.model.forwards[before:]))
        if answer is not None:
            self._sent.append((self.now + self._hardware.hop, answer))

    def _open(self, begin: Begin) -> tuple[TreeDrafter, FreeState]:
        self._drafter.begin(begin.tokens, _FREE)
        return self._drafter, _FREE


class _Arrival(NamedTuple):
    at: float
    tree: Tree | None


def _wait(draft: _DraftSide, link: TargetLink, deadline: float) -> _Arrival:
    """This round's tree and when it came, or the deadline."""
    while True:
        sent = draft.run(deadline)
        for at, tree in sent:
            if at <= deadline and link.receive(tree):
                return _Arrival(at, link.take())
        if not sent:
            return _Arrival(deadline, None)


def _rebuilt(tree: Tree | None, root: int) -> TokenTree:
    rebuilt = TokenTree(root)
    if tree is not None:
        for node in range(1, len(tree.tokens)):
            parent = tree.parents[node]
            log_prob = tree.log_probs[node] - tree.log_probs[parent]
            rebuilt.add(parent, tree.tokens[node], min(log_prob, 0.0))
    return rebuilt


def _drafter(
    agreement: Agreement, strategy: Strategy, seed: int
) -> tuple[SyntheticDraft, TreeDrafter]:
    model = SyntheticDraft(agreement, branching=strategy.branching, seed=seed)
    drafter = TreeDrafter(
        model,
        width=strategy.width,
        branching=strategy.branching,
        max_depth=64,
        max_nodes=1024,
    )
    return model, drafter
