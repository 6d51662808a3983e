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
