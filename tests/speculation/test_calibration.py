"""What confidence is worth: learned frequencies, recent form, no bias by what was verified."""

import random
from math import log

import pytest

from swiftspec_daemon.speculation.calibration import Calibration, Proposal, stated_bucket
from swiftspec_daemon.speculation.tree import TokenTree

DRAFT, OTHER = 1, 2


def chain(*stated: float, root: int = 0) -> TokenTree:
    """Tokens 1, 2, ... with these probabilities."""
    return TokenTree.from_chain(root, range(1, len(stated) + 1), list(map(log, stated)))


def test_it_begins_with_what_the_source_says():
    calibration = Calibration()
    for stated in (0.9, 0.4, 0.03):
        bucket = stated_bucket(log(stated))
        assert calibration.estimate(DRAFT, bucket, 1, log(stated)) == pytest.approx(stated)


def test_buckets_grow_with_the_probability():
    probabilities = [
        0.001,
        0.015,
        0.03,
        0.07,
        0.15,
        0.3,
        0.4,
        0.6,
        0.7,
        0.85,
        0.93,
        0.96,
        0.99,
        1.0,
    ]
    buckets = [stated_bucket(log(p)) for p in probabilities]
    assert buckets == list(range(14))


@pytest.mark.parametrize("right", [0.05, 0.5, 0.9])
def test_estimates_become_frequencies(right):
    """A draft that says 0.7 and is right as often as `right`."""
    calibration, rng = Calibration(), random.Random(1)
    estimates = []
    for i in range(600):
        proposal = Proposal(DRAFT, chain(0.7))
        calibration.learn(proposal, [1 if rng.random() < right else 9])
        if i >= 100:
            estimates.append(calibration.estimate(DRAFT, stated_bucket(log(0.7)), 1, log(0.7)))
    assert sum(estimates) / len(estimates) == pytest.approx(right, abs=0.05)


def test_confidence_and_depth_are_told_apart():
    calibration, rng = Calibration(), random.Random(2)
    total = [0.0] * 4
    for i in range(1000):
        sure = rng.random() < 0.5
        first = rng.random() < (0.9 if sure else 0.3)
        second = rng.random() < (0.5 if sure else 0.1)
        stated = (0.85, 0.85) if sure else (0.4, 0.4)
        calibration.learn(Proposal(DRAFT, chain(*stated)), [1 if first else 9, 2 if second else 9])
        for j, (p, depth) in enumerate([(0.85, 1), (0.85, 2), (0.4, 1), (0.4, 2)]):
            if i >= 200:
                total[j] += calibration.estimate(DRAFT, stated_bucket(log(p)), depth, log(p)) / 800
    assert total == pytest.approx([0.9, 0.5, 0.3, 0.1], abs=0.08)
    assert calibration.estimate(OTHER, stated_bucket(log(0.4)), 1, log(0.4)) == pytest.approx(0.4)


def test_given_buckets_are_used_for_lookups():
    calibration = Calibration()
    for _ in range(50):
        calibration.learn(Proposal(OTHER, chain(0.5, 0.5), [0, 3, 4]), [1, 9])
    assert calibration.estimate(OTHER, 3, 1, log(0.5)) > 0.9
    assert calibration.estimate(OTHER, 4, 2, log(0.5)) < 0.1


def test_all_children_of_verified_nodes_are_judged_and_no_others():
    calibration = Calibration()
    tree = TokenTree(0)
    best = tree.add(0, 5, log(0.6))
    second = tree.add(0, 6, log(0.2))
    tree.add(best, 7, log(0.9))
    tree.add(second, 8, log(0.9))
    assert calibration.learn(Proposal(DRAFT, tree), [6, 8, 3]) == 2
    seen = {key: pair[1] for key, pair in calibration._source(DRAFT).buckets.items()}
    assert seen == {
        stated_bucket(log(0.6)): 1,
        stated_bucket(log(0.2)): 1,
        stated_bucket(log(0.9)): 1,
    }


def test_how_much_was_foreseen():
    calibration = Calibration()
    proposal = Proposal(DRAFT, chain(0.9, 0.9, 0.9))
    assert calibration.learn(proposal, [1, 2, 9]) == 2
    assert calibration.learn(proposal, [9]) == 0
    assert calibration.learn(proposal, [1, 2, 3, 4]) == 3
    assert calibration.learn(proposal, [1, 2]) == 2
    assert calibration.learn(Proposal(DRAFT, TokenTree(0)), [1]) == 0
    assert calibration.learn(proposal, []) == 0


def test_a_draft_that_turns_bad_is_noticed_in_a_few_rounds_and_forgiven_as_soon():
    calibration = Calibration()
    bucket = stated_bucket(log(0.9))

    def rounds_until(decided: int, done) -> int:
        for count in range(1, 100):
            calibration.learn(Proposal(DRAFT, chain(0.9)), [decided])
            if done(calibration.estimate(DRAFT, bucket, 1, log(0.9))):
                return count
        return 100

    for _ in range(400):
        calibration.learn(Proposal(DRAFT, chain(0.9)), [1])
    assert rounds_until(9, lambda p: p < 0.2) <= 25
    for _ in range(400):
        calibration.learn(Proposal(DRAFT, chain(0.9)), [9])
    assert rounds_until(1, lambda p: p > 0.5) <= 25


def test_acceptance_by_rank_ahead_of_a_draft():
    calibration, rng = Calibration(), random.Random(3)
    for _ in range(400):
        tree = TokenTree(0)
        for token, p in ((5, 0.5), (6, 0.3), (7, 0.1)):
            tree.add(0, token, log(p))
        calibration.learn(Proposal(DRAFT, tree), rng.choices([5, 6, 7, 9], [0.6, 0.2, 0.1, 0.1]))
    assert calibration.ahead(DRAFT, 1)[:3] == pytest.approx([0.6, 0.2, 0.1], abs=0.12)
    assert sum(calibration.ahead(DRAFT, 1)) <= 1.0001


def test_snapshot_is_plain():
    calibration = Calibration()
    calibration.learn(Proposal(DRAFT, chain(0.9)), [1])
    snapshot = calibration.snapshot()
    assert list(snapshot) == [DRAFT]
    assert snapshot[DRAFT]["form"] > 0
    assert len(snapshot[DRAFT]["acceptance"]) == 5
