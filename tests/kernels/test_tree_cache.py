"""The evolving tree cache: whatever its history, KV and logits are those of fresh prefills."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swiftspec_daemon.kernels.native.model import CacheFull

CAPACITY = 300
FIXTURES = [HealthCheck.function_scoped_fixture]


def same_bits(a, b):
    return np.array_equal(a.view(np.uint32), b.view(np.uint32))


class Mirror:
    """A cache, and what should be in it as token lists; every step is compared with prefills."""

    def __init__(self, running, vocab):
        self.running, self.vocab = running, vocab
        self.cache = running.new_cache(CAPACITY)
        self.prefix: list[int] = []
        self.tree: list[tuple[int, int]] = []

    def path_to(self, slot):
        path = []
        while slot >= 0:
            path.insert(0, slot)
            slot = self.tree[slot][1]
        return path

    def text_of(self, slot):
        return self.prefix + [self.tree[i][0] for i in self.path_to(slot)]

    def append(self, tokens):
        got = self.running.append(self.cache, tokens, logits="all")
        self.prefix, self.tree = self.prefix + tokens, []
        fresh = self.running.new_cache(CAPACITY)
        wanted = self.running.append(fresh, self.prefix, logits="all")
        assert same_bits(got, wanted[-len(tokens) :])

    def grow(self, tokens, parents):
        first = len(self.tree)
        got = self.running.grow(self.cache, tokens, parents)
        self.tree += zip(tokens, parents, strict=True)
        for row, logits in enumerate(got):
            fresh = self.running.new_cache(CAPACITY)
            assert same_bits(logits, self.running.append(fresh, self.text_of(first + row))[0])

    def reroot(self, path, keep):
        self.running.reroot(self.cache, path, keep)
        moved = {path[-1] if path else -1: -1, **{slot: i for i, slot in enumerate(keep)}}
        self.prefix += [self.tree[i][0] for i in path]
        self.tree = [(self.tree[slot][0], moved[self.tree[slot][1]]) for slot in keep]

    def truncate(self, length):
        self.running.truncate(self.cache, length)
        self.prefix, self.tree = self.prefix[:length], []

    def check(self):
        """All keys and values against prefills of every root-to-node text."""
        assert (self.cache.length, self.cache.pending) == (len(self.prefix), len(self.tree))
        fresh = self.running.new_cache(CAPACITY)
        if self.prefix:
            self.running.append(fresh, self.prefix, logits="none")
        for position in range(len(self.prefix)):
            for got, wanted in zip(self.cache.read(position), fresh.read(position), strict=True):
                assert same_bits(got, wanted), position
        for slot in range(len(self.tree)):
            self.running.truncate(fresh, len(self.prefix))
            self.running.append(fresh, self.text_of(slot)[len(self.prefix) :], logits="none")
            for got, wanted in zip(
                self.cache.read(slot, pending=True), fresh.read(fresh.length - 1), strict=True
            ):
                assert same_bits(got, wanted), slot


def draw_grow(draw, mirror):
    first = len(mirror.tree)
    count = draw(st.integers(1, 9))
    parents: list[int] = []
    for i in range(count):
        parents.append(draw(st.integers(-1, first + i - 1)))
    mirror.grow(draw(tokens_of(mirror, count)), parents)


def tokens_of(mirror, count):
    return st.lists(st.integers(0, mirror.vocab - 1), min_size=count, max_size=count)


def draw_reroot(draw, mirror):
    """Down a random path, keeping a random part of what hangs on its end."""
    path = mirror.path_to(draw(st.integers(-1, len(mirror.tree) - 1)))
    path = path[: draw(st.integers(0, len(path)))]
    hanging = {path[-1] if path else -1}
    keep = []
    for slot, (_, parent) in enumerate(mirror.tree):
        if parent in hanging and draw(st.integers(0, 5)):
            hanging.add(slot)
            keep.append(slot)
    mirror.reroot(path, keep)


def step(draw, mirror):
    kind = draw(st.sampled_from(["grow", "grow", "grow", "reroot", "reroot", "append", "truncate"]))
    if kind == "grow":
        draw_grow(draw, mirror)
    elif kind == "reroot":
        draw_reroot(draw, mirror)
    elif kind == "append":
        mirror.append(draw(tokens_of(mirror, draw(st.integers(1, 5)))))
    else:
        mirror.truncate(draw(st.integers(max(0, len(mirror.prefix) - 3), len(mirror.prefix))))


@settings(max_examples=15, deadline=None, suppress_health_check=FIXTURES)
@given(data=st.data(), prefix=st.sampled_from([0, 5, 120, 127, 128]), threads=st.integers(1, 2))
def test_any_history(tiny, any_isa, data, prefix, threads):
    model = tiny.model("llama")
    mirror = Mirror(model.open(any_isa, threads=threads), model.spec.vocab)
    if prefix:
        mirror.append(model.tokens(prefix))
    for _ in range(data.draw(st.integers(1, 8))):
        step(data.draw, mirror)
    mirror.check()


@pytest.fixture
def mirror(tiny, any_isa):
    model = tiny.model("qwen3")
    mirror = Mirror(model.open(any_isa, threads=2), model.spec.vocab)
    mirror.append(model.tokens(120))
    return mirror


def test_a_full_tree_of_256_rows_with_64_deep_paths(tiny, mirror):
    """Four chains of 64 rows, interleaved, so that each goes through all 16 blocks of slots."""
    nodes = tiny.model("qwen3").tokens(256, seed=5)
    for call in range(4):
        rows = range(64 * call, 64 * call + 64)
        tokens, parents = [nodes[row] for row in rows], [max(row - 4, -1) for row in rows]
        got = mirror.running.grow(mirror.cache, tokens, parents)
        mirror.tree += zip(tokens, parents, strict=True)
    for chain, logits in enumerate(got[-4:]):
        fresh = mirror.running.new_cache(CAPACITY)
        wanted = mirror.running.append(fresh, mirror.text_of(252 + chain))
        assert same_bits(logits, wanted[0])
    with pytest.raises(ValueError, match="at most 256 rows"):
        mirror.running.grow(mirror.cache, [1], [-1])
    path = mirror.path_to(251)[:40]
    mirror.reroot(path, [slot for slot in range(256) if slot % 4 == 3 and slot > path[-1]])
    assert (mirror.cache.length, mirror.cache.pending) == (160, 24)
    mirror.check()


def test_the_papers_example(mirror):
    """Figure 4: t12 and t15 are verified, their subtree stays, the others are dropped."""
    mirror.grow([11, 12], [-1, -1])
    mirror.grow([13, 15, 16], [0, 1, 1])
    mirror.grow([17, 18], [3, 3])
    mirror.reroot([1, 3], [5, 6])
    assert mirror.tree == [(17, -1), (18, -1)]
    assert (mirror.cache.length, mirror.cache.pending) == (122, 2)
    mirror.check()
    mirror.grow([19, 20], [0, 2])
    mirror.check()


def test_pruning_without_a_path(mirror):
    mirror.grow([1, 2, 3, 4, 5], [-1, -1, 0, 1, 3])
    mirror.reroot([], [1, 3, 4])
    mirror.check()


BAD_GROWS = [
    ([], [], "rows"),
    ([1] * 65, [-1] * 65, "64"),
    ([1], [-1, 0], "parent"),
    ([1], [-2], "parent"),
    ([1], [3], "parent"),
    ([1, 1], [0, 4], "parent"),
    ([999], [0], "token"),
    ([1], [2**40], "32 bits|parent"),
]
BAD_REROOTS = [
    ([1], []),  # does not begin at a root
    ([0, 0], []),
    ([3], []),
    ([-1], []),
    ([0], [2]),  # hangs on the prefix's end
    ([0], [0]),
    ([0, 1], [1]),
    ([], [1]),  # its parent is dropped
    ([], [2, 0]),
    ([], [0, 0]),
    ([], [3]),
    ([], [-1]),
]


def grown(mirror):
    mirror.grow([1, 2, 3], [-1, 0, -1])


@pytest.mark.parametrize(("tokens", "parents", "word"), BAD_GROWS)
def test_bad_rows_change_nothing(mirror, tokens, parents, word):
    grown(mirror)
    with pytest.raises(ValueError, match=word):
        mirror.running.grow(mirror.cache, tokens, parents)
    mirror.check()


@pytest.mark.parametrize(("path", "keep"), BAD_REROOTS)
def test_bad_reroots_change_nothing(mirror, path, keep):
    grown(mirror)
    with pytest.raises(ValueError, match=r"path"):
        mirror.running.reroot(mirror.cache, path, keep)
    mirror.check()


def test_a_path_deeper_than_64_is_refused(mirror):
    mirror.running.grow(mirror.cache, [1] * 64, range(-1, 63))
    mirror.tree = [(1, i - 1) for i in range(64)]
    with pytest.raises(ValueError, match="at most 64 rows"):
        mirror.running.grow(mirror.cache, [1], [63])
    mirror.grow([2], [62])
    mirror.check()


def test_rows_beyond_the_capacity_are_refused(mirror):
    mirror.append([1] * (CAPACITY - 123))
    mirror.grow([1, 2, 3], [-1, 0, 1])
    with pytest.raises(CacheFull):
        mirror.running.grow(mirror.cache, [4], [2])
    mirror.reroot([0, 1, 2], [])
    assert mirror.cache.length == CAPACITY
    mirror.check()


def test_reading_what_is_not_there(mirror):
    grown(mirror)
    for row in (-1, 120):
        with pytest.raises(ValueError, match="position"):
            mirror.cache.read(row)
    for row in (-1, 3):
        with pytest.raises(ValueError, match="pending row"):
            mirror.cache.read(row, pending=True)
