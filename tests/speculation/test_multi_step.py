"""Multi-step speculative sampling: lossless by exact enumeration, and where it would not be.

The code under test compares numbers with bounds; here the numbers are intervals that are cut at
these bounds (tests/support/enumeration.py), so every outcome's probability is an exact fraction.
"""

from collections import Counter
from fractions import Fraction
from functools import partial
from itertools import product

import numpy as np
import pytest
from enumeration import outcomes, total_variation

from swiftspec_daemon.speculation.constraint import TokenTable
from swiftspec_daemon.speculation.decoding import Decision, DecodeRules
from swiftspec_daemon.speculation.multi_step import (
    SampledTree,
    Streams,
    sample_tree,
    settle,
    walk_multi_step,
)
from swiftspec_daemon.speculation.sampling import SamplingParameters


def fractions(*weights):
    return np.array([Fraction(w, sum(weights)) for w in weights], dtype=object)


def as_distribution(p):
    return {token: weight for token, weight in enumerate(p) if weight}


PAIRS = {
    "similar": (fractions(5, 3, 2), fractions(4, 4, 2)),
    "opposed": (fractions(7, 2, 1, 0), fractions(1, 2, 7, 5)),
    "equal": (fractions(1, 2, 3), fractions(1, 2, 3)),
    "disjoint": (fractions(1, 1, 0, 0), fractions(0, 0, 2, 3)),
    "certain target": (fractions(0, 1, 0), fractions(3, 2, 5)),
    "certain draft": (fractions(2, 1, 3), fractions(0, 1, 0)),
}


def draw(q, number):
    reached = Fraction(0)
    for token, weight in enumerate(q):
        reached += weight
        if number < reached:
            return token
    raise AssertionError("a number above 1")


def settled(trace, p, q, children):
    """The token of the code under test, for these children."""
    return settle(
        p,
        q,
        children,
        lambda i: trace.uniform(("accept", i)),
        lambda: trace.uniform("residual"),
    ).token


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_independent_children_give_the_targets_distribution(name, count):
    p, q = PAIRS[name]

    def program(trace):
        children = [draw(q, trace.uniform(("draft", i))) for i in range(count)]
        return settled(trace, p, q, children)

    assert total_variation(outcomes(program), as_distribution(p)) == 0


def test_a_sample_that_matches_in_distribution_is_always_accepted():
    p, q = PAIRS["equal"]
    found = outcomes(
        lambda trace: (
            settle(
                p, q, [draw(q, trace.uniform("draft"))], trace.uniform, lambda: trace.uniform("own")
            ).draw
        )
    )
    assert found == {0: 1}


# --- wrong ways, which the enumeration must catch -----------------------------------------------


def top_k(trace, p, q):
    """Chosen children with the ratio test for sampled ones: SpecInfer's text allows it, and it is
    not lossless."""
    return settled(trace, p, q, sorted(range(len(q)), key=lambda token: -q[token])[:2])


def pruned(trace, p, q):
    """A sample dropped because the draft is not sure of it."""
    children = [draw(q, trace.uniform(("draft", i))) for i in range(2)]
    return settled(trace, p, q, [token for token in children if q[token] >= Fraction(3, 10)])


def no_repetitions(trace, p, q):
    children = [draw(q, trace.uniform(("draft", i))) for i in range(2)]
    return settled(trace, p, q, list(dict.fromkeys(children)))


def one_stream(trace, p, q):
    """The number that accepts is the one that the sample was drawn with."""
    child = draw(q, trace.uniform("same"))
    return settle(
        p, q, [child], lambda i: trace.uniform("same"), lambda: trace.uniform("own")
    ).token


@pytest.mark.parametrize("rule", [top_k, pruned, no_repetitions, one_stream])
def test_wrong_ways_are_caught(rule):
    p, q = PAIRS["opposed"]
    found = outcomes(lambda trace: rule(trace, p, q))
    assert total_variation(found, as_distribution(p)) > Fraction(1, 50)


def test_top_k_children_are_far_from_the_target():
    p = q = fractions(1, 1, 1, 1)  # a perfect draft: its first choice is always accepted
    found = outcomes(lambda trace: top_k(trace, p, q))
    assert total_variation(found, as_distribution(p)) == Fraction(3, 4)


def test_children_without_their_distribution_are_refused():
    with pytest.raises(ValueError, match="probabilities"):
        settle(fractions(1, 1), None, [0], lambda i: 0.5, lambda: 0.5)


# --- whole trees --------------------------------------------------------------------------------


class Language:
    """A distribution for each text, in fractions."""

    def __init__(self, name):
        self._name = name

    def __call__(self, text):
        weights = np.random.default_rng([self._name, *text]).integers(0, 5, 3).tolist()
        weights[sum(text) % 3] += 1
        return fractions(*weights)


class FractionState:
    """A `DecodeState` whose logits are probabilities."""

    def __init__(self, room):
        self.room = room

    def probabilities(self, row, ids=None):
        return row

    def after(self, token):
        return FractionState(self.room - 1) if self.room > 1 else None

    def take(self, token, row):
        after = self.after(token)
        return Decision(token, after, None if after else "length", True, None)


class TracedStreams:
    def __init__(self, trace, round_):
        self.draft = lambda node, draw: trace.uniform(("draft", round_, node, draw))
        self.accept = lambda node, draw: trace.uniform(("accept", round_, node, draw))
        self.residual = lambda node: trace.uniform(("residual", round_, node))


class TreeRows:
    def __init__(self, language, text, tree):
        self._language, self._text, self._tree = language, text, tree

    def __getitem__(self, node):
        below = []
        while node:
            below.append(self._tree.tokens[node])
            node = self._tree.parents[node]
        return self._language([*self._text, *reversed(below)])


def forward(language, text, tree, nodes):
    """The draft's forward pass."""
    rows = TreeRows(language, text, tree)
    return [rows[node] for node in nodes]


@pytest.mark.parametrize("configuration", [(), (1,), (1, 1), (2,), (2, 1)])
def test_whole_texts_by_trees_of_samples(configuration):
    target, draft, length = Language(1), Language(2), 2
    accepted = Counter()

    def program(trace):
        text, state = [1], FractionState(length)
        while True:
            streams = TracedStreams(trace, len(text))
            tree = sample_tree(
                text[-1],
                state,
                streams,
                configuration,
                partial(forward, draft, text),
            )
            done = walk_multi_step(TreeRows(target, text, tree), tree)
            accepted[done.accepted] += 1
            text += done.tokens
            if done.finish:
                return tuple(text[1:])
            state = done.states[-1]

    expected = {}
    for text in product(range(3), repeat=length):
        weight = target([1])[text[0]] * target([1, text[0]])[text[1]]
        if weight:
            expected[text] = weight
    assert total_variation(outcomes(program), expected) == 0
    assert set(accepted) == ({0, 1} if configuration else {0})


# --- with real states and streams ---------------------------------------------------------------

TABLE = TokenTable([b"", *(bytes([97 + i]) for i in range(7))], excluded=[0])


def rules(**fields):
    return DecodeRules(TABLE, limit=8, ends=frozenset({0}), **fields)


def rows_of(seed):
    """Logits that are a function of the text alone, wider than the tokenizer."""

    def row(text):
        return np.random.default_rng([seed, *text]).normal(size=10).astype(np.float32)

    return row


def run(rules_, seed, configuration, length, draft):
    """A text by rounds of trees of samples on real states; the way `Streams` are to be used."""
    target, text, state = rows_of(1), [3], rules_.begin([3], length)
    while True:
        tree = sample_tree(
            text[-1],
            state,
            Streams(seed, len(text)),
            configuration,
            partial(forward, draft, text),
        )
        done = walk_multi_step(TreeRows(target, text, tree), tree)
        text += done.tokens
        if done.finish:
            return text[1:], done.finish
        state = done.states[-1]


@pytest.mark.parametrize("configuration", [(), (3,), (2, 2)])
@pytest.mark.parametrize("draft", [rows_of(2), rows_of(1)], ids=["other", "same"])
def test_distribution_with_real_streams(configuration, draft):
    sampling = SamplingParameters(temperature=0.8, top_k=6)
    count = 1000
    found = Counter()
    for seed in range(count):
        text, _ = run(rules(sampling=sampling), seed, configuration, 2, draft)
        found[tuple(text)] += 1
    first = rules(sampling=sampling).begin([3], 2)
    row = rows_of(1)
    expected = {}
    for token, p in enumerate(first.probabilities(row([3]))):
        after = first.after(token)
        if after is None:
            expected[()] = p
            continue
        for second, q in enumerate(after.probabilities(row([3, token]))):
            key = (token,) if second == 0 else (token, second)
            expected[key] = p * q
    assert abs(sum(expected.values()) - 1) < 1e-9
    assert all(expected[key] > 0 for key in found)
    likely = [key for key, weight in expected.items() if weight * count >= 5]
    chi_square = sum((found[k] - count * expected[k]) ** 2 / (count * expected[k]) for k in likely)
    degrees = len(likely) - 1
    assert chi_square < degrees + 5 * (2 * degrees) ** 0.5  # the seeds are fixed


def test_greedy_is_plain_greedy():
    text, state = [3], rules().begin([3], 6)
    while state is not None:
        token, state, _, emit, _ = state.decide(rows_of(1)(text))
        text += [token] * emit
    found, _ = run(rules(), 9, (2, 1), 6, rows_of(1))
    assert found == text[1:]


def test_stop_strings_required_bytes_and_ends_hold_on_every_path():
    sampling = SamplingParameters(temperature=1.5)
    reasons = Counter()
    for seed in range(200):
        text, reason = run(
            rules(sampling=sampling, required=b"bc", stops=(b"ab",)), seed, (2, 2), 6, rows_of(2)
        )
        written = b"".join(TABLE.token_bytes[token] for token in text)
        assert written.startswith(b"bc")
        assert 0 not in text
        assert b"ab" not in written[2:-1]
        assert reason == "length" or len(text) < 6 or written.endswith(b"ab")
        reasons[reason] += 1
    assert set(reasons) == {"stop", "length"}


def test_a_trimmed_draft_without_a_fitting_token_proposes_nothing():
    state = rules(sampling=SamplingParameters(temperature=1), required=b"g").begin([3], 5)
    tree = SampledTree(3, state, Streams(0, 1))
    ids = np.array([1, 2, 3])
    assert tree.expand(0, np.zeros(3, dtype=np.float32), 4, ids) == []
    assert tree.samples == [[]]
    free = rules(sampling=SamplingParameters(temperature=1)).begin([3], 5)
    tree = SampledTree(3, free, Streams(0, 1))
    nodes = tree.expand(0, np.zeros(3, dtype=np.float32), 8, ids)
    assert {tree.tokens[node] for node in nodes} == {1, 2, 3}
    assert len(tree.samples[0]) == 8


def test_streams_are_independent_and_repeatable():
    keys = [(round_, node, draw) for round_ in range(5) for node in range(10) for draw in range(10)]
    numbers = {
        name: [getattr(Streams(7, r), name)(n, d) for r, n, d in keys]
        for name in ("draft", "accept")
    }
    numbers["residual"] = [Streams(7, r).residual(n) for r, n, d in keys if d == 0]
    every = [number for stream in numbers.values() for number in stream]
    assert len(set(every)) == len(every)
    assert abs(np.corrcoef(numbers["draft"], numbers["accept"])[0, 1]) < 0.15
    assert numbers["draft"][7] == Streams(7, 0).draft(0, 7)
