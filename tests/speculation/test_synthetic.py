"""Synthetic drafts agree as often as told, at every rank and depth, and keep a draft's contract."""

from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swiftspec_daemon.engine import toy
from swiftspec_daemon.speculation.drafter import TreeDrafter
from swiftspec_daemon.speculation.synthetic import (
    LABEL,
    Agreement,
    FreeState,
    HashTarget,
    RecordedTarget,
    SyntheticDraft,
    path_state,
)

FREE = FreeState()


def acceptance(draft: SyntheticDraft, target, depth: int, samples: int = 1500) -> list[float]:
    """Share of places where the proposal of each rank is the target's token, at `depth`, behind
    right tokens."""
    hits = [0] * 4
    for i in range(samples):
        draft.rewind(0)
        context = [i, 5]
        draft.extend(context, None)
        ranked = draft.extend([], FREE)
        for slot in range(-1, depth - 2):
            token = target(context)
            context.append(token)
            [ranked] = draft.grow([token], [slot], [FREE])
        token = target(context)
        if token in ranked[0]:
            hits[ranked[0].index(token)] += 1
    return [count / samples for count in hits]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_agreement_by_position_and_rank(depth):
    agreement = Agreement.by_position([0.8, 0.5], [0.5, 0.2])
    draft = SyntheticDraft(agreement, HashTarget(seed=3), seed=1)
    found = acceptance(draft, HashTarget(seed=3), depth)
    best = 0.8 if depth == 1 else 0.5
    expected = [best, (1 - best) * 0.5, (1 - best) * 0.2, 0.0]
    assert found == pytest.approx(expected, abs=0.04)


def test_spread_keeps_the_mean_and_is_honest():
    target = HashTarget()
    draft = SyntheticDraft(Agreement.by_position([0.6], [0.3], spread=1.0), target)
    by_claim: dict[bool, list[int]] = {True: [], False: []}
    for i in range(3000):
        draft.rewind(0)
        tokens, log_probs = draft.extend([i], FREE)
        claims = dict(zip(tokens, log_probs, strict=True))
        right = claims.get(target([i]), -99.0)
        best = max(log_probs)
        by_claim[exp(best) > 0.6].append(right == best)
    rates = {sure: sum(hits) / len(hits) for sure, hits in by_claim.items()}
    assert rates[True] > rates[False] + 0.2
    assert sum(map(sum, by_claim.values())) / 3000 == pytest.approx(0.65, abs=0.08)


def test_perfect_adversarial_and_random():
    target = HashTarget(vocab=50)
    for agreement, low, high in (
        (Agreement.perfect(), 1.0, 1.0),
        (Agreement.adversarial(), 0.0, 0.0),
        (Agreement.random(50), 0.04, 0.12),
    ):
        draft = SyntheticDraft(agreement, target, vocab=50)
        found = sum(acceptance(draft, target, 1, 1000))
        assert low <= found <= high
    tokens, log_probs = SyntheticDraft(Agreement.adversarial(0.9)).extend([1], FREE)
    assert exp(log_probs[0]) == pytest.approx(0.9)
    assert len(set(tokens)) == len(tokens) == 4


@given(st.lists(st.integers(0, 99), min_size=1, max_size=12), st.integers(0, 12))
def test_a_path_decides_however_it_came_to_be(path, committed):
    """Committed, pending, re-rooted or computed anew: the same proposals for the same depth."""
    agreement = Agreement.by_position([0.5], [0.5])
    plain = SyntheticDraft(agreement)
    expected = plain.extend(path, FREE)
    draft = SyntheticDraft(agreement)
    draft.extend(path[:committed], None)
    rest = path[committed:]
    if rest:
        ranked = draft.grow(rest, range(-1, len(rest) - 1), [FREE] * len(rest))[-1]
        assert ranked == expected
        draft.reroot(range(len(rest)), [])
    assert draft.held() == path
    draft.rewind(len(path) - 1)
    assert draft.extend(path[-1:], FREE) == expected


def test_reroot_keeps_the_surviving_slots():
    draft = SyntheticDraft(Agreement.perfect())
    draft.extend([1], None)
    draft.grow([2, 3, 4, 5], [-1, 0, 0, 2], [FREE] * 4)
    draft.reroot([0], [2, 3])
    [ranked] = draft.grow([6], [1], [FREE])
    fresh = SyntheticDraft(Agreement.perfect())
    assert ranked == fresh.extend([1, 2, 4, 5, 6], FREE)


def toy_target():
    """The toy model's own choice, greedy."""
    backend = toy.load(toy.parse("toy:"), lambda *_: None)

    def decide(tokens):
        cache = backend.new_cache(len(tokens))
        return int(backend.append(cache, tokens, logits=True).argmax())

    return decide


def test_agrees_with_a_real_target_through_a_drafter():
    target = toy_target()
    drafter = TreeDrafter(
        SyntheticDraft(Agreement.perfect(), target, vocab=300),
        width=1,
        branching=1,
        max_depth=6,
        max_nodes=7,
    )
    context = toy.encode(b"hello")
    drafter.begin(context, FREE)
    while drafter.step():
        pass
    expected = list(context)
    for _ in range(6):
        expected.append(target(expected))
    assert drafter.tree.tokens == expected[len(context) - 1 :]


def test_recorded_targets():
    record = [5, 6, 7, 8]
    target = RecordedTarget(record, vocab=10)
    assert [target(record[:n]) for n in (1, 2, 3)] == [6, 7, 8]
    for elsewhere in ([5, 7], record, [*record, 1]):
        assert 0 <= target(elsewhere) < 10
    draft = SyntheticDraft(Agreement.perfect(), target, vocab=10)
    assert draft.extend([5, 6], FREE)[0][0] == 7


def test_seeds_differ_and_repeat():
    agreement = Agreement.by_position([0.5])
    first, again, other = (
        [SyntheticDraft(agreement, seed=seed).extend([i], FREE)[0][0] for i in range(50)]
        for seed in (1, 1, 2)
    )
    assert first == again != other
    assert HashTarget(seed=1)([1]) == HashTarget(seed=1).behind(path_state([1]))
    assert [HashTarget(seed=1)([i]) for i in range(9)] != [
        HashTarget(seed=2)([i]) for i in range(9)
    ]


def test_it_says_what_it_is():
    assert SyntheticDraft(Agreement.perfect()).label == LABEL == "synthetic"
    draft = SyntheticDraft(Agreement.perfect())
    draft.extend([1, 2, 3], FREE)
    draft.grow([4, 5], [-1, -1], [FREE, FREE])
    assert draft.forwards == [3, 2]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Agreement(()),
        lambda: Agreement(((),)),
        lambda: Agreement(((0.7, 0.6),)),
        lambda: Agreement(((-0.1,),)),
        lambda: Agreement(((0.5,),), spread=2),
        lambda: Agreement(((0.5,),), stated=0.0),
        lambda: SyntheticDraft(Agreement.perfect(), vocab=4, branching=4),
    ],
)
def test_impossible_profiles_are_refused(make):
    with pytest.raises(ValueError):
        make()
