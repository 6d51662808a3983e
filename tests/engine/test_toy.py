"""The toy keeps the backend's contract, trees included: what tests of the engine build on."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swiftspec_daemon.engine import toy
from swiftspec_daemon.errors import ContextTooLong, UsageError

OPTIONS = toy.ToyOptions(context=64)
tokens = st.lists(st.integers(0, 299), min_size=1, max_size=20)


def plain(path):
    """Logits after `path`, from an empty cache."""
    backend = toy.ToyBackend(OPTIONS)
    return backend.append(backend.new_cache(64), path, logits=True)


@st.composite
def trees(draw):
    rows = draw(st.lists(st.integers(0, 299), min_size=1, max_size=12))
    return rows, [draw(st.integers(-1, row - 1)) for row in range(len(rows))]


def path_to(row, parents):
    return [*path_to(parents[row], parents), row] if row >= 0 else []


@given(tokens, trees(), st.data())
def test_a_row_depends_on_its_path_alone(prefix, tree, data):
    rows, parents = tree
    backend = toy.ToyBackend(OPTIONS)
    cache = backend.new_cache(64)
    cut = data.draw(st.integers(0, len(prefix)))
    if cut:
        backend.append(cache, prefix[:cut], logits=False)
    if cut < len(prefix):
        backend.append(cache, prefix[cut:], logits=False)
    logits = backend.speculate(cache, rows, parents)
    assert logits.shape == (len(rows), 300)
    assert logits.dtype == np.float32
    for row in range(len(rows)):
        path = [rows[i] for i in path_to(row, parents)]
        assert np.array_equal(logits[row], plain([*prefix, *path]))
    chosen = path_to(data.draw(st.integers(0, len(rows) - 1)), parents)
    backend.commit(cache, chosen)
    assert cache.length == len(prefix) + len(chosen)
    after = backend.append(cache, [5], logits=True)
    assert np.array_equal(after, plain([*prefix, *(rows[i] for i in chosen), 5]))


def test_truncate_and_append_drop_a_pending_tree():
    backend = toy.ToyBackend(OPTIONS)
    cache = backend.new_cache(64)
    backend.append(cache, [1, 2, 3], logits=False)
    backend.speculate(cache, [7, 8], [-1, 0])
    backend.truncate(cache, 2)
    assert np.array_equal(backend.append(cache, [9], logits=True), plain([1, 2, 9]))


def test_no_room_and_no_such_option():
    backend = toy.ToyBackend(OPTIONS)
    cache = backend.new_cache(4)
    backend.append(cache, [1, 2, 3], logits=False)
    with pytest.raises(ContextTooLong):
        backend.append(cache, [4, 5], logits=False)
    with pytest.raises(ContextTooLong):
        backend.speculate(cache, [4, 5], [-1, 0])
    with pytest.raises(UsageError, match="not a toy"):
        toy.parse("toy:vocab")


@given(tokens, trees(), st.data())
def test_a_growing_tree_that_is_rerooted_stays_exact(prefix, tree, data):
    """Rows in several calls, the path of one of them committed, what hangs on it kept."""
    rows, parents = tree
    backend = toy.ToyBackend(OPTIONS)
    cache = backend.new_cache(64)
    backend.append(cache, prefix, logits=False)
    cut = data.draw(st.integers(0, len(rows)))
    for part in filter(len, (range(cut), range(cut, len(rows)))):
        logits = backend.grow(cache, [rows[i] for i in part], [parents[i] for i in part])
        for i, found in zip(part, logits, strict=True):
            path = [rows[j] for j in path_to(i, parents)]
            assert np.array_equal(found, plain([*prefix, *path]))
    path = path_to(data.draw(st.integers(-1, len(rows) - 1)), parents)
    end = path[-1] if path else -1
    keep: list[int] = []
    for i in range(len(rows)):
        if parents[i] == end or parents[i] in keep:
            keep.append(i)
    backend.reroot(cache, path, keep)
    text = [*prefix, *(rows[i] for i in path)]
    assert cache.length == len(text)
    for slot, i in enumerate(keep):
        below = [rows[j] for j in path_to(i, parents)[len(path) :]]
        assert np.array_equal(backend.grow(cache, [7], [slot])[0], plain([*text, *below, 7]))
    assert np.array_equal(backend.append(cache, [5], logits=True), plain([*text, 5]))


def test_moves_that_are_none_are_refused():
    backend = toy.ToyBackend(OPTIONS)
    cache = backend.new_cache(64)
    backend.append(cache, [1], logits=False)
    backend.grow(cache, [2, 3, 4], [-1, 0, -1])
    for path, keep in [([1], []), ([0, 2], []), ([0], [2]), ([], [2, 0]), ([0], [0])]:
        with pytest.raises(UsageError):
            backend.reroot(cache, path, keep)
    with pytest.raises(UsageError, match="parent"):
        backend.grow(cache, [5], [3])
    with pytest.raises(ContextTooLong):
        backend.grow(cache, [5] * 61, [-1] * 61)
    backend.reroot(cache, [0], [1])
    assert np.array_equal(backend.grow(cache, [9], [0])[0], plain([1, 2, 3, 9]))
