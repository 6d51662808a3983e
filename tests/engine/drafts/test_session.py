"""One request's drafts with synthetic models and a planner without doubts: rounds by hand."""

from __future__ import annotations

import numpy as np
import pytest

from swiftspec_daemon.engine.drafts.session import (
    NGRAM,
    DraftSession,
    LocalDraft,
    RemoteTree,
    Sources,
    draft_bit,
)
from swiftspec_daemon.errors import EngineError
from swiftspec_daemon.speculation.calibration import Calibration
from swiftspec_daemon.speculation.constraint import TokenTable
from swiftspec_daemon.speculation.costs import CostTable
from swiftspec_daemon.speculation.decoding import DecodeRules
from swiftspec_daemon.speculation.drafter import TreeDrafter
from swiftspec_daemon.speculation.planner import Planner
from swiftspec_daemon.speculation.suffix import SuffixSource
from swiftspec_daemon.speculation.synthetic import Agreement, HashTarget, SyntheticDraft
from swiftspec_daemon.speculation.tree import TokenTree
from swiftspec_daemon.speculation.verification import walk

VOCAB = 200
TARGET = HashTarget(VOCAB)
RULES = DecodeRules(TokenTable([b"x"] * VOCAB, []), VOCAB)
PROMPT = [5, 6, 7]
TARGET_S, DRAFT_S = {1: 0.02, 8: 0.021, 16: 0.022}, {1: 0.001, 8: 0.0011}


class Failing(SyntheticDraft):
    """Works for `left` forward passes, then no more."""

    left = 3

    def extend(self, tokens, state):
        self._count()
        return super().extend(tokens, state)

    def grow(self, tokens, parents, states):
        self._count()
        return super().grow(tokens, parents, states)

    def _count(self):
        self.left -= 1
        if self.left < 0:
            raise EngineError("It does not work any more.")


class Remote:
    """A remote draft that plays what it is given."""

    def __init__(self, trees):
        self.calls = []
        self.stale = 0
        self._trees = list(trees)

    def begin(self, tokens, prompt):
        self.calls.append(("begin", list(tokens), prompt))

    def verified(self, tokens):
        self.calls.append(("verified", list(tokens)))

    def look(self):
        self.calls.append("look")

    def tree(self):
        return self._trees.pop(0) if self._trees else None

    def end(self):
        self.calls.append("end")


def local(agreement, kind=SyntheticDraft):
    def open_one(tokens, state):
        model = kind(agreement, TARGET, vocab=VOCAB)
        drafter = TreeDrafter(model, width=4, branching=4, max_depth=8, max_nodes=64)
        drafter.begin(tokens, state)
        return drafter

    return LocalDraft(open_one, CostTable(DRAFT_S))


def session(*drafts, lookup=False, remote=None):
    """With time standing still: costs are those that the planner is told."""
    calibration = Calibration()
    planner = Planner(CostTable(TARGET_S), calibration, max_size=16)
    planner.add_lookup(NGRAM, 50e-6)
    for index in range(len(drafts) or (remote is not None)):
        planner.add_draft(draft_bit(index), CostTable(DRAFT_S))
    source = SuffixSource(mark=NGRAM) if lookup else None
    sources = Sources(lookup=source, local=list(drafts), remote=remote)
    return DraftSession(sources, planner, calibration, lambda: 0.0)


def decode(drafts, count, prompt=PROMPT, target=TARGET):
    """Rounds until `count` tokens are decided; all tokens."""
    tokens, state = list(prompt), RULES.begin(prompt, count)
    drafts.begin(tokens, len(prompt), state)
    while state is not None:
        tree = drafts.propose(1, 16)
        assert tree.tokens[0] == tokens[-1]
        assert 1 <= len(tree) <= 16
        rows = np.zeros((len(tree), VOCAB), dtype=np.float32)
        for node in range(len(tree)):
            rows[node, target([*tokens, *(tree.tokens[n] for n in tree.path(node)[1:])])] = 1.0
        walked = walk(rows, tree.child, state)
        tokens += walked.tokens
        state = None if walked.finish else walked.states[-1]
        drafts.verified(tree, walked.tokens, walked.accepted, state)
    drafts.close()
    return tokens


def plain(count, prompt=PROMPT, target=TARGET):
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(target(tokens))
    return tokens


def in_circles_from(start):
    """A text without repetitions up to `start`, which then repeats its last seven tokens."""
    return lambda tokens: tokens[-7] if len(tokens) >= start else TARGET(tokens)


def noted_calls(monkeypatch, owner, name, note):
    """What `note` says of each call."""
    seen, called = [], getattr(owner, name)

    def noted(self, *arguments, **options):
        seen.append(note(self, *arguments, **options))
        return called(self, *arguments, **options)

    monkeypatch.setattr(owner, name, noted)
    return seen


@pytest.mark.parametrize(
    "agreements",
    [
        [Agreement.perfect()],
        [Agreement.by_position([0.7])],
        [Agreement.adversarial()],
        [Agreement.random(VOCAB)],
        [Agreement.adversarial(), Agreement.by_position([0.6], [0.4]), Agreement.perfect()],
    ],
)
def test_the_text_is_the_targets(agreements):
    drafts = session(*(local(one) for one in agreements), lookup=True)
    assert decode(drafts, 200) == plain(200)
    assert drafts.counters.tokens == 200
    assert sum(drafts.counters.accepted_lengths) == drafts.counters.rounds


def test_better_drafts_need_fewer_rounds():
    def rounds(*agreements):
        drafts = session(*(local(one) for one in agreements))
        decode(drafts, 300)
        return drafts.counters.rounds

    perfect, fair, bad = (
        rounds(Agreement.perfect()),
        rounds(Agreement.by_position([0.6])),
        rounds(Agreement.adversarial()),
    )
    assert perfect < 75 < fair < 250 < bad == 300


def test_a_draft_that_never_agrees_is_soon_left_alone():
    drafts = session(local(Agreement.adversarial()))
    decode(drafts, 500)
    assert drafts.counters.plain_rounds > 450
    assert drafts.counters.draft_steps < 150


@pytest.mark.parametrize("drafts", [[], [Agreement.adversarial()]], ids=["lookup", "and draft"])
def test_where_nothing_pays_the_planner_is_seldom_asked(monkeypatch, drafts):
    made = session(*map(local, drafts), lookup=True)
    rounds = noted_calls(
        monkeypatch, Planner, "begin_round", lambda self, **_: made.counters.tokens
    )
    assert decode(made, 600) == plain(600)
    assert made.counters.rounds == made.counters.tokens == 600
    assert 10 < len([at for at in rounds if at > 200]) < 200


def test_a_rest_ends_where_a_lookup_would_have_been_right(monkeypatch):
    monkeypatch.setattr(Planner, "rest", lambda self, catch_up_s: 1000)
    asked = noted_calls(monkeypatch, SuffixSource, "propose", lambda self, _: len(self.tokens))
    target = in_circles_from(400)
    made = session(lookup=True)
    assert decode(made, 500, target=target) == plain(500, target=target)
    # From there on the last three tokens have stood there before, and what followed was right.
    assert asked[:2] == [len(PROMPT), 400 + 3 + 2]
    assert made.counters.accepted_by["ngram"] > 60


def test_drafts_know_what_was_decided_in_a_rest():
    target = in_circles_from(400)
    made = session(local(Agreement.adversarial()), lookup=True)
    assert decode(made, 600, target=target) == plain(600, target=target)
    assert made.counters.accepted_by["ngram"] > 100


def test_sources_are_counted_apart():
    drafts = session(local(Agreement.adversarial(0.3)), local(Agreement.perfect()))
    decode(drafts, 200)
    assert drafts.counters.accepted_by["draft 2"] == drafts.counters.accepted > 100
    assert "draft" not in drafts.counters.accepted_by


def test_a_draft_that_fails_in_the_middle_is_left_out_and_the_others_go_on(caplog):
    drafts = session(local(Agreement.perfect(), Failing), local(Agreement.perfect()))
    assert decode(drafts, 100) == plain(100)
    assert "draft is left out of a request: It does not work any more." in caplog.text
    assert drafts.counters.accepted_by["draft 2"] > 50


def test_a_draft_that_the_text_is_too_long_for_is_silent():
    drafts = session(LocalDraft(lambda tokens, state: None, CostTable(DRAFT_S)))
    assert decode(drafts, 30) == plain(30)
    assert drafts.counters.plain_rounds == 30


def chain(tokens, matched):
    tree = TokenTree.from_chain(tokens[0], tokens[1:], [-0.1] * (len(tokens) - 1), 1)
    return RemoteTree(tree, matched, forwards=3, busy_ms=2.0, idle_ms=5.0)


def test_remote_trees_are_verified_and_missing_ones_missed():
    text = plain(8)
    trees = [chain(text[2:6], 0), None, chain(text[7:10], 1)]
    remote = Remote(trees)
    drafts = session(remote=remote)
    assert decode(drafts, 8) == text
    counted = drafts.counters
    assert counted.accepted_lengths == [1, 0, 1, 1]  # plain; then 2, limited by room; 3
    assert (counted.draft_steps, counted.missed_deadlines) == (6, 1)
    assert (counted.draft_s, counted.draft_idle_s) == (0.004, 0.01)
    assert (counted.fall_ins, counted.fall_outs) == (1, 0)  # the first tree answers no round
    assert remote.calls[0] == ("begin", PROMPT, 3)
    assert remote.calls[1] == ("verified", text[3:7])
    assert remote.calls[-1] == "end"


def test_a_remote_draft_is_looked_at_while_the_prompt_is_read():
    remote = Remote([])
    drafts = session(remote=remote)
    drafts.begin(PROMPT, 3, RULES.begin(PROMPT, 5))
    drafts.prefilled()
    assert remote.calls == [("begin", PROMPT, 3), "look"]
