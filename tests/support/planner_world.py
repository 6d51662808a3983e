"""Serial speculation by cost tables, with synthetic drafts: what the planner is tried in.

Time is what the tables say; the planner sees nothing else. Fixed configurations run in the same
world, for comparison.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from swiftspec_daemon.speculation.calibration import Calibration, Proposal
from swiftspec_daemon.speculation.costs import CostTable
from swiftspec_daemon.speculation.drafter import TreeDrafter
from swiftspec_daemon.speculation.merging import MergedTree
from swiftspec_daemon.speculation.planner import Planner
from swiftspec_daemon.speculation.synthetic import (
    Agreement,
    FreeState,
    HashTarget,
    SyntheticDraft,
)

CPU = {1: 10.1e-3, 2: 11e-3, 4: 12.5e-3, 8: 16.4e-3, 16: 26e-3, 32: 48e-3}
CPU_DRAFT = {1: 1.2e-3, 2: 1.35e-3, 4: 1.7e-3, 8: 2.5e-3, 16: 4e-3}
GPU = {1: 10e-3, 2: 10e-3, 4: 10.1e-3, 8: 10.2e-3, 16: 10.6e-3, 24: 14e-3, 32: 15e-3}
GPU_DRAFT = {1: 1.0e-3, 2: 1.0e-3, 4: 1.02e-3, 8: 1.05e-3, 16: 1.2e-3}
DRAFT = 2
FREE = FreeState()


@dataclass
class Spent:
    """What a run came to."""

    tokens: int = 0
    rounds: int = 0
    seconds: float = 0.0
    draft_steps: int = 0
    by_round: list[tuple[int, float]] = field(default_factory=list)

    def add(self, tokens: int, seconds: float, steps: int) -> None:
        self.tokens += tokens
        self.rounds += 1
        self.seconds += seconds
        self.draft_steps += steps
        self.by_round.append((tokens, seconds))

    @property
    def per_token(self) -> float:
        return self.seconds / self.tokens


class World:
    """One pair and its costs."""

    def __init__(self, target: dict[int, float], draft: dict[int, float], seed: int = 0) -> None:
        self.target, self.draft = CostTable(target), CostTable(draft)
        self.truth = HashTarget(seed=seed)
        self.seed = seed

    def drafter(self, agreement: Agreement, branching: int = 3) -> TreeDrafter:
        model = SyntheticDraft(agreement, self.truth, seed=self.seed, branching=branching)
        return TreeDrafter(model, width=1, branching=branching, max_depth=24, max_nodes=96)

    def decide(self, context: list[int], tree, nodes: Iterable[int]) -> list[int]:
        """The tokens of a round: along the chosen nodes as long as the target agrees, and one."""
        chosen, node, decided = set(nodes), 0, []
        while True:
            token = self.truth(context + decided)
            decided.append(token)
            child = tree.child(node, token)
            if child is None or child not in chosen:
                return decided
            node = child

    def fixed(
        self,
        agreement: Agreement,
        prompts: list[list[int]],
        tokens: int,
        steps: int,
        width: int,
        size: int,
    ) -> Spent:
        """Always the same number of draft steps, width and tree size; plain decoding: 0, 1, 1."""
        spent = Spent()
        drafter = self.drafter(agreement)
        drafter.width = width
        for prompt in prompts:
            context = list(prompt)
            drafter.begin(context, FREE)
            while len(context) - len(prompt) < tokens:
                seconds = 0.0
                for _ in range(steps):
                    seconds += self.draft(max(1, drafter.step()))
                nodes = drafter.tree.select(size)
                seconds += self.target(len(nodes))
                decided = self.decide(context, drafter.tree, nodes)
                context += decided
                drafter.accept(decided, FREE)
                spent.add(len(decided), seconds, steps)
        return spent

    def planned(
        self, agreement: Agreement, prompts: list[list[int]], tokens: int, planner: Planner
    ) -> Spent:
        """What the planner makes of it."""
        spent = Spent()
        calibration = planner.calibration
        drafter = self.drafter(agreement)
        for prompt in prompts:
            context = list(prompt)
            drafter.begin(context, FREE)
            while len(context) - len(prompt) < tokens:
                planner.begin_round(remaining=tokens - len(context) + len(prompt))
                seconds, steps = 0.0, 0
                tree = MergedTree(calibration, context[-1])
                tree.update(Proposal(DRAFT, drafter.tree))
                while width := planner.next_width(
                    DRAFT, tree, self.leaves(drafter, tree), catch_up_s=self.catch_up(drafter)
                ):
                    drafter.width = width
                    rows = drafter.step()
                    planner.spend(DRAFT, rows, self.draft(rows))
                    seconds += self.draft(rows)
                    steps += 1
                    tree.update(Proposal(DRAFT, drafter.tree))
                proposed = tree.best(planner.choose_size(tree))
                rows = len(proposed)
                seconds += self.target(rows)
                decided = self.decide(context, proposed, range(rows))
                matched = calibration.learn(Proposal(DRAFT, drafter.tree), decided)
                planner.verified(len(decided), rows, self.target(rows), {DRAFT: matched})
                context += decided
                drafter.accept(decided, FREE)
                spent.add(len(decided), seconds, steps)
        return spent

    def catch_up(self, drafter: TreeDrafter) -> float:
        """Seconds that the root's step takes longer for the tokens that the draft has not seen."""
        return self.draft(max(1, drafter.missing)) - self.draft(1)

    @staticmethod
    def leaves(drafter: TreeDrafter, tree: MergedTree) -> list[int]:
        place = tree.place(DRAFT)
        return [place[node] for node in drafter.leaves()]


def prompts(count: int) -> list[list[int]]:
    return [[1000 + i, 7, i] for i in range(count)]


def planner(world: World, target: dict[int, float], draft: dict[int, float]) -> Planner:
    made = Planner(CostTable(target), Calibration())
    made.add_draft(DRAFT, CostTable(draft))
    return made
