"""A draft in a process of its own, for one request after the other: SwiftSpec's algorithm 1 seen
from the target.

Sends what was verified, waits for the tree of this round until the planner's deadline and not
longer, and starts anew where the draft's process was. Knows no logits and no KV.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from swiftspec_daemon.engine.drafts.process import DraftProcess
from swiftspec_daemon.engine.drafts.rules import pack
from swiftspec_daemon.engine.drafts.session import RemoteTree
from swiftspec_daemon.engine.messages import Generate
from swiftspec_daemon.speculation.costs import CostTable
from swiftspec_daemon.speculation.pairing import TargetLink
from swiftspec_daemon.speculation.pairing_messages import DraftReady, Plan, Tree
from swiftspec_daemon.speculation.planner import AsyncPlan, Planner
from swiftspec_daemon.speculation.tree import TokenTree

_KEEP_UP = Plan(size=1, width=1, steps=1, just_in_time=0)
"""For a draft that does not pay: it keeps its KV up to date, so that a probe finds it ready."""


class RemotePair:
    """The target's end of its draft's process, shared by all requests."""

    def __init__(self, process: DraftProcess, planner: Planner, source: int) -> None:
        """`source` is the draft's bit in trees."""
        self.process = process
        self.link = TargetLink()
        self._planner = planner
        self._source = source
        self._known: DraftReady | None = None

    @property
    def ready(self) -> bool:
        """There is a draft to talk to."""
        return self._known is not None

    def look(self, timeout_s: float = 0.0) -> None:
        """Take in what has come; start the process where there is none."""
        if self.process.ensure_started():
            self.link.restarted()
        for tree in self.process.receive(timeout_s):
            if _well_formed(tree):
                self.link.receive(tree)
            else:
                self.process.misbehaved("it sent a tree that is none")
        if self.process.ready is not self._known:
            self._known = self.process.ready
            if self._known is None:
                self.link.end()  # nothing can come of what it was asked
            else:
                costs = {rows: ms / 1e3 for rows, ms in self._known.step_ms}
                self._planner.add_draft(self._source, CostTable(costs))

    def holds(self, tokens: int) -> bool:
        """Whether a text of so many tokens goes into the draft's context; says so if it does not.

        Only with a draft that is `ready`.
        """
        context = self._known.context if self._known is not None else 0
        if tokens > context:
            self.process.note_problem(too_long(context))
        return tokens <= context

    def plan(self) -> AsyncPlan | None:
        """What to ask of the draft in the round that has begun."""
        return self._planner.async_plan(self._source) if self.ready else None

    def waited(self, seconds: float) -> None:
        """The target waited for a tree."""
        if self.ready:
            self._planner.waited(self._source, seconds)

    def close(self) -> None:
        """End the process."""
        self.process.stop()


class RemoteRequest:
    """One request on a `RemotePair`."""

    def __init__(
        self, pair: RemotePair, number: int, request: Generate, clock: Callable[[], float]
    ) -> None:
        """`number` tells this request from all others of this worker, also from one that the same
        request began before a suspension."""
        self._pair = pair
        self._number = number
        self._request = request
        self._clock = clock
        self._tokens: list[int] = []
        self._prompt = 0
        self._deadline = 0.0
        self._stale_before = pair.link.stale

    @property
    def stale(self) -> int:
        """Trees that came for a round that was over."""
        return self._pair.link.stale - self._stale_before

    def look(self) -> None:
        """Take in what has come, and send on what had no room yet."""
        self._pair.look()

    def begin(self, tokens: Sequence[int], prompt: int) -> None:
        """Start behind these decided tokens, `prompt` of which are the prompt's."""
        self._tokens, self._prompt = list(tokens), prompt
        self._pair.look()
        self._start(self._pair.plan())

    def verified(self, tokens: Sequence[int]) -> None:
        """Tell what was decided; the planner has begun the next round."""
        self._tokens += tokens
        pair, link = self._pair, self._pair.link
        pair.look()
        plan = pair.plan()
        message = link.verified(tokens, _asked(plan))
        if message is None:
            self._start(plan)
            return
        pair.process.send(message)
        self._wait_until(plan)

    def tree(self) -> RemoteTree | None:
        """This round's tree, within the planner's deadline."""
        pair, link = self._pair, self._pair.link
        started = now = self._clock()
        pair.look()
        tree = link.take()
        while tree is None and link.active and now < self._deadline:
            pair.look(self._deadline - now)
            tree = link.take()
            now = self._clock()
        pair.waited(self._clock() - started)
        if tree is None or tree.tokens[0] != self._tokens[-1]:
            return None
        return RemoteTree(_rebuilt(tree), tree.matched, tree.forwards, tree.busy_ms, tree.idle_ms)

    def end(self) -> None:
        """The request is over or suspended."""
        message = self._pair.link.end()
        if message is not None:
            self._pair.process.send(message)

    def _start(self, plan: AsyncPlan | None) -> None:
        pair = self._pair
        if not pair.ready or not pair.holds(len(self._tokens)):
            return
        message = pair.link.begin(
            self._number,
            self._request.sequence,
            self._tokens,
            self._prompt,
            pack(self._request),
            _asked(plan),
        )
        pair.process.send(message)
        self._wait_until(plan)

    def _wait_until(self, plan: AsyncPlan | None) -> None:
        """Not for a draft that has not answered the round before: it is reading the prompt, or
        stuck, and will not come round in time."""
        waits = plan is not None and self._pair.link.unanswered <= 1
        self._deadline = self._clock() + (plan.deadline_s if plan is not None and waits else 0.0)


def _asked(plan: AsyncPlan | None) -> Plan:
    if plan is None:
        return _KEEP_UP
    return Plan(plan.size, plan.width, plan.steps, plan.just_in_time)


def too_long(context: int) -> str:
    """What is said where a text does not go into a draft's context."""
    return f"Texts longer than the draft's context of {context} tokens are decoded without it."


def _well_formed(message: Tree) -> bool:
    """Whether it is a tree at all; a bad one would harm the target."""
    parents = message.parents
    return (
        len(message.tokens) == len(parents) == len(message.log_probs) > 0
        and min(message.tokens) >= 0
        and all(0 <= parent < node for node, parent in enumerate(parents[1:], start=1))
    )


def _rebuilt(message: Tree) -> TokenTree:
    """The tree that a message carries."""
    tree = TokenTree(message.tokens[0])
    log_probs, place = message.log_probs, [0]
    for node in range(1, len(message.tokens)):
        parent = message.parents[node]
        log_prob = min(0.0, log_probs[node] - log_probs[parent])  # above 0 by rounding only
        place.append(tree.add(place[parent], message.tokens[node], log_prob))
    return tree
