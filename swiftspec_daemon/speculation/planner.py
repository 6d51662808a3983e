"""Which drafts to make, how large a tree to verify, and when not to speculate at all.

Everything is weighed in expected tokens: a second is worth `rate` tokens, the rate at which tokens
have come lately (never less than plain decoding's), and what brings less than its time is worth is
left out. That is Sequoia's cost formula (arXiv 2402.12374, section 4.3), the least
(d * t_draft + t_target(b)) / E[length], in the form in which it can be decided step by step
(Dinkelbach's method for ratios): E[length] - rate * time is greatest where the ratio is best.
Whatever the estimates say, no round is begun that `LossBudget` could not pay for.

Knows probabilities, durations and counts, which are passed in; no clock, no text, no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from swiftspec_daemon.speculation.budget import LossBudget
from swiftspec_daemon.speculation.calibration import DEEPEST, Calibration
from swiftspec_daemon.speculation.costs import CostTable
from swiftspec_daemon.speculation.expansions import Expansions
from swiftspec_daemon.speculation.merging import MergedTree
from swiftspec_daemon.speculation.outlook import LOOK_AHEAD, fresh, further
from swiftspec_daemon.speculation.planned import AsyncPlan, PlannedSource

_MEMORY = 16.0
"""Rounds after which what was fades to 1/e in the rate."""
_PROBE_SHARE = 0.003
"""Share of plain decoding's time that probing a source which does not pay may be expected to cost.
One near the point where it pays is so probed often, one that always fails seldom, and one that
would have to read a long prompt first hardly ever."""
_MOST_CREDIT = 3.0
"""Plain steps that may be saved up for a probe."""
_WIDEST = 8
"""Leaves of a draft step: more bring next to nothing (SwiftSpec, section 4.5)."""
_HOP_S = 0.5e-3
"""What a message to a draft worker and back may take on top of its steps."""
_OWN_S = 0.3e-3
"""What it takes, in Python whose code and data the target's weights have driven out of the caches,
to merge, choose, verify and learn from a tree."""
_LONGEST_REST = 32
"""Rounds in which nothing is tried, at a time."""
_WORTH_WEIGHT = 1 / 8
_HOPE = 0.1
"""Worth of a source that was right in a probe: it is asked again before it is judged."""


class Planner:
    """The planner of one pair: a target and its draft sources.

    Lives as long as the worker; what it learns goes from one request to the next. A round:
    `begin_round`; `wants` or `next_width` for each source, and `spend` for what was run;
    `choose_size`; and when the target has decided, `verified`.
    """

    def __init__(
        self,
        target: CostTable,
        calibration: Calibration,
        *,
        max_size: int = 32,
        max_steps: int = 16,
        overhead_s: float = _OWN_S,
        budget: LossBudget | None = None,
    ) -> None:
        """`max_size` bounds the trees (the root counted), `max_steps` the draft steps a round;
        `overhead_s` is what a round with a tree costs besides forward passes."""
        self.target = target
        self.calibration = calibration
        self.budget = budget or LossBudget()
        self.max_size, self.max_steps = max_size, max_steps
        self.overhead_s = overhead_s
        self._sources: dict[int, PlannedSource] = {}
        self._tokens, self._seconds = 1.0, target(1)  # a round's, of late
        self._rate = 1 / target(1)
        self._pending = 1
        self._remaining = 64
        self._spent = 0.0
        self._steps = 0
        self._size = 1
        self._gain = 0.0
        self._asked = 8.0
        self._expansions = Expansions()
        self._rounds = {"plain": 0, "speculative": 0, "probe": 0}

    def add_lookup(self, source: int, seconds: float) -> None:
        """A source that proposes at once, for that many seconds a proposal."""
        self._sources[source] = PlannedSource(CostTable({1: seconds}), lookup=True)

    def add_draft(self, source: int, costs: CostTable) -> None:
        """A draft model; `costs` are those of its forward passes by rows."""
        self._sources[source] = PlannedSource(costs, lookup=False)

    @property
    def rate(self) -> float:
        """Tokens that a second is worth now."""
        return self._rate

    # --- a round ------------------------------------------------------------------------------

    def begin_round(self, *, pending: int = 1, remaining: int = 64) -> None:
        """`pending` decided tokens have no KV yet (the root among them); `remaining` more tokens
        may come in this request."""
        self._pending, self._remaining = pending, max(1, remaining)
        self._spent, self._steps, self._size, self._gain = 0.0, 0, 1, 0.0
        self._rate = max(self._tokens / self._seconds, 1 / self.target(1))
        for source in self._sources.values():
            source.credit = min(_MOST_CREDIT, source.credit + _PROBE_SHARE)
            source.probing = source.used = source.asked = False
            source.spent = source.gain = 0.0

    def wants(self, source: int) -> bool:
        """Whether a lookup, or the tree of an asynchronous draft, is wanted in this round."""
        mine = self._sources[source]
        mine.asked = True
        mine.used = mine.worth > 0 or mine.probe(self._asking_loss(mine))
        return mine.used

    def next_width(
        self, source: int, tree: MergedTree, leaves: Sequence[int], *, catch_up_s: float = 0.0
    ) -> int:
        """How many leaves a draft model shall expand in a step before the target runs; 0: none.

        `tree` is what all sources have proposed so far; `leaves` are the nodes in it that this
        draft could expand. `catch_up_s` is what the draft must do before it can step
        (decided tokens that it has not seen), which serves the rounds to come as well.
        """
        mine = self._sources[source]
        if not leaves or self._steps >= self.max_steps:
            return 0
        if not self._affords(mine.costs(1) + catch_up_s):
            return 0
        best = sorted(leaves, key=tree.reach.__getitem__, reverse=True)[:_WIDEST]
        width, loss = self._best_width(source, tree, best, catch_up_s)
        if not width and not mine.used and mine.probe(loss):
            width = 1
        while width > 1 and not self._affords(mine.costs(width) + catch_up_s):
            width //= 2
        mine.used = mine.used or width > 0
        return width

    def pays(self, source: int) -> bool:
        """Whether a draft that has read the prompt would be worth its steps, as things are. If
        not, it is better not to read it."""
        return self._just_in_time(source, 1) > 0

    def spend(self, source: int, rows: int, seconds: float) -> None:
        """A source ran `rows` (a lookup: 1) while the target waited."""
        mine = self._sources[source]
        mine.costs.observe(rows, seconds)
        self._steps += not mine.lookup
        mine.spent += mine.costs(rows)
        self._spent += mine.costs(rows)

    def waited(self, source: int, seconds: float) -> None:
        """The target waited for an asynchronous draft."""
        self._sources[source].spent += seconds
        self._spent += seconds

    def choose_size(self, tree: MergedTree) -> int:
        """How many nodes of the merged tree to verify, the root included (`MergedTree.best`).

        The b with the greatest 1 + (sum of the path probabilities of its nodes) - rate * time.
        """
        reach = sorted(tree.reach[1:], reverse=True)
        self._size, gain = self._optimum(reach)
        if self._size > 1:
            least, total = reach[self._size - 2], sum(reach[: self._size - 1])
            for number, source in self._sources.items():
                own = sum(
                    p
                    for p, marks in zip(tree.reach[1:], tree.marks[1:], strict=True)
                    if p >= least and marks & number
                )
                source.gain = gain * min(1.0, own / total)
        self._gain = gain
        return self._size

    def verified(
        self, tokens: int, rows: int, seconds: float, matched: Mapping[int, int] | None = None
    ) -> None:
        """The round's end: it decided `tokens`, the target ran `rows` for `seconds`.

        `matched` says for each source that proposed something (also what was not verified) how
        many of the tokens it foresaw, as `Calibration.learn` does.
        """
        self.target.observe(rows, seconds)
        cost = self._spent + self.target(rows) + (self.overhead_s if self._size > 1 else 0.0)
        unit = self.target(1)
        extra = (cost - self.target(self._pending)) / unit
        self.budget.settle(tokens, 1 + extra)
        keep = 1 - 1 / _MEMORY
        self._tokens = keep * self._tokens + (1 - keep) * tokens
        self._seconds = keep * self._seconds + (1 - keep) * cost
        self._expansions.observe(tokens, cost)
        for number, source in self._sources.items():
            if source.used:
                self._judge(source, (matched or {}).get(number, 0))
        probe = any(source.probing for source in self._sources.values())
        kind = "probe" if probe else "speculative" if self._size > 1 else "plain"
        self._rounds[kind] += 1

    # --- rest ---------------------------------------------------------------------------------

    def rest(self, catch_up_s: Mapping[int, float]) -> int:
        """How many rounds to come are plain whatever is asked here, as things are: no source pays,
        and none has saved enough for a probe. To be called when a round was `verified`.

        `catch_up_s` has the draft models of this request and what each would have to do before its
        next step; lookups that were not asked in the round count for nothing.
        """
        rounds = float(_LONGEST_REST)
        for number, source in self._sources.items():
            if source.lookup:
                if not source.asked:
                    continue
                pays, loss = source.worth > 0, self._asking_loss(source)
            elif number in catch_up_s:
                pays = source.used or self.pays(number)
                first = sum(self.calibration.ahead(number, 1))
                loss = (source.costs(1) + catch_up_s[number]) / self.target(1) - first
            else:
                continue
            if pays:
                return 0
            rounds = min(rounds, (loss - source.credit) / _PROBE_SHARE)
        return max(0, int(rounds))

    def rested(self, rounds: int, seconds: float) -> None:
        """So many plain rounds, of a token each, have gone by in these seconds."""
        self.target.observe(1, seconds / rounds)
        self.budget.settle(rounds, rounds)
        keep = (1 - 1 / _MEMORY) ** rounds
        self._tokens = keep * self._tokens + (1 - keep)
        self._seconds = keep * self._seconds + (1 - keep) * self.target(1)
        for source in self._sources.values():
            source.credit = min(_MOST_CREDIT, source.credit + rounds * _PROBE_SHARE)
        self._rounds["plain"] += rounds

    def rouse(self, source: int) -> None:
        """A lookup would have been right of late: it is asked again."""
        mine = self._sources[source]
        mine.worth = max(mine.worth, _HOPE)

    # --- asynchronous drafts ------------------------------------------------------------------

    def async_plan(self, source: int) -> AsyncPlan | None:
        """What to ask of an asynchronous draft now; None: leave it alone in this round.

        Its steps while the target runs cost nothing here; those that the target waits for are
        weighed as serial ones.
        """
        if not self.wants(source):
            return None
        mine = self._sources[source]
        width = self._flat_width(mine.costs)
        size = min(self.max_size, max(2, width, round(1.5 * self._asked)))
        steps = self._expansions.steps(self.target(size), mine.costs(width), self.max_steps)
        just_in_time = 1 if mine.probing else self._just_in_time(source, width)
        wait = max(1, just_in_time) * mine.costs(width) + _HOP_S
        affordable = max(0.0, self.budget.balance) * self.target(1)
        return AsyncPlan(size, width, steps, just_in_time, min(wait, affordable))

    # --- for people ---------------------------------------------------------------------------

    def explain(self) -> dict[str, object]:
        """What is chosen now and why, in numbers; times in milliseconds."""
        plain = self.target(1)
        return {
            "plain_ms": plain * 1e3,
            "target_ms": {rows: s * 1e3 for rows, s in self.target.measured().items()},
            "tokens_per_second": self._tokens / self._seconds,
            "tokens_per_round": self._tokens,
            "speedup": self._tokens * plain / self._seconds,
            "last_size": self._size,
            "expected_gain": self._gain,
            "budget": self.budget.balance,
            "rounds": dict(self._rounds),
            "expansions": self._expansions.ratio,
            "sources": {
                number: {
                    "kind": "lookup" if source.lookup else "draft",
                    "step_ms": {rows: s * 1e3 for rows, s in source.costs.measured().items()},
                    "worth": source.worth,
                    "probe_credit": source.credit,
                    **self.calibration.snapshot([number])[number],
                }
                for number, source in self._sources.items()
            },
        }

    # --- inside -------------------------------------------------------------------------------

    def _affords(self, further_s: float) -> bool:
        """Whether the round may take `further_s` more and then bring one token only."""
        return self.budget.affords((self._spent + further_s) / self.target(1))

    def _asking_loss(self, source: PlannedSource) -> float:
        """Plain steps that are lost where a lookup or an asynchronous draft is asked in vain."""
        return (source.costs(1) + (_OWN_S if source.lookup else _HOP_S)) / self.target(1)

    def _optimum(self, probabilities: Sequence[float]) -> tuple[int, float]:
        """Best size, and what it gains over no tree, of path probabilities, greatest first."""
        first, rate = self._pending, self._rate
        most = min(len(probabilities) + 1, self.max_size)
        times = self.target.upto(first + 2 * self.max_size)
        limit = self.budget.balance * times[1] + times[first] - self._spent - self.overhead_s
        size, best, total = 1, 0.0, -rate * self.overhead_s
        for b in range(2, most + 1):
            rows = first + b - 1
            if times[rows] > limit:
                break
            total += probabilities[b - 2]
            value = total - rate * (times[rows] - times[first])
            if value > best:
                size, best = b, value
        return size, best

    def _best_width(
        self, source: int, tree: MergedTree, leaves: Sequence[int], catch_up_s: float
    ) -> tuple[int, float]:
        """The width whose next steps gain most over what they cost, 0 if none does; and what one
        step of width 1 is expected to lose, in plain steps."""
        rate, costs = self._rate, self._sources[source].costs
        size, least = 1, 1.0
        if len(tree) > 1:
            probabilities = sorted(tree.reach[1:], reverse=True)
            size, _ = self._optimum(probabilities)
            least = probabilities[size - 2] if size > 1 else 1.0
        rounds = max(1.0, self._remaining / self._tokens)
        catch_up = rate * catch_up_s / rounds
        aheads = self.calibration.aheads(source)
        ranked = fresh(aheads, tree, leaves)
        loss = max(0.0, (costs(1) + catch_up_s) / self.target(1) - sum(ranked[0]))
        deeper = further(aheads, ranked[0][0], tree.depths[leaves[0]])
        chosen, greatest = 0, 0.0
        width = 1
        while True:
            threshold = min(least, self._row_price(size, width))
            gain = sum([p - threshold for row in ranked[:width] for p in row if p > threshold])
            step = rate * costs(width)
            for more in range(LOOK_AHEAD):
                value = gain - (more + 1) * step - catch_up
                if value > greatest:
                    chosen, greatest = width, value
                if more < len(deeper):
                    gain += max(0.0, deeper[more] - threshold)
            if width >= len(ranked) or ranked[width][0] <= threshold:
                return chosen, loss
            width = min(2 * width, len(ranked))

    def _row_price(self, size: int, further: int) -> float:
        """Tokens that one more row costs, of `further` that come on top of the best size. A node
        with less reach is not worth its row; nor is one with less than the least that is chosen."""
        if size >= self.max_size:
            return 1.0
        rows = self._pending + size - 1
        times = self.target.upto(self._pending + 2 * self.max_size)
        start = self.overhead_s if size == 1 else 0.0
        return self._rate * (times[rows + further] - times[rows] + start) / further

    def _just_in_time(self, source: int, width: int) -> int:
        """Draft steps that are worth waiting for from an empty tree, a chain being counted."""
        costs, rate = self._sources[source].costs, self._rate
        times = self.target.upto(self._pending + 2 * self.max_size)
        reach, total, best, steps = 1.0, -rate * self.overhead_s, 0.0, 0
        aheads = self.calibration.aheads(source)
        for depth in range(1, min(self.max_steps, self.max_size - 1) + 1):
            reach *= aheads[min(depth, DEEPEST)][0]
            total += reach
            rows = self._pending + depth
            value = total - rate * (times[rows] - times[self._pending] + depth * costs(width))
            if value > best:
                best, steps = value, depth
        return steps

    def _flat_width(self, costs: CostTable) -> int:
        """Rows of a draft step that take hardly longer than one (SwiftSpec, section 4.5)."""
        width = 1
        while 2 * width <= min(self.max_size, 16) and costs(2 * width) <= 1.15 * costs(1):
            width *= 2
        return width

    def _judge(self, source: PlannedSource, matched: int) -> None:
        """Whether a source that was asked in this round shall be asked in the next."""
        bought = source.gain - self._rate * (source.spent + _OWN_S)
        source.worth += _WORTH_WEIGHT * (bought - source.worth)
        if source.probing:
            source.worth = max(bought, _HOPE if matched else bought)
        self._asked += _WORTH_WEIGHT * (self._size - self._asked)
        if source.probing and matched:  # go on: it may be good again
            source.credit = max(source.credit, source.costs(1) / self.target(1))


__all__ = ["AsyncPlan", "Planner"]
