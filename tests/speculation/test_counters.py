"""Counters: a round by hand, sums, plain data."""

from math import log

import msgspec
import pytest

from swiftspec_daemon.speculation.counters import SpeculationCounters
from swiftspec_daemon.speculation.tree import TokenTree

NAMES = {1: "ngram", 2: "draft"}


def tree() -> TokenTree:
    found = TokenTree(0)
    both = found.add(0, 5, log(0.9), 3)
    found.add(0, 6, log(0.1), 1)
    draft = found.add(both, 7, log(0.9), 2)
    found.add(draft, 8, log(0.9), 2)
    return found


def test_rounds_by_hand():
    counters = SpeculationCounters()
    counters.record(tree(), [5, 7], 3, NAMES)
    counters.record(tree(), [], 1, NAMES)
    counters.record(TokenTree(0), [], 1, NAMES)
    counters.record(tree(), [5, 7, 8], 4, NAMES)
    assert (counters.rounds, counters.plain_rounds, counters.tokens) == (4, 1, 9)
    assert (counters.proposed, counters.accepted) == (12, 5)
    assert counters.accepted_lengths == [2, 0, 1, 1]
    assert counters.tried_at == [3, 2, 2]
    assert counters.accepted_at == [2, 2, 1]
    assert counters.proposed_by == {"ngram": 6, "draft": 9}
    assert counters.accepted_by == {"ngram": 2, "draft": 5}
    assert counters.tokens_per_round == 9 / 4
    assert SpeculationCounters().tokens_per_round == 0


def test_sums():
    one, two = SpeculationCounters(), SpeculationCounters(target_s=0.5, fall_ins=2)
    one.record(tree(), [5, 7], 3, NAMES)
    two.record(tree(), [6], 2, {1: "ngram"})
    total = one + two
    assert total.accepted_lengths == [0, 1, 1]
    assert total.tried_at == [2, 1, 1]
    assert total.proposed_by == {"ngram": 4, "draft": 3}
    assert (total.rounds, total.target_s, total.fall_ins) == (2, 0.5, 2)
    assert total == two + one
    assert one + SpeculationCounters() == one
    assert one.accepted_lengths == [0, 0, 1]


def test_plain_data():
    counters = SpeculationCounters(draft_s=0.25)
    counters.record(tree(), [5], 2, NAMES)
    body = msgspec.msgpack.encode(counters)
    assert msgspec.msgpack.decode(body, type=SpeculationCounters) == counters


def test_a_token_that_was_not_proposed_cannot_be_accepted():
    with pytest.raises(ValueError):
        SpeculationCounters().record(tree(), [9], 1, NAMES)
