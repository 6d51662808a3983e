"""SwiftSpec's Algorithm 1 as two state machines: the draft's loop and the target's end of the link.

Neither does input or output, and neither has a clock: the worker processes drive them with real
messages and forward passes, the simulator with virtual ones. The draft grows its tree while the
target verifies; the target takes the tree of the round it is in, and none other.
Knows nothing of logits, KV or text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from swiftspec_daemon.speculation.pairing_messages import (
    Begin,
    End,
    Epoch,
    Plan,
    ToDraft,
    Tree,
    Verified,
)
from swiftspec_daemon.speculation.tree import TokenTree

State = TypeVar("State")
_State = TypeVar("_State", contravariant=True)


class Drafter(Protocol[_State]):
    """What the loop asks of a `TreeDrafter`."""

    tree: TokenTree
    width: int

    @property
    def ready(self) -> bool:
        """The root has been expanded."""

    def step(self) -> int:
        """One forward pass; the rows that it ran, 0 if there is nothing to run."""

    def accept(self, tokens: Sequence[int], state: _State) -> int:
        """Re-root along verified tokens; how many were in the tree."""


class _Silent:
    """A drafter that proposes nothing: of a request that the draft cannot serve."""

    ready = False
    width = 1

    def __init__(self, root: int) -> None:
        self.tree = TokenTree(root)

    def step(self) -> int:
        return 0

    def accept(self, tokens: Sequence[int], state: object) -> int:
        self.tree = TokenTree(tokens[-1])
        return 0


class DraftLoop(Generic[State]):
    """The draft worker of Algorithm 1.

    Whoever drives it hands in all messages that are there, then, while `wants_step`, calls `step`
    and sends what it returns. Where the drafter raises in `receive`, the request is answered by
    trees of the root alone from then on; where it raises in `step`, `give_up` does that.
    """

    def __init__(
        self,
        open_drafter: Callable[[Begin], tuple[Drafter[State], State]],
        advance: Callable[[State, Sequence[int]], State],
    ) -> None:
        """`open_drafter` prepares a drafter (its KV slot chosen, nothing run yet) and the state
        behind the request's tokens; `advance` gives the state behind further ones."""
        self._open_drafter = open_drafter
        self._advance = advance
        self._epoch: Epoch | None = None
        self._drafter: Drafter[State] | None = None
        self._state: State | None = None
        self._plan = Plan(1, 1, 0, 0)
        self._owed = False
        self._matched = 0
        self._early = 0
        self._late = 0
        self._forwards = 0
        self._exhausted = False

    @property
    def wants_step(self) -> bool:
        """There is a forward pass or an answer to make; else wait for a message."""
        if self._drafter is None:
            return False
        return self._owed or (not self._exhausted and self._late < self._plan.steps)

    def receive(self, message: ToDraft) -> None:
        """Take in a message of the target. What it asks for is made by `step`."""
        match message:
            case Begin():
                self._drafter, self._state = _Silent(message.tokens[-1]), None
                self._matched = 0
                self._begin_round(message.epoch, message.plan)
                self._drafter, self._state = self._open_drafter(message)
                self._drafter.width = message.plan.width
            case Verified():
                self._verified(message)
            case End():
                if self._is_current(message.epoch):
                    self._drafter = self._state = self._epoch = None
                    self._owed = False

    def step(self) -> Tree | None:
        """An answer if one is owed and its tree is there; else one forward pass."""
        drafter = self._drafter
        if drafter is None:
            return None
        if self._owed and self._enough(drafter):
            return self._answer(drafter)
        rows = drafter.step()
        if rows:
            self._forwards += 1
            if not self._owed:
                self._late += 1
            elif drafter.ready:
                self._early += 1
        else:
            self._exhausted = True
        if self._owed and (self._exhausted or self._enough(drafter)):
            return self._answer(drafter)
        return None

    def give_up(self) -> None:
        """The drafter has failed: propose nothing more for this request."""
        if self._drafter is not None:
            self._drafter, self._state = _Silent(self._drafter.tree.tokens[0]), None

    def _verified(self, message: Verified) -> None:
        drafter, state = self._drafter, self._state
        if drafter is None or not self._is_current(message.epoch):
            return  # of a request that ended, or that a lost draft process was working on
        self._drafter, self._state, self._matched = _Silent(message.tokens[-1]), None, 0
        self._begin_round(message.epoch, message.plan)
        if state is None:  # given up before
            return
        after = self._advance(state, message.tokens)
        self._matched = drafter.accept(message.tokens, after)
        self._drafter, self._state = drafter, after
        drafter.width = message.plan.width

    def _is_current(self, epoch: Epoch) -> bool:
        mine = self._epoch
        return mine is not None and (mine.incarnation, mine.request) == (
            epoch.incarnation,
            epoch.request,
        )

    def _begin_round(self, epoch: Epoch, plan: Plan) -> None:
        self._epoch, self._plan = epoch, plan
        self._owed, self._exhausted = True, False
        self._early = self._late = 0

    def _enough(self, drafter: Drafter[State]) -> bool:
        """Whether the tree may be sent: full, or what a short just-in-time draft gives."""
        if not drafter.ready:
            return self._plan.size <= 1
        return len(drafter.tree) >= self._plan.size or self._early >= self._plan.just_in_time

    def _answer(self, drafter: Drafter[State]) -> Tree | None:
        self._owed = False
        if self._epoch is None:
            return None
        tree = drafter.tree.subtree(drafter.tree.select(self._plan.size))
        answer = Tree(
            epoch=self._epoch,
            tokens=tree.tokens,
            parents=tree.parents,
            log_probs=tree.scores,
            matched=self._matched,
            forwards=self._forwards,
        )
        self._forwards = 0
        return answer


class TargetLink:
    """The target's end: makes the messages, and tells the tree of this round from stale ones."""

    def __init__(self) -> None:
        self.stale = 0
        """Trees that came for a round that was over."""
        self.unanswered = 0
        """Messages of this request since the last tree that wanted one."""
        self._incarnation = 0
        self._round = 0
        self._epoch: Epoch | None = None
        self._tree: Tree | None = None

    @property
    def active(self) -> bool:
        """A request is under way."""
        return self._epoch is not None

    @property
    def incarnation(self) -> int:
        return self._incarnation

    def restarted(self) -> int:
        """A new draft process takes over; nothing of the old one counts. Its incarnation."""
        self._incarnation += 1
        self._epoch = self._tree = None
        self.unanswered = 0
        return self._incarnation

    def begin(
        self,
        number: int,
        sequence: str,
        tokens: Sequence[int],
        prompt: int,
        request: bytes,
        plan: Plan,
    ) -> Begin:
        """Start, or start again after a suspension or a lost draft."""
        epoch = self._next_round(number)
        return Begin(epoch, sequence, list(tokens), prompt, request, plan)

    def verified(self, tokens: Sequence[int], plan: Plan) -> Verified | None:
        """Tell what a round has decided; None if no request is under way."""
        if self._epoch is None:
            return None
        return Verified(self._next_round(self._epoch.request), list(tokens), plan)

    def end(self) -> End | None:
        """The request ends here; None if there was none."""
        epoch, self._epoch, self._tree = self._epoch, None, None
        self.unanswered = 0  # what was not waited for to the end says nothing about the next
        return None if epoch is None else End(epoch)

    def receive(self, tree: Tree) -> bool:
        """Take in a tree; whether it is this round's."""
        if tree.epoch.incarnation == self._incarnation:
            self.unanswered = 0
        if tree.epoch != self._epoch:
            self.stale += 1
            return False
        self._tree = tree
        return True

    def take(self) -> Tree | None:
        """This round's tree, once it has come."""
        tree, self._tree = self._tree, None
        return tree

    def _next_round(self, request: int) -> Epoch:
        self._round += 1
        self._tree = None
        self.unanswered += 1
        self._epoch = Epoch(self._incarnation, request, self._round)
        return self._epoch
