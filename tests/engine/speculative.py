"""Speculative decoding, as plainly as it can be written, with drafts of every quality.

A round: a tree from the draft, one pass of the target, the walk, the path's KV kept. What the
engine makes of it is tested elsewhere; this is about the acceptance rule and the states.
"""

from __future__ import annotations

import numpy as np

from swiftspec_daemon.engine import toy
from swiftspec_daemon.engine.drafts.model import BackendDraft
from swiftspec_daemon.engine.generation import Vocabulary
from swiftspec_daemon.engine.messages import Generate
from swiftspec_daemon.speculation.drafter import TreeDrafter
from swiftspec_daemon.speculation.suffix import SuffixSource
from swiftspec_daemon.speculation.tree import TokenTree
from swiftspec_daemon.speculation.verification import walk

MOST_ROWS = 12


class OtherToy(toy.ToyBackend):
    """A model that agrees with the toy more or less: `share` of its logits are of its own."""

    def __init__(self, options, share):
        super().__init__(options)
        self._share = share

    def _logits(self, state):
        own = super()._logits(state ^ 0x5DEECE66D)
        both = (1 - self._share) * super()._logits(state) + self._share * own
        return both.astype(np.float32)


class TrimmedToy(toy.ToyBackend):
    """The toy with an output head of some tokens only, in an order of its own."""

    def __init__(self, options, ids):
        super().__init__(options)
        self._ids = ids

    def _logits(self, state):
        return super()._logits(state)[self._ids]


class ModelDraft:
    """A tree drafter on a model, a few steps a round."""

    def __init__(self, backend, ids=None, branching=3, steps=4):
        cache = backend.new_cache(backend.context)
        model = BackendDraft(backend, cache, branching=branching, ids=ids)
        self._drafter = TreeDrafter(model, width=3, branching=branching, max_depth=5, max_nodes=40)
        self._steps = steps

    def begin(self, tokens, state):
        self._drafter.begin(tokens, state)

    def propose(self, tokens, state):
        for _ in range(self._steps):
            self._drafter.step()
        tree = self._drafter.tree
        return tree.subtree(tree.select(MOST_ROWS))

    def verified(self, tokens, state):
        self._drafter.accept(tokens, state)


class TreeDraft:
    """A draft that is a function of the text: `make(tree, tokens, random)` adds nodes."""

    def __init__(self, make):
        self._make = make

    def begin(self, tokens, state):
        pass

    def propose(self, tokens, state):
        tree = TokenTree(tokens[-1])
        self._make(tree, tokens, np.random.default_rng(len(tokens)))
        return tree

    def verified(self, tokens, state):
        pass


class NgramDraft:
    def begin(self, tokens, state):
        self._source = SuffixSource()
        self._source.begin(tokens)

    def propose(self, tokens, state):
        return self._source.propose(MOST_ROWS - 1)

    def verified(self, tokens, state):
        self._source.extend(tokens)


class StaleDraft(ModelDraft):
    """Gives the tree of the round before, under the new root."""

    def begin(self, tokens, state):
        super().begin(tokens, state)
        self._late = TokenTree(tokens[-1])

    def propose(self, tokens, state):
        late, self._late = self._late, super().propose(tokens, state)
        tree, place = TokenTree(tokens[-1]), [0]
        for node in range(1, len(late)):
            place.append(tree.add(place[late.parents[node]], late.tokens[node], -1.0))
        return tree


class MergedDraft:
    def __init__(self, *drafts):
        self._drafts = drafts

    def begin(self, tokens, state):
        for draft in self._drafts:
            draft.begin(tokens, state)

    def propose(self, tokens, state):
        tree = TokenTree.merge(*(draft.propose(tokens, state) for draft in self._drafts))
        return tree.subtree(tree.select(MOST_ROWS))

    def verified(self, tokens, state):
        for draft in self._drafts:
            draft.verified(tokens, state)


def at_random(tree, tokens, random):
    for _ in range(MOST_ROWS - 1):
        tree.add(int(random.integers(len(tree))), int(random.integers(300)), -1.0)


def ends_and_padding(tree, tokens, random):
    """What must never be in a text: ends, BOS, ids without bytes; and what comes behind them."""
    for token in (toy.EOS, toy.BOS, 299, 290):
        tree.add(tree.add(0, token, -1.0), toy.FIRST_BYTE + 97, -1.0)


def drafts(options):
    """By name: a new draft of each kind."""
    ids = np.random.default_rng(5).permutation(options.vocab)[:200]
    return {
        "good": lambda: ModelDraft(toy.ToyBackend(options)),
        "fair": lambda: ModelDraft(OtherToy(options, 0.3)),
        "bad": lambda: ModelDraft(OtherToy(options, 1.0)),
        "trimmed": lambda: ModelDraft(TrimmedToy(options, ids), ids),
        "stale": lambda: StaleDraft(toy.ToyBackend(options)),
        "n-gram": NgramDraft,
        "random": lambda: TreeDraft(at_random),
        "ends": lambda: TreeDraft(ends_and_padding),
        "deceiving": lambda: Deceiving(toy.ToyBackend(options)),
        "merged": lambda: MergedDraft(
            ModelDraft(OtherToy(options, 0.3)), NgramDraft(), TreeDraft(at_random)
        ),
    }


class Deceiving:
    """Knows what the target will say, and proposes all else, each with the right token behind."""

    def __init__(self, backend):
        self._backend = backend

    def begin(self, tokens, state):
        pass

    def propose(self, tokens, state):
        cache = self._backend.new_cache(self._backend.context)
        right = state.decide(self._backend.append(cache, tokens, logits=True)).token
        tree = TokenTree(tokens[-1])
        for token in range(right - 2, right + 3):
            if token != right and token >= 0:
                tree.add(tree.add(0, token, -1.0), right, -1.0)
        return tree

    def verified(self, tokens, state):
        pass


def speculate(options, request: Generate, draft):
    """`speculate_on` the toy."""
    table = toy.token_bytes(options.vocab)
    vocabulary = Vocabulary.build(table, [toy.EOS], options.vocab)
    return speculate_on(toy.ToyBackend(options), vocabulary, request, draft)


def speculate_on(backend, vocabulary, request: Generate, draft):
    """Tokens, reason, log-probabilities, and accepted nodes of each round."""
    tokens = list(request.prompt)
    room = min(request.max_tokens, backend.context - len(tokens))
    if room <= 0:
        return [], "length", [], []
    state = vocabulary.rules(request).begin(tokens, room)
    cache = backend.new_cache(backend.context)
    if tokens[:-1]:
        backend.append(cache, tokens[:-1], logits=False)
    draft.begin(tokens, state)
    log_probs, accepted = [], []
    while True:
        tree = draft.propose(tokens, state)
        tree = tree.subtree(tree.select(max(1, min(MOST_ROWS, cache.capacity - cache.length))))
        rows = backend.speculate(cache, tree.tokens, tree.parents)
        done = walk(rows, tree.child, state)
        backend.commit(cache, done.path)
        tokens += done.tokens
        log_probs += done.logprobs
        accepted.append(done.accepted)
        assert cache.length == len(tokens) - (0 if done.finish == "stop" and not _own(done) else 1)
        if done.finish is not None:
            return tokens[len(request.prompt) :], done.finish, log_probs, accepted
        state = done.states[-1]
        draft.verified(done.tokens, state)


def _own(done):
    """The target's own token is part of the text."""
    return len(done.tokens) > done.accepted
