"""The walk with the project's own sampler: distributed as the target, tested by chi-square.

Texts of three tokens from a small language, many seeds, trees of several kinds. The seeds are
fixed, so nothing here depends on chance; deliberately wrong rules must fail the same test.
"""

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import numpy as np
import pytest

from swiftspec_daemon.speculation.constraint import TokenTable
from swiftspec_daemon.speculation.decoding import DecodeRules, DecodeState
from swiftspec_daemon.speculation.sampling import SamplingParameters
from swiftspec_daemon.speculation.tree import TokenTree
from swiftspec_daemon.speculation.verification import Walk, walk

VOCABULARY, LENGTH, SEEDS = 4, 3, 2000
PROMPT = (1, 3)
TABLE = TokenTable([bytes([97 + i]) for i in range(VOCABULARY)])


@cache
def target(text):
    return np.random.default_rng([1, *text]).normal(size=VOCABULARY).astype(np.float32)


@cache
def draft(text):
    """Near the target."""
    other = np.random.default_rng([2, *text]).normal(size=VOCABULARY)
    return (target(text) + 0.7 * other).astype(np.float32)


def start(seed, **fields):
    sampling = SamplingParameters(temperature=0.9, seed=seed, **fields)
    return DecodeRules(TABLE, limit=VOCABULARY, sampling=sampling).begin(PROMPT, LENGTH)


class Rows:
    def __init__(self, text, tree):
        self._text, self._tree = text, tree

    def __getitem__(self, node):
        return target((*self._text, *self._tree.sequence(node)[1:]))


def grown(text, state, width):
    """A tree of the draft's ranking, which knows the noise."""
    tree = TokenTree(text[-1])
    states = {0: state}
    for node in range(40):
        if node >= len(tree) or tree.depths[node] >= LENGTH:
            break
        if states[node] is None:
            continue
        below = (*text, *tree.sequence(node)[1:])
        for token, log_prob in zip(*states[node].rank(draft(below), width), strict=True):
            states[tree.add(node, token, log_prob)] = states[node].after(token)
    return tree


def coupled(text, state):
    return grown(text, state, 1)


def wide(text, state):
    tree = grown(text, state, 2)
    return tree.subtree(tree.select(7))


def unaware(text, state):
    """The likeliest tokens, without the noise."""
    greedy = DecodeRules(TABLE, limit=VOCABULARY).begin(text, state.room)
    return grown(text, greedy, 1)


def nothing(text, state):
    return TokenTree(text[-1])


def generate(seed, propose, verify=walk, **fields):
    text, state = PROMPT, start(seed, **fields)
    while True:
        tree = propose(text, state)
        done = verify(Rows(text, tree), tree.child, state)
        text += tuple(done.tokens)
        if done.finish:
            return text[len(PROMPT) :]
        state = done.states[-1]


@cache
def expected(**fields):
    found = {}
    for tokens in product(range(VOCABULARY), repeat=LENGTH):
        state, weight, text = start(0, **fields), 1.0, PROMPT
        for token in tokens:
            weight *= state.probabilities(target(text))[token]
            state, text = state.after(token), (*text, token)
        if weight:
            found[tokens] = weight
    assert abs(sum(found.values()) - 1) < 1e-9
    return found


def excess(found, fields):
    """By how many standard deviations chi-square lies above its mean; infinite for a text that
    cannot be."""
    weights = expected(**fields)
    if any(text not in weights for text in found):
        return math.inf
    count = sum(found.values())
    likely = {text: count * weight for text, weight in weights.items() if count * weight >= 5}
    chi_square = sum((found[text] - mean) ** 2 / mean for text, mean in likely.items())
    rest = count - sum(likely.values())
    if rest >= 5:
        others = sum(found.values()) - sum(found[text] for text in likely)
        chi_square += (others - rest) ** 2 / rest
    degrees = len(likely) - 1 + (rest >= 5)
    return (chi_square - degrees) / math.sqrt(2 * degrees)


@pytest.mark.parametrize(
    ("propose", "fields"),
    [
        (nothing, {}),
        (coupled, {}),
        (wide, {}),
        (unaware, {}),
        (wide, {"top_k": 3}),
        (unaware, {"top_p": 0.8, "min_p": 0.05}),
        (coupled, {"repetition_penalty": 1.5}),
    ],
)
def test_texts_are_distributed_as_the_target_says(propose, fields):
    found = Counter(generate(seed, propose, **fields) for seed in range(SEEDS))
    assert excess(found, fields) < 4.5


# --- wrong rules, which this test must catch ----------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class SameNoiseEverywhere(DecodeState):
    """The position is left out of the noise."""

    def decide(self, logits):
        at_start = DecodeState(
            self.rules, len(PROMPT), self.room, self.constraint, self.stops, self.seen
        )
        found = at_start.decide(logits)
        if found.state_after is None:
            return found
        after = found.state_after
        moved = SameNoiseEverywhere(
            after.rules, self.position + 1, after.room, after.constraint, after.stops, after.seen
        )
        return found._replace(state_after=moved)


def same_noise(rows, child, state):
    wrong = SameNoiseEverywhere(
        state.rules, state.position, state.room, state.constraint, state.stops, state.seen
    )
    return walk(rows, child, wrong)


def second_chance(rows, child, state):
    """A candidate is compared with a draw of its own before the target's is made."""
    tokens, states, node = [], [], 0
    while True:
        other = replace(
            state.rules,
            sampling=replace(state.rules.sampling, seed=state.rules.sampling.seed + SEEDS),
        )
        mine = state.decide(rows[node])
        candidate = replace(state, rules=other).decide(rows[node]).token
        token = candidate if child(node, candidate) is not None else mine.token
        after = state.after(token)
        tokens.append(token)
        if after is None:
            return Walk(tokens, [0], "length", states, [])
        states.append(after)
        following = child(node, token)
        if following is None:
            return Walk(tokens, [0], None, states, [])
        node, state = following, after


def likeliest_is_accepted(rows, child, state):
    """At every node, the target's likeliest token is taken if the tree has it (SSD's miss row)."""
    best = int(rows[0].argmax())
    token = best if child(0, best) is not None else state.decide(rows[0]).token
    after = state.after(token)
    return Walk([token], [0], None if after else "length", [after] if after else [], [])


@pytest.mark.parametrize(
    ("verify", "propose"),
    [(same_noise, coupled), (second_chance, unaware), (likeliest_is_accepted, coupled)],
)
def test_wrong_rules_are_caught(verify, propose):
    found = Counter(generate(seed, propose, verify) for seed in range(SEEDS))
    assert excess(found, {}) > 20
