"""The walk is lossless, proved by exact enumeration (total variation 0, in fractions).

Small languages of three tokens; texts of three. The target's sampler is the inverse distribution
function over one uniform number for each position, which the draft may see as well. The code under
test is the real `walk` (and the real tree, and the real n-gram source); around it trees are made in
every way that a draft could: pruned by what was sampled, merged, stale, of a trimmed vocabulary, of
n-grams, at random, and in order to deceive.
"""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from enumeration import inverse, outcomes, total_variation

from swiftspec_daemon.speculation.decoding import Decision
from swiftspec_daemon.speculation.suffix import SuffixSource
from swiftspec_daemon.speculation.tree import TokenTree
from swiftspec_daemon.speculation.verification import walk

VOCABULARY, LENGTH = 3, 3
START = (0, 1, 0, 2, 0)
"""The prompt: with repetitions, for the n-gram source."""


def language(name: int):
    """A distribution of the next token for each text, some of them with impossible tokens."""
    known = {}

    def next_token(text):
        key = tuple(text)
        if key not in known:
            generator = np.random.default_rng([name, *key])
            weights = generator.integers(0, 6, VOCABULARY).tolist()
            weights[generator.integers(VOCABULARY)] += 1
            known[key] = [Fraction(w, sum(weights)) for w in weights]
        return known[key]

    return next_token


TARGETS = [language(i) for i in (1, 2)]
DRAFT, OTHER_DRAFT = language(11), language(12)


def exact(target):
    """The distribution of texts by multiplication."""
    found = {}
    for text in product(range(VOCABULARY), repeat=LENGTH):
        weight = Fraction(1)
        for i, token in enumerate(text):
            weight *= target([*START, *text[:i]])[token]
        if weight:
            found[text] = weight
    return found


class InverseState:
    """A `DecodeState` whose sampler is the inverse distribution function."""

    def __init__(self, trace, position, room):
        self.trace, self.position, self.room = trace, position, room

    def noise(self, token=None):
        return self.trace.uniform(self.position)

    def decide(self, row):
        token = inverse(row, self.noise())
        after = type(self)(self.trace, self.position + 1, self.room - 1) if self.room > 1 else None
        return Decision(token, after, None if after else "length", True, None)


class Rows:
    """The target's distribution at each node, computed when it is looked at."""

    def __init__(self, target, text, tree):
        self._of = lambda node: target([*text, *tree.sequence(node)[1:]])

    def __getitem__(self, node):
        return self._of(node)


def generate(trace, target, propose, state_type=InverseState):
    """A whole text by rounds of a proposed tree and a walk."""
    text, state, memory = list(START), state_type(trace, len(START), LENGTH), {}
    while True:
        tree = propose(text, trace, memory)
        done = walk(Rows(target, text, tree), tree.child, state)
        assert [tree.tokens[node] for node in done.path[1:]] == done.tokens[: done.accepted]
        assert len(done.tokens) == done.accepted + 1
        text += done.tokens
        memory["verified"] = done.tokens
        if done.finish:
            return tuple(text[len(START) :])
        state = done.states[-1]


# --- ways to make a tree ------------------------------------------------------------------------


def nothing(text, trace, memory):
    return TokenTree(text[-1])


def top_two(draft, depth=3, banned=frozenset()):
    """The two likeliest children of every node, down to a depth."""

    def propose(text, trace, memory):
        tree = TokenTree(text[-1])
        level = [0]
        for _ in range(depth):
            level = [
                tree.add(node, token, -1.0)
                for node in level
                for q in [draft([*text, *tree.sequence(node)[1:]])]
                for token in sorted(range(VOCABULARY), key=lambda t, q=q: -q[t])[:2]
                if token not in banned
            ]
        return tree

    return propose


def coupled(draft, depth=3):
    """A chain of the draft's own samples with the target's noise (it is known to both)."""

    def propose(text, trace, memory):
        tree, node = TokenTree(text[-1]), 0
        for i in range(depth):
            q = draft([*text, *tree.sequence(node)[1:]])
            node = tree.add(node, inverse(q, trace.uniform(len(text) + i)), -1.0)
        return tree

    return propose


def pruned(text, trace, memory):
    """Samples of the draft's own, of which those that it is not sure of are dropped."""
    tree = TokenTree(text[-1])
    for draw in range(2):
        q = DRAFT(text)
        token = inverse(q, trace.uniform(("draft", len(text), draw)))
        if q[token] >= Fraction(3, 10):
            tree.add(0, token, -1.0)
    return tree


def merged(text, trace, memory):
    parts = [top_two(DRAFT, 2), coupled(OTHER_DRAFT), ngram]
    return TokenTree.merge(*(part(text, trace, memory) for part in parts))


def stale(text, trace, memory):
    """An older tree re-rooted along the verified tokens, grown only where it fell out."""
    old = memory.get("tree")
    tree = old.reroot(memory["verified"]).tree if old else None
    memory["tree"] = tree if tree is not None else top_two(DRAFT, 3)(text, trace, memory)
    return memory["tree"]


def misplaced(text, trace, memory):
    """The tree of an older text under the new root, as if a message had come too late."""
    now = coupled(DRAFT)(text, trace, memory)
    late, memory["tree"] = memory.get("tree", now), now
    tree = TokenTree(text[-1])
    place = [0]
    for node in range(1, len(late)):
        place.append(tree.add(place[late.parents[node]], late.tokens[node], -1.0))
    return tree


def trimmed(text, trace, memory):
    return top_two(DRAFT, 3, banned={2})(text, trace, memory)


def ngram(text, trace, memory):
    source = SuffixSource()
    source.begin(text)
    return source.propose(6)


def random_tree(text, trace, memory):
    generator = np.random.default_rng(len(text))
    tree = TokenTree(text[-1])
    for _ in range(5):
        tree.add(int(generator.integers(len(tree))), int(generator.integers(VOCABULARY)), -1.0)
    return tree


def deceiving(target):
    """Knows target and noise, and proposes everything but the next token (or that one alone)."""

    def propose(text, trace, memory):
        right = inverse(target(text), trace.uniform(len(text)))
        tree = TokenTree(text[-1])
        for token in range(VOCABULARY):
            if (token == right) == (len(text) % 2 == 0):
                tree.add(tree.add(0, token, -1.0), token, -1.0)
        return tree

    return propose


WAYS = {
    "none": nothing,
    "top-k": top_two(DRAFT),
    "coupled": coupled(DRAFT),
    "pruned": pruned,
    "merged": merged,
    "stale": stale,
    "misplaced": misplaced,
    "trimmed": trimmed,
    "n-gram": ngram,
    "random": random_tree,
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("way", [*WAYS, "deceiving", "perfect"])
def test_total_variation_is_zero(target, way):
    ways = WAYS | {"deceiving": deceiving(target), "perfect": coupled(target)}
    found = outcomes(lambda trace: generate(trace, target, ways[way]))
    assert total_variation(found, exact(target)) == 0


@pytest.mark.parametrize("way", WAYS)
def test_the_text_is_that_of_plain_decoding_for_all_noise(way):
    def both(trace):
        with_tree = generate(trace, TARGETS[0], WAYS[way])
        return with_tree == generate(trace, TARGETS[0], nothing)

    assert outcomes(both) == {True: 1}


# --- wrong rules, which this proof must catch ---------------------------------------------------


def wrong_generate(trace, target, rule):
    """One chain of the draft's samples each round, verified by a rule that is not lossless."""
    text = list(START)
    while len(text) < len(START) + LENGTH:
        q, p = DRAFT(text), target(text)
        drafted = inverse(q, trace.uniform(("draft", len(text))))
        text.append(rule(trace, len(text), drafted, p, q))
    return tuple(text[len(START) :])


def no_residual(trace, position, drafted, p, q):
    """The ratio test, but after a rejection the target's whole distribution."""
    if trace.uniform(("accept", position)) * q[drafted] <= p[drafted]:
        return drafted
    return inverse(p, trace.uniform(("own", position)))


def argmax_accepts(trace, position, drafted, p, q):
    if drafted == max(range(VOCABULARY), key=lambda token: p[token]):
        return drafted
    return inverse(p, trace.uniform(("own", position)))


def second_chance(trace, position, drafted, p, q):
    """A draw of its own for each row: one more for the candidate than for the target."""
    if inverse(p, trace.uniform(("candidate", position))) == drafted:
        return drafted
    return inverse(p, trace.uniform(("own", position)))


@pytest.mark.parametrize("rule", [no_residual, argmax_accepts, second_chance])
def test_wrong_rules_are_caught(rule):
    found = outcomes(lambda trace: wrong_generate(trace, TARGETS[0], rule))
    assert total_variation(found, exact(TARGETS[0])) > Fraction(1, 100)


def test_a_sampler_that_looks_at_the_tree_is_caught():
    """The real walk under a state that draws anew if the first sample is not in the tree."""

    def program(trace):
        class Hoping(InverseState):
            def decide(self, row):
                token = inverse(row, self.noise())
                first = self.position == len(START)
                if first and token != inverse(DRAFT(START), self.noise()):
                    token = inverse(row, trace.uniform(("again", self.position)))
                after = Hoping(trace, self.position + 1, self.room - 1) if self.room > 1 else None
                return Decision(token, after, None if after else "length", True, None)

        return generate(trace, TARGETS[0], WAYS["coupled"], Hoping)

    assert total_variation(outcomes(program), exact(TARGETS[0])) > Fraction(1, 100)
