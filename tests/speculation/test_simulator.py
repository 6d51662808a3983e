"""The simulator's arithmetic: where the answer is known without simulating, it is that one."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swiftspec_daemon.speculation.simulator import (
    Hardware,
    Strategy,
    simulate_async,
    simulate_plain,
    simulate_serial,
)
from swiftspec_daemon.speculation.synthetic import Agreement

TARGET, DRAFT, OVERHEAD, HOP = 10e-3, 2e-3, 0.5e-3, 0.25e-3
FLAT = Hardware(lambda rows: TARGET, lambda rows: DRAFT)
FULL = Hardware(lambda rows: TARGET, lambda rows: DRAFT, OVERHEAD, HOP)
USELESS = Agreement.adversarial()
FAIR = Agreement.by_position([0.7], [0.3, 0.2], spread=0.5)
WAYS = (simulate_serial, simulate_async)


def test_plain_is_a_pass_and_the_overhead_for_each_token():
    outcome = simulate_plain(FULL, 40)
    assert (outcome.tokens, outcome.rounds, outcome.drafts) == (40, 40, 0)
    assert outcome.seconds == pytest.approx(40 * (TARGET + OVERHEAD))


def test_a_perfect_serial_draft_gives_its_depth_and_one_more_in_each_round():
    outcome = simulate_serial(FULL, Agreement.perfect(), Strategy(5, 1, 4, branching=1), 100)
    assert outcome.by_length == {5: 20}
    assert outcome.seconds == pytest.approx(20 * (4 * DRAFT + TARGET + OVERHEAD))
    assert outcome.target_waits == pytest.approx(20 * 4 * DRAFT)


def test_a_perfect_draft_that_keeps_up_makes_every_round_full():
    """In one target pass (10 ms) it makes the five levels that a round uses up. After the first
    tree (four levels) nobody waits for drafts, and a round costs the target's pass alone."""
    strategy = Strategy(5, 1, 5, branching=1)
    outcome = simulate_async(FLAT, Agreement.perfect(), strategy, 100)
    assert outcome.by_length == {5: 20}
    assert outcome.target_waits == pytest.approx(4 * DRAFT)
    assert outcome.seconds == pytest.approx(4 * DRAFT + 20 * TARGET)


@pytest.mark.parametrize("way", WAYS)
def test_a_useless_draft_gives_one_token_a_round(way):
    outcome = way(FULL, USELESS, Strategy(8, 8, 3), 50)
    assert outcome.by_length == {1: 50}
    assert outcome.fall_ins == 0
    assert outcome.seconds > simulate_plain(FULL, 50).seconds


def test_a_useless_draft_that_nobody_waits_for_costs_nothing():
    strategy = Strategy(8, 8, 3, patience=0.0)
    outcome = simulate_async(FULL, USELESS, strategy, 50)
    assert outcome.seconds == pytest.approx(simulate_plain(FULL, 50).seconds)
    assert outcome.target_waits == 0


def test_serial_without_steps_is_plain():
    outcome = simulate_serial(FULL, FAIR, Strategy(8, 8, 0), 50)
    assert outcome.seconds == pytest.approx(simulate_plain(FULL, 50).seconds)


def test_an_asynchronous_draft_with_enough_to_do_is_never_idle():
    outcome = simulate_async(FLAT, FAIR, Strategy(8, 4, 64), 300)
    assert outcome.draft_waits == 0
    # It never stops in between, so that its passes fill the time but for the last, unfinished one.
    assert outcome.drafts * DRAFT == pytest.approx(outcome.seconds, abs=TARGET + DRAFT)


@settings(max_examples=30)
@given(
    st.floats(0.0, 1.0),
    st.integers(2, 12),
    st.integers(1, 8),
    st.integers(1, 6),
    st.integers(0, 3),
)
def test_no_time_is_lost_or_made(right: float, size: int, width: int, steps: int, seed: int):
    draft = Agreement.by_position([right], [0.3])
    strategy = Strategy(size, width, steps)
    serial = simulate_serial(FULL, draft, strategy, 40, seed)
    rounds_s = serial.rounds * (TARGET + OVERHEAD)
    assert serial.seconds == pytest.approx(rounds_s + serial.drafts * DRAFT)
    assert serial.target_waits == pytest.approx(serial.drafts * DRAFT)
    parallel = simulate_async(FULL, draft, strategy, 40, seed)
    busy = parallel.rounds * (TARGET + OVERHEAD)
    assert parallel.seconds == pytest.approx(busy + parallel.target_waits)
    assert parallel.draft_waits + parallel.drafts * DRAFT <= parallel.seconds + DRAFT * (steps + 1)
    for outcome in (serial, parallel):
        assert sum(outcome.by_length.values()) == outcome.rounds
        assert sum(n * count for n, count in outcome.by_length.items()) == outcome.tokens
        assert 40 <= outcome.tokens < 40 + size + 1
        assert max(outcome.by_length) <= size


@pytest.mark.parametrize("way", WAYS)
def test_the_same_again_is_the_same(way):
    first, second = (way(FULL, FAIR, Strategy(8, 4, 3), 200, seed=5) for _ in range(2))
    assert first == second
    assert way(FULL, FAIR, Strategy(8, 4, 3), 200, seed=6) != first


@pytest.mark.parametrize("right", [0.3, 0.6, 0.9])
def test_a_serial_chain_is_accepted_as_the_formula_says(right: float):
    """Leviathan et al. (arXiv 2211.17192, equation 1): (1 - a^(d+1)) / (1 - a) tokens a round."""
    agreement, steps = Agreement.by_position([right]), 4
    strategy = Strategy(steps + 1, 1, steps, branching=1)
    outcome = simulate_serial(FLAT, agreement, strategy, 6000)
    expected = (1 - right ** (steps + 1)) / (1 - right)
    # Rounds are independent; the standard error is below 2.1 / sqrt(rounds).
    assert outcome.tokens_per_round == pytest.approx(
        expected, abs=4 * 2.1 / math.sqrt(outcome.rounds)
    )


def test_longer_messages_cost_the_target_time():
    near = simulate_async(FLAT, FAIR, Strategy(8, 4, 3), 200)
    far = simulate_async(Hardware(FLAT.target, FLAT.draft, hop=2e-3), FAIR, Strategy(8, 4, 3), 200)
    assert far.target_waits > near.target_waits
    assert far.tokens_per_second < near.tokens_per_second


def test_working_ahead_costs_acceptance():
    """With as many passes a round, a tree that was grown before the outcome was known is worse:
    part of what it holds is about what did not happen."""
    serial, parallel = (way(FLAT, FAIR, Strategy(8, 8, 4), 800) for way in WAYS)
    assert parallel.tokens_per_round < serial.tokens_per_round
    assert parallel.seconds < serial.seconds
