"""The planner in a world of cost tables: regret, worst case, recovery, decisions by hand."""

from math import log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_world import CPU, CPU_DRAFT, DRAFT, GPU, GPU_DRAFT, World, planner, prompts

from swiftspec_daemon.speculation.budget import ALLOWANCE, START, LossBudget
from swiftspec_daemon.speculation.calibration import Calibration, Proposal
from swiftspec_daemon.speculation.costs import CostTable
from swiftspec_daemon.speculation.expansions import Expansions
from swiftspec_daemon.speculation.merging import MergedTree
from swiftspec_daemon.speculation.planner import Planner
from swiftspec_daemon.speculation.synthetic import Agreement
from swiftspec_daemon.speculation.tree import TokenTree

LOOKUP = 1
MACHINES = {"cpu": (CPU, CPU_DRAFT), "gpu": (GPU, GPU_DRAFT)}
PROFILES = {
    "weak": Agreement.by_position([0.2]),
    "middling": Agreement.by_position([0.5], [0.3, 0.2]),
    "good": Agreement.by_position([0.8], [0.4, 0.2]),
    "uneven": Agreement.by_position([0.7], [0.4], spread=0.9),
    "falling": Agreement.by_position([0.9, 0.8, 0.6, 0.4, 0.2], [0.3]),
    "perfect": Agreement.perfect(),
}
FIXED = [(0, 1, 1)] + [
    (steps, width, size)
    for steps in (1, 2, 3, 4, 6, 9)
    for width in (1, 2, 4)
    for size in (2, 3, 4, 5, 7, 10, 16)
    if steps < size <= 1 + 3 * steps * width
]


def best_fixed(world: World, agreement: Agreement) -> float:
    """Seconds a token of the best of all fixed configurations; chosen on few prompts."""
    tried = [(world.fixed(agreement, prompts(2), 32, *c).per_token, c) for c in FIXED]
    best = sorted(tried)[:2]
    return min(world.fixed(agreement, prompts(12), 64, *c).per_token for _, c in best)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("profile", PROFILES)
def test_regret_against_the_best_fixed_configuration(machine, profile):
    world = World(*MACHINES[machine])
    planned = world.planned(PROFILES[profile], prompts(12), 64, planner(world, *MACHINES[machine]))
    assert planned.per_token <= 1.05 * best_fixed(world, PROFILES[profile])
    assert planned.per_token <= 1.03 * MACHINES[machine][0][1]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("draft", [Agreement.adversarial(), Agreement.random(32_000)])
def test_drafts_that_always_fail_cost_less_than_three_percent(machine, draft):
    world = World(*MACHINES[machine])
    made = planner(world, *MACHINES[machine])
    spent = world.planned(draft, prompts(40), 64, made)
    assert spent.tokens >= 40 * 64
    plain = MACHINES[machine][0][1]
    assert spent.per_token < 1.015 * plain
    assert spent.draft_steps > 10  # it does look again now and then
    first, later = spent.by_round[:64], spent.by_round[640:]
    assert sum(seconds for _, seconds in first) < 1.25 * 64 * plain
    assert sum(s for _, s in later) < 1.01 * plain * sum(n for n, _ in later)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_draft_that_becomes_good_is_found_again_and_the_reverse(machine):
    world, good = World(*MACHINES[machine]), PROFILES["good"]
    made = planner(world, *MACHINES[machine])
    world.planned(Agreement.adversarial(), prompts(20), 64, made)
    recovered = world.planned(good, prompts(6), 64, made)
    steady = world.planned(good, prompts(6), 64, made)
    assert recovered.per_token < 1.35 * steady.per_token
    bad = world.planned(Agreement.adversarial(), prompts(10), 64, made)
    assert bad.per_token < 1.03 * MACHINES[machine][0][1]


def test_within_few_rounds():
    world = World(CPU, CPU_DRAFT)
    spent = world.planned(PROFILES["good"], prompts(1), 64, planner(world, CPU, CPU_DRAFT))
    assert spent.per_token < 0.7 * CPU[1]


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.floats(0.05, 1.0)), min_size=5, max_size=60),
    st.floats(0.0, 0.05),
)
def test_losses_are_bounded_whatever_the_drafts_claim(rounds, overhead):
    """Against an opponent: what is proposed and what comes of it has nothing to do with costs."""
    table = CostTable(CPU)
    made = Planner(table, Calibration(), overhead_s=overhead * CPU[1])
    made.add_draft(DRAFT, CostTable(CPU_DRAFT))
    tokens = cost = 0.0
    for right, stated in rounds * 6:
        made.begin_round()
        draft = TokenTree(0)
        tree = MergedTree(made.calibration, 0)
        node = 0
        while made.next_width(DRAFT, tree, [tree.place(DRAFT)[node] if node else 0]):
            node = draft.add(node, 5, log(stated), DRAFT)
            tree.update(Proposal(DRAFT, draft))
            made.spend(DRAFT, 1, CPU_DRAFT[1])
            cost += CPU_DRAFT[1]
        size = made.choose_size(tree)
        decided = [5] * min(right, size - 1) + [6]
        cost += table(size) + (overhead * CPU[1] if size > 1 else 0.0)
        tokens += len(decided)
        matched = made.calibration.learn(Proposal(DRAFT, draft), decided)
        made.verified(len(decided), size, table(size), {DRAFT: matched})
        assert made.budget.balance >= -1e-6
        assert cost / CPU[1] <= (1 + ALLOWANCE) * tokens + START + 1e-6


def test_budget_arithmetic():
    budget = LossBudget(allowance=0.1, start=2.0, cap=5.0)
    assert budget.affords(2.0)
    assert not budget.affords(2.1)
    budget.settle(1, 3.0)
    assert budget.balance == pytest.approx(0.1)
    budget.settle(10, 1.0)
    assert budget.balance == 5.0


def merged_chain(made: Planner, *stated: float) -> MergedTree:
    tree = MergedTree(made.calibration, 0)
    tokens = list(range(1, len(stated) + 1))
    tree.update(Proposal(DRAFT, TokenTree.from_chain(0, tokens, list(map(log, stated)), DRAFT)))
    return tree


def test_size_is_the_best_by_hand():
    made = Planner(CostTable({1: 10.0, 2: 11.0, 3: 12.0, 4: 16.0, 8: 32.0}), Calibration())
    made.begin_round()
    # A token is worth 10: rows 2 and 3 cost 0.1 each, further ones 0.4.
    assert made.choose_size(merged_chain(made, 0.5, 0.5, 0.9, 0.9)) == 3
    assert made.choose_size(merged_chain(made, 0.5, 0.15, 0.9)) == 2
    assert made.choose_size(merged_chain(made, 0.9, 0.9, 0.9, 0.9, 0.5)) == 5
    assert made.choose_size(merged_chain(made, 0.09)) == 1
    assert made.choose_size(MergedTree(made.calibration, 0)) == 1


def test_rows_that_must_run_anyway_are_counted():
    made = Planner(CostTable({1: 10.0, 4: 10.0, 5: 20.0}), Calibration())
    made.begin_round(pending=1)
    assert made.choose_size(merged_chain(made, 0.3, 0.3, 0.3, 0.3)) == 4
    made.begin_round(pending=3)
    assert made.choose_size(merged_chain(made, 0.3, 0.3, 0.3, 0.3)) == 2


def test_flat_costs_take_everything_up_to_the_cliff():
    made = Planner(CostTable(GPU), Calibration(), max_size=64)
    made.begin_round()
    tree = MergedTree(made.calibration, 0)
    bush = TokenTree(0)
    for token in range(40):
        bush.add(0, token, log(0.02), DRAFT)
    tree.update(Proposal(DRAFT, bush))
    assert 8 <= made.choose_size(tree) <= 16


def test_overhead_and_size_limit():
    made = Planner(CostTable({1: 10.0, 9: 10.0}), Calibration(), overhead_s=4.0, max_size=3)
    made.begin_round()
    assert made.choose_size(merged_chain(made, 0.3)) == 1
    assert made.choose_size(merged_chain(made, 0.9, 0.9, 0.9, 0.9)) == 3


def test_a_draft_step_is_weighed_against_what_other_sources_have():
    made = planner(World(CPU, CPU_DRAFT), CPU, CPU_DRAFT)
    made.begin_round()
    assert made.next_width(DRAFT, MergedTree(made.calibration, 0), [0]) >= 1
    tree = MergedTree(made.calibration, 0)
    tree.update(Proposal(LOOKUP, TokenTree.from_chain(0, [1, 2], [log(0.95)] * 2, LOOKUP)))
    made.begin_round()
    assert made.next_width(DRAFT, tree, [0]) == 0


def test_reading_a_long_prompt_must_pay_within_the_request():
    made = planner(World(CPU, CPU_DRAFT), CPU, CPU_DRAFT)
    tree = MergedTree(made.calibration, 0)
    made.begin_round(remaining=200)
    assert made.next_width(DRAFT, tree, [0], catch_up_s=0.1) >= 1
    made.begin_round(remaining=5)
    assert made.next_width(DRAFT, tree, [0], catch_up_s=0.1) == 0
    made.begin_round(remaining=200)
    assert made.next_width(DRAFT, tree, [0], catch_up_s=1.0) == 0  # more than may be lost


def lookup_round(made: Planner, stated: float, right: bool) -> bool:
    made.begin_round()
    tree = MergedTree(made.calibration, 0)
    wanted = made.wants(LOOKUP)
    proposal = Proposal(LOOKUP, TokenTree.from_chain(0, [1], [log(stated)], LOOKUP))
    if wanted:
        made.spend(LOOKUP, 1, 1e-4)
        tree.update(proposal)
    size = made.choose_size(tree)
    decided = [1, 2] if right and size > 1 else [1] if right else [3]
    matched = {LOOKUP: made.calibration.learn(proposal, decided)} if wanted else {}
    made.verified(len(decided), size, CPU[size], matched)
    return wanted


def test_a_lookup_is_switched_off_and_comes_back():
    made = Planner(CostTable(CPU), Calibration())
    made.add_lookup(LOOKUP, 1e-4)
    asked = [lookup_round(made, 0.6, right=False) for _ in range(300)]
    assert all(asked[:3])
    assert 0 < sum(asked[100:]) < 80
    asked = [lookup_round(made, 0.6, right=True) for _ in range(80)]
    assert all(asked[-20:])
    assert made.explain()["speedup"] > 1.5


def test_rest_lasts_until_a_probe_can_be_paid_for():
    made = Planner(CostTable({1: 10.0, 8: 11.0}), Calibration(), overhead_s=0.0)
    made.add_lookup(LOOKUP, 0.3)
    made.begin_round()
    made.wants(LOOKUP)
    made.verified(1, 1, 10.0)
    assert made.rest({}) == 0  # it may pay: it has hardly been tried
    for _ in range(200):
        made.begin_round()
        made.wants(LOOKUP)
        made.verified(1, 1, 10.0)
    made.begin_round()
    while made.wants(LOOKUP):
        made.verified(1, 1, 10.0)
        made.begin_round()
    made.verified(1, 1, 10.0)
    rounds = made.rest({})
    assert 5 <= rounds <= 10
    made.rested(rounds, rounds * 10.0)
    made.begin_round()
    made.begin_round()
    assert made.wants(LOOKUP)
    assert made.explain()["rounds"]["plain"] >= rounds


def test_async_plans():
    made = planner(World(GPU, GPU_DRAFT), GPU, GPU_DRAFT)
    made.begin_round()
    plan = made.async_plan(DRAFT)
    assert plan is not None
    assert plan.width == 8  # 8 rows take a draft 5 % longer than one, 16 rows 20 %
    assert plan.size >= 8
    assert 1 <= plan.just_in_time <= 8
    assert GPU_DRAFT[8] < plan.deadline_s < GPU[1]
    assert plan.steps in (8, 9)


def async_round(made: Planner, *, arrives: bool, right: bool) -> bool:
    """The target waits for at most a draft step; whether it asked for a tree."""
    made.begin_round()
    plan = made.async_plan(DRAFT)
    tree = MergedTree(made.calibration, 0)
    proposal = Proposal(DRAFT, TokenTree.from_chain(0, [1, 2], [log(0.8)] * 2, DRAFT))
    if plan is not None:
        made.waited(DRAFT, min(plan.deadline_s, CPU_DRAFT[1]) if arrives else plan.deadline_s)
        if arrives:
            tree.update(proposal)
    size = made.choose_size(tree)
    decided = [1, 2, 3][:size] if right else [9]
    matched = made.calibration.learn(proposal, decided) if plan and arrives else 0
    made.verified(len(decided), size, made.target(size), {DRAFT: matched})
    return plan is not None


@pytest.mark.parametrize(("arrives", "right"), [(False, True), (True, False)])
def test_an_async_draft_that_does_not_help_is_left_alone(arrives, right):
    made = planner(World(CPU, CPU_DRAFT), CPU, CPU_DRAFT)
    asked = [async_round(made, arrives=arrives, right=right) for _ in range(400)]
    assert asked[0]
    assert 0 < sum(asked[100:]) < 30
    asked = [async_round(made, arrives=True, right=True) for _ in range(200)]
    assert all(asked[-40:])
    assert made.explain()["speedup"] > 2


def test_a_draft_that_does_not_pay_need_not_read_prompts():
    made = planner(World(CPU, CPU_DRAFT), CPU, CPU_DRAFT)
    made.begin_round()
    assert made.pays(DRAFT)
    for _ in range(60):
        made.calibration.learn(Proposal(DRAFT, TokenTree.from_chain(0, [1], [log(0.9)])), [2])
    assert not made.pays(DRAFT)


def test_a_useless_lookup_beside_a_good_draft_is_switched_off():
    made = planner(World(CPU, CPU_DRAFT), CPU, CPU_DRAFT)
    made.add_lookup(LOOKUP, 1e-4)
    draft = Proposal(DRAFT, TokenTree.from_chain(0, [1, 2], [log(0.9)] * 2, DRAFT))
    lookup = Proposal(LOOKUP, TokenTree.from_chain(0, [7], [log(0.5)], LOOKUP))
    asked = 0
    for i in range(200):
        made.begin_round()
        tree = MergedTree(made.calibration, 0)
        proposals = [draft, lookup] if made.wants(LOOKUP) else [draft]
        asked += i >= 50 and len(proposals) == 2
        made.spend(LOOKUP, 1, 1e-4 * (len(proposals) - 1))
        for proposal in proposals:
            tree.update(proposal)
        size = made.choose_size(tree)
        matched = {p.source: made.calibration.learn(p, [1, 2, 3]) for p in proposals}
        made.verified(3, size, CPU.get(size, 0.012), matched)
    assert asked < 75


def test_explain_is_plain_data():
    import msgspec

    world = World(CPU, CPU_DRAFT)
    made = planner(world, CPU, CPU_DRAFT)
    world.planned(PROFILES["good"], prompts(1), 32, made)
    told = msgspec.json.decode(msgspec.json.encode(made.explain()))
    assert told["speedup"] > 1.2
    assert told["rounds"]["speculative"] > 0
    assert told["sources"][str(DRAFT)]["kind"] == "draft"


def test_d_is_the_quotient_or_one_more():
    chooser = Expansions()
    seen = []
    for _ in range(400):
        d = chooser.steps(10.4, 2.0, 16)
        seen.append(d)
        chooser.observe(3 if d == 6 else 2, 10.0)
    assert set(seen[:33]) == {5, 6}
    assert seen[40:250] == [6] * 210
    assert chooser.rates == pytest.approx([0.2, 0.3])
    assert chooser.steps(10.0, 0.1, 16) == 16
    assert chooser.rates == [None, None]
    assert chooser.steps(1.0, 5.0, 16) == 0
