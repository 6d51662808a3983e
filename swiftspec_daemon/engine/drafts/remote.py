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
            self.link.receive(tree)
        if self.process.ready is not self._known:
            self._known = self.process.ready
            if self._known is not None:
                costs = {rows: ms / 1e3 for rows, ms in self._known.step_ms}
                self._planner.add_draft(self._source, CostTable(costs))

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
        if not link.active:
            self._start(plan)
            return
        message = link.verified(tokens, _asked(plan))
        if message is not None:
            pair.process.send(message, owed=True)
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
        if tree is None:
            return None
        return RemoteTree(_rebuilt(tree), tree.matched, tree.forwards, tree.busy_ms, tree.idle_ms)

    def end(self) -> None:
        """The request is over or suspended."""
        message = self._pair.link.end()
        if message is not None:
            self._pair.process.send(message, owed=False)

    def _start(self, plan: AsyncPlan | None) -> None:
        pair = self._pair
        if not pair.ready:
            return
        message = pair.link.begin(
            self._number,
            self._request.sequence,
            self._tokens,
            self._prompt,
            pack(self._request),
            _asked(plan),
        )
        pair.process.send(message, owed=True)
        self._wait_until(plan)

    def _wait_until(self, plan: AsyncPlan | None) -> None:
        self._deadline = self._clock() + (plan.deadline_s if plan is not None else 0.0)


def _asked(plan: AsyncPlan | None) -> Plan:
    if plan is None:
        return _KEEP_UP
    return Plan(plan.size, plan.width, plan.steps, plan.just_in_time)


def _rebuilt(message: Tree) -> TokenTree:
    """The tree that a message carries."""
    tree = TokenTree(message.tokens[0])
    log_probs = message.log_probs
    for node in range(1, len(message.tokens)):
        parent = message.parents[node]
        log_prob = min(0.0, log_probs[node] - log_probs[parent])  # above 0 by rounding only
        tree.add(parent, message.tokens[node], log_prob)
    return tree
