"""Decode states: what a point of the text does to the next token, on both sides of a draft."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swiftspec_daemon.errors import EngineError
from swiftspec_daemon.speculation.constraint import TokenTable
from swiftspec_daemon.speculation.decoding import DecodeRules
from swiftspec_daemon.speculation.noise import gumbel
from swiftspec_daemon.speculation.sampling import SamplingParameters, log_total, pick

END, SPECIAL = 0, 1
TEXTS = [b"", b"", b"a", b"b", b"ab", b"abc", b"c", "é".encode()[:1], "é".encode()[1:], b"ba"]
LIMIT, ROWS = len(TEXTS), len(TEXTS) + 4
TABLE = TokenTable([*TEXTS, *[b""] * 4], excluded=[END])
SAMPLED = SamplingParameters(temperature=0.9, seed=3)


def rules(**fields):
    return DecodeRules(**{"table": TABLE, "limit": LIMIT, "ends": frozenset({END})} | fields)


def logits(seed, rows=ROWS):
    return (np.random.default_rng(seed).normal(size=rows) * 2).astype(np.float32)


def favouring(token):
    row = np.zeros(ROWS, dtype=np.float32)
    row[token] = 50
    return row


def facts(state):
    """A state as a value."""
    seen = None if state.seen is None else sorted(state.seen.tolist())
    return (state.position, state.room, state.constraint.rest, state.stops, seen)


parameters = st.builds(
    SamplingParameters,
    temperature=st.sampled_from([0.0, 0.0, 0.6, 2.0]),
    top_k=st.sampled_from([0, 0, 3]),
    top_p=st.sampled_from([1.0, 0.8]),
    seed=st.integers(0, 5),
    min_p=st.sampled_from([0.0, 0.0, 0.1]),
    repetition_penalty=st.sampled_from([1.0, 1.0, 1.5, 0.8]),
    logit_bias=st.dictionaries(st.integers(0, LIMIT - 1), st.floats(-5, 5), max_size=3),
)
all_rules = st.builds(
    rules,
    ends=st.sampled_from([frozenset({END}), frozenset({END, 3}), frozenset()]),
    sampling=parameters,
    required=st.sampled_from([b"", b"", b"ab", b"abca", "é".encode(), b"z", b"az"]),
    stops=st.sampled_from([(), (b"ca",), (b"bb", b"abab"), ("é".encode(),)]),
    logprobs=st.sampled_from([0, 0, 3]),
)


# --- the target's side --------------------------------------------------------------------------


@given(all_rules, st.integers(0, 10**6), st.integers(1, 8))
def test_what_is_decided_may_be_proposed_and_leads_to_the_same_state(rules_, seed, room):
    state = rules_.begin([4, 2, 4], room)
    for step in range(room):
        decision = state.decide(logits([seed, step]))
        after = state.after(decision.token)
        assert (after is None) == (decision.state_after is None) == (decision.finish is not None)
        assert decision.emit or decision.finish == "stop"
        if after is None:
            return
        assert facts(after) == facts(decision.state_after)
        assert facts(state.follow([decision.token])) == facts(after)
        state = after
    raise AssertionError("more tokens than there was room for")


@given(all_rules, st.integers(0, 10**6))
def test_padding_of_the_head_is_never_picked_and_changes_nothing(rules_, seed):
    row = logits(seed, LIMIT)
    padded = np.concatenate([row, np.full(4, 90, dtype=np.float32)])
    state = rules_.begin([2, 3], 5)
    assert state.decide(padded)[0] == state.decide(row)[0]
    assert state.decide(padded).logprobs == state.decide(row).logprobs
    assert state.rank(padded, 4) == state.rank(row, 4)
    assert max(state.rank(padded, 99)[0], default=0) < LIMIT
    assert state.after(LIMIT) is None
    assert state.after(-1) is None


def test_ends_are_not_part_of_the_text():
    decision = rules().begin([2], 9).decide(favouring(END))
    assert decision == (END, None, "stop", False, None)
    assert rules().begin([2], 9).after(END) is None


def test_the_token_that_completes_a_stop_string_is_part_of_the_text():
    state = rules(stops=(b"abc",)).begin([2], 9).after(4)
    assert state is not None
    assert state.decide(favouring(6)) == (6, None, "stop", True, None)
    assert state.after(6) is None
    assert state.after(5) is None  # "ab" + "abc"
    assert state.after(4) is not None


def test_length_ends_the_text_behind_the_last_token():
    state = rules().begin([2], 1)
    assert state.decide(favouring(3)) == (3, None, "length", True, None)
    assert state.after(3) is None


def test_a_stop_string_and_the_length_at_once_is_stop():
    assert rules(stops=(b"b",)).begin([2], 1).decide(favouring(3)).finish == "stop"


def test_required_bytes_mask_target_and_proposals():
    state = rules(required=b"abca").begin([2], 9)
    assert state.decide(favouring(3)).token in (2, 4, 5)
    assert [token for token in range(ROWS) if state.after(token)] == [2, 4, 5]
    assert state.after(5).constraint.rest == b"a"
    assert state.follow([5, 4]).constraint.rest == b""  # the last token overruns
    assert state.follow([5, 4, 3]) is not None


def test_an_end_inside_the_required_bytes_is_text():
    state = rules(required=b"ab", ends=frozenset({2})).begin([2], 9)
    assert state.after(2) is not None
    assert state.after(2).after(2) is None


def test_required_bytes_that_no_token_fits_are_given_up():
    state = rules(required=b"az", stops=(b"ab",)).begin([2], 9).after(2)
    assert state.constraint.rest == b"z"
    assert state.after(3) is not None  # "a" was inside the required bytes: no stop
    assert state.decide(favouring(4)).finish == "stop"
    assert state.after(END) is None


def test_stop_strings_begin_behind_the_required_bytes():
    state = rules(required=b"ab", stops=(b"b",)).begin([2], 9).follow([2, 3])
    assert state.decide(favouring(3)).finish == "stop"


def test_a_character_may_be_split_between_tokens():
    state = rules(stops=("é".encode(),)).begin([2], 9).after(7)
    assert state.decide(favouring(8)).finish == "stop"
    state = rules(required="é".encode()).begin([2], 9)
    assert [token for token in range(ROWS) if state.after(token)] == [7]
    assert state.follow([7, 8]).constraint.rest == b""


def test_the_penalty_sees_the_nodes_own_history():
    penalised = rules(sampling=SamplingParameters(repetition_penalty=2.0))
    root = penalised.begin([SPECIAL], 9)
    row = np.zeros(ROWS, dtype=np.float32)
    row[2], row[3] = 4.0, 3.0
    assert root.decide(row).token == 2
    assert root.after(2).decide(row).token == 3
    assert root.after(6).decide(row).token == 2
    assert root.follow([2, 3]).decide(row).token == 2  # 4 / 2 against 3 / 2
    assert penalised.begin([2], 9).decide(row).token == 3


@given(st.lists(st.integers(0, LIMIT - 1), min_size=1), st.lists(st.integers(2, 9), max_size=6))
def test_history_is_prompt_and_new_text(prompt, new):
    free = rules(sampling=SamplingParameters(repetition_penalty=2.0), ends=frozenset())
    state = free.begin(prompt, 99).follow(new)
    assert sorted(state.seen.tolist()) == sorted({*prompt, *new})
    assert state.position == len(prompt) + len(new)


def test_numbers_that_are_none_are_an_error_on_both_sides():
    for sampling in (SamplingParameters(), SAMPLED, SamplingParameters(repetition_penalty=2)):
        state = rules(sampling=sampling).begin([2], 5)
        row = logits(1)
        row[4] = np.nan
        for ask in (state.decide, state.probabilities, lambda r, s=state: s.rank(r, 3)):
            with pytest.raises(EngineError, match="no valid numbers"):
                ask(row)


# --- log-probabilities --------------------------------------------------------------------------


@given(all_rules, st.integers(0, 10**6))
def test_log_probabilities_are_of_what_was_picked_from(rules_, seed):
    rules_ = replace(rules_, logprobs=LIMIT)
    state, row = rules_.begin([2, 3], 5), logits(seed)
    token, _, _, emit, found = state.decide(row)
    if not emit:
        assert found is None
        return
    if rules_.sampling.greedy:  # of the softmax at temperature 1
        state = replace(
            state, rules=replace(rules_, sampling=replace(rules_.sampling, temperature=1.0,
                                                          top_k=0, top_p=1.0, min_p=0.0))
        )  # fmt: skip
    p = state.probabilities(row)
    assert abs(sum(map(math.exp, found.top_log_probs)) - 1) < 1e-6
    assert found.log_prob == pytest.approx(math.log(p[token]), abs=1e-5)
    assert found.top_log_probs == sorted(found.top_log_probs, reverse=True)
    assert sorted(found.top_ids) == np.flatnonzero(p > 0).tolist()
    for i, value in zip(found.top_ids, found.top_log_probs, strict=True):
        assert value == pytest.approx(math.log(p[i]), abs=1e-5)


def test_so_many_of_the_most_probable():
    state = rules(logprobs=2).begin([2], 5)
    row = np.zeros(LIMIT, dtype=np.float32)
    row[[3, 5]] = 1, 2
    found = state.decide(row).logprobs
    assert found.top_ids == [5, 3]
    assert found.log_prob == found.top_log_probs[0]
    assert math.exp(found.log_prob) == pytest.approx(np.exp(2) / np.exp(row).sum())


# --- the draft's side ---------------------------------------------------------------------------


@given(all_rules, st.integers(0, 10**6), st.integers(1, 5))
def test_a_draft_with_the_targets_logits_ranks_the_targets_token_first(rules_, seed, k):
    """The coupling: the draft knows the noise, so a perfect draft is never wrong."""
    state, row = rules_.begin([2, 3], 5), logits(seed)
    decision = state.decide(row)
    tokens, confidences = state.rank(row, k)
    assert len(tokens) == len(confidences) <= k
    assert len(set(tokens)) == len(tokens)
    if decision.emit:
        assert tokens[0] == decision.token
        assert all(value <= 1e-6 for value in confidences)
        assert confidences == sorted(confidences, reverse=True)
    else:
        assert decision.token not in tokens


@given(all_rules, st.integers(0, 10**6), st.integers(1, 20), st.permutations(range(LIMIT)))
@settings(max_examples=200)
def test_a_trimmed_head_is_a_row_without_the_other_tokens(rules_, seed, k, order):
    row = logits(seed, LIMIT)
    ids = np.array(order[: 1 + seed % LIMIT])
    state = rules_.begin([2, 3], 5)
    full = np.full(LIMIT, -np.inf, dtype=np.float32)
    full[ids] = row[ids]
    tokens, _ = state.rank(row[ids], k, ids)
    expected, _ = state.rank(full, k)
    assert tokens == [token for token in expected if token in ids]
    assert set(tokens) <= set(ids.tolist())


def test_plain_greedy_ranks_by_the_function_that_is_given():
    asked = []

    def top_k(row, k):
        asked.append((len(row), k))
        return [5, END, 3], [-0.1, -0.2, -0.3]

    assert rules().begin([2], 5).rank(logits(1), 3, None, top_k) == ([5, 3], [-0.1, -0.3])
    assert rules(sampling=SAMPLED).begin([2], 5).rank(logits(1), 3, None, top_k)[0] != [5, 3]
    ids = np.arange(20, 30)
    ids[3] = 7
    assert rules().begin([2], 5).rank(logits(1, 10), 3, ids, top_k) == ([7], [-0.3])
    assert asked == [(LIMIT, 3), (10, 3)]


@given(st.integers(0, 10**6), st.integers(1, 6))
def test_greedy_confidence_is_the_log_softmax(seed, k):
    row = logits(seed)
    tokens, confidences = rules(ends=frozenset()).begin([2], 5).rank(row, k)
    usable = row[:LIMIT].astype(np.float64)
    assert tokens == np.argsort(-usable, kind="stable")[:k].tolist()
    expected = usable[tokens] - log_total(usable)
    assert np.allclose(confidences, expected, atol=1e-5)


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(0, 1000))
def test_sampled_requests_are_ranked_with_the_noise(seed, k, position):
    state = replace(rules(ends=frozenset(), sampling=SAMPLED).begin([2], 5), position=position)
    row = logits(seed)
    sums = row[:LIMIT].astype(np.float64) / 0.9 + gumbel(3, position, np.arange(LIMIT))
    assert state.rank(row, k)[0] == np.argsort(-sums, kind="stable")[:k].tolist()
    assert state.decide(row).token == pick(row[:LIMIT], position, SAMPLED)
