"""Algorithm 1 as state machines: who answers when, what is stale, and who may rest."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from swiftspec_daemon.speculation.pairing import DraftLoop, TargetLink
from swiftspec_daemon.speculation.pairing_messages import (
    Begin,
    End,
    Epoch,
    Plan,
    ToDraft,
    Tree,
    Verified,
)
from swiftspec_daemon.speculation.tree import TokenTree

PLAN = Plan(size=4, width=2, steps=2, just_in_time=3)


class CountingDrafter:
    """Continues with root + 1, root + 2, ... as a chain, `width` nodes a step, up to `most`."""

    def __init__(self, root: int, prefill_steps: int = 0, most: int = 100) -> None:
        self.tree = TokenTree(root)
        self.width = 1
        self.prefill_steps = prefill_steps
        self.most = most
        self.forwards = 0

    @property
    def ready(self) -> bool:
        return self.prefill_steps == 0 and len(self.tree) > 1

    def step(self) -> int:
        if self.prefill_steps:
            self.prefill_steps -= 1
            self.forwards += 1
            return 1
        room = min(self.width, self.most - len(self.tree))
        for _ in range(room):
            last = len(self.tree) - 1
            self.tree.add(last, self.tree.tokens[last] + 1, -0.125)
        self.forwards += room > 0
        return room

    def accept(self, tokens: Sequence[int], state: int) -> int:
        rerooted = self.tree.reroot(tokens)
        self.tree = rerooted.tree or TokenTree(tokens[-1])
        return rerooted.matched


def make_loop(**options: int) -> tuple[DraftLoop[int], list[CountingDrafter]]:
    drafters: list[CountingDrafter] = []

    def open_drafter(begin: Begin) -> tuple[CountingDrafter, int]:
        drafters.append(CountingDrafter(begin.tokens[-1], **options))
        return drafters[-1], len(begin.tokens)

    return DraftLoop[int](open_drafter, lambda state, tokens: state + len(tokens)), drafters


def run(loop: DraftLoop[int], limit: int = 100) -> list[Tree]:
    """Step until it rests."""
    answers = []
    for _ in range(limit):
        if not loop.wants_step:
            return answers
        answer = loop.step()
        if answer is not None:
            answers.append(answer)
    raise AssertionError("the draft does not come to rest")


def test_a_request_is_answered_by_a_tree_of_the_size_asked_for_then_the_tree_grows_on() -> None:
    loop, drafters = make_loop()
    link = TargetLink()
    loop.receive(link.begin(7, "a", [1, 2, 3], 3, b"", PLAN))
    (tree,) = run(loop)
    assert (tree.tokens, tree.parents) == ([3, 4, 5, 6], [-1, 0, 1, 2])
    assert tree.log_probs == [0.0, -0.125, -0.25, -0.375]
    assert link.receive(tree)
    assert tree.forwards == 2
    assert drafters[0].forwards == 2 + PLAN.steps  # two for the answer, then d more


def test_verified_tokens_in_the_tree_are_answered_without_a_forward_pass() -> None:
    loop, drafters = make_loop()
    link = TargetLink()
    loop.receive(link.begin(7, "a", [3], 1, b"", PLAN))
    run(loop)
    before = drafters[0].forwards
    verified = link.verified([4, 5], PLAN)
    assert verified is not None
    loop.receive(verified)
    answer = loop.step()
    assert answer is not None
    assert (answer.tokens, answer.matched) == ([5, 6, 7, 8], 2)
    assert drafters[0].forwards == before


def test_after_a_miss_only_a_short_draft_precedes_the_answer() -> None:
    loop, _ = make_loop(most=3)
    link = TargetLink()
    loop.receive(link.begin(7, "a", [3], 1, b"", PLAN))
    run(loop)
    verified = link.verified([50], Plan(size=8, width=1, steps=0, just_in_time=1))
    assert verified is not None
    loop.receive(verified)
    (answer,) = run(loop)
    assert (answer.tokens, answer.matched) == ([50, 51], 0)


def test_a_long_prefill_does_not_count_as_just_in_time_draft() -> None:
    loop, _ = make_loop(prefill_steps=10)
    link = TargetLink()
    loop.receive(link.begin(1, "a", [3], 1, b"", Plan(4, 4, 0, 1)))
    (answer,) = run(loop)
    assert answer.tokens == [3, 4, 5, 6]


def test_only_the_last_of_several_rounds_is_answered() -> None:
    loop, _ = make_loop()
    link = TargetLink()
    messages: list[ToDraft | None] = [link.begin(1, "a", [3], 1, b"", PLAN)]
    messages += [link.verified([10], PLAN), link.verified([20], PLAN)]
    for message in messages:
        assert message is not None
        loop.receive(message)
    (answer,) = run(loop)
    assert answer.tokens[0] == 20
    assert link.receive(answer)
    assert link.unanswered == 0


def test_the_trees_of_other_rounds_requests_and_processes_are_stale() -> None:
    loop, _ = make_loop()
    link = TargetLink()
    link.restarted()
    loop.receive(link.begin(1, "a", [3], 1, b"", PLAN))
    (first,) = run(loop)
    link.verified([9], PLAN)
    assert not link.receive(first)  # of the round before
    assert link.take() is None
    link.end()
    link.begin(2, "a", [3], 1, b"", PLAN)
    assert not link.receive(first)  # of another request
    link.restarted()
    link.begin(1, "a", [3], 1, b"", PLAN)
    assert not link.receive(first)  # of another process
    assert link.stale == 3


def test_rounds_grow_over_all_requests_and_processes() -> None:
    link = TargetLink()
    rounds = []
    for request in (5, 5, 3):
        link.restarted()
        rounds.append(link.begin(request, "", [1], 1, b"", PLAN).epoch.round)
        verified = link.verified([1], PLAN)
        assert verified is not None
        rounds.append(verified.epoch.round)
        link.end()
    assert rounds == sorted(set(rounds))


def test_tokens_of_a_request_that_is_not_worked_on_are_ignored() -> None:
    loop, drafters = make_loop()
    loop.receive(Verified(Epoch(0, 1, 1), [1], PLAN))
    assert not loop.wants_step
    link = TargetLink()
    loop.receive(link.begin(1, "a", [3], 1, b"", PLAN))
    loop.receive(Verified(Epoch(0, 2, 9), [77], PLAN))
    loop.receive(End(Epoch(0, 2, 9)))
    (answer,) = run(loop)
    assert answer.tokens[0] == 3
    assert len(drafters) == 1


def test_rounds_that_wait_for_an_answer_are_counted_within_a_request() -> None:
    loop, _ = make_loop()
    link = TargetLink()
    loop.receive(link.begin(1, "a", [3], 1, b"", PLAN))
    link.verified([9], PLAN)
    assert link.unanswered == 2
    link.end()  # before the draft had a chance to answer: it is not the worse for it
    loop.receive(link.begin(2, "a", [3], 1, b"", PLAN))
    assert link.unanswered == 1
    (answer,) = run(loop)
    assert link.receive(answer)
    assert link.unanswered == 0


def test_an_ended_request_is_not_worked_on() -> None:
    loop, drafters = make_loop()
    link = TargetLink()
    loop.receive(link.begin(1, "a", [3], 1, b"", PLAN))
    end = link.end()
    assert end is not None
    loop.receive(end)
    assert not loop.wants_step
    assert drafters[0].forwards == 0
    assert link.verified([1], PLAN) is None
    assert link.end() is None


@given(st.lists(st.tuples(st.sampled_from("btve"), st.integers(1, 5)), max_size=40))
def test_whatever_happens_the_target_only_sees_trees_of_its_root(
    history: list[tuple[str, int]],
) -> None:
    """b: begin, v: verified, e: end, t: the draft makes so many steps."""
    loop, _ = make_loop()
    link = TargetLink()
    root, request, active = 0, 0, False
    for action, number in history:
        message: ToDraft | None = None
        if action == "b":
            request, root, active = request + 1, number, True
            message = link.begin(request, "", [number], 1, b"", PLAN)
        elif action == "v":
            message = link.verified([root + 1] * (number % 2) + [root + number], PLAN)
            root = root + number if active else root
        elif action == "e":
            message, active = link.end(), False
        for _ in range(number if action == "t" else 0):
            answer = loop.step() if loop.wants_step else None
            if answer is not None and link.receive(answer):
                taken = link.take()
                assert active
                assert taken is not None
                assert taken.tokens[0] == root
        if message is not None:
            loop.receive(message)
