"""The most probable tokens, on every implementation."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swiftspec_daemon.kernels.native import argmax, top_k

FIXTURES = [HealthCheck.function_scoped_fixture]


def by_sorting(logits, k):
    """Columns by a stable sort, log-probabilities in fp64."""
    ids = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    x = logits.astype(np.float64)
    x = x - x.max(axis=1, keepdims=True)
    logs = x - np.log(np.exp(x).sum(axis=1, keepdims=True))
    return ids, np.take_along_axis(logs, ids, axis=1)


@settings(max_examples=60, deadline=None, suppress_health_check=FIXTURES)
@given(
    rows=st.integers(1, 4),
    n=st.integers(1, 300),
    share=st.floats(0, 1),
    values=st.sampled_from([1, 2, 5, 1000]),
    order=st.sampled_from(["random", "ascending", "descending"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_against_sorting(any_isa, rows, n, share, values, order, seed):
    """Many equal values, every length, the worst orders."""
    k = max(1, round(share * n))
    logits = np.random.default_rng(seed).integers(0, values, (rows, n)) / np.float32(7)
    logits = logits.astype(np.float32)
    if order != "random":
        logits.sort(axis=1)
    if order == "descending":
        logits = np.ascontiguousarray(logits[:, ::-1])
    ids, logs = top_k(logits, k, isa=any_isa)
    wanted_ids, wanted_logs = by_sorting(logits, k)
    assert (ids.dtype, logs.dtype) == (np.int32, np.float32)
    np.testing.assert_array_equal(ids, wanted_ids)
    np.testing.assert_allclose(logs, wanted_logs, atol=2e-6, rtol=1e-6)
    np.testing.assert_array_equal(argmax(logits), wanted_ids[:, 0])


def test_a_vocabulary(any_isa):
    logits = (5 * np.random.default_rng(0).standard_normal((8, 49152))).astype(np.float32)
    for k in (1, 8, 64):
        ids, logs = top_k(logits, k, isa=any_isa)
        wanted_ids, wanted_logs = by_sorting(logits, k)
        np.testing.assert_array_equal(ids, wanted_ids)
        np.testing.assert_allclose(logs, wanted_logs, atol=1e-5)


def test_tokens_that_are_ruled_out(any_isa):
    """-infinity has probability 0, and is chosen last."""
    logits = np.full((1, 200), -np.inf, np.float32)
    logits[0, [150, 20]] = 3.0, 1.0
    ids, logs = top_k(logits, 4, isa=any_isa)
    assert ids[0].tolist() == [150, 20, 0, 1]
    np.testing.assert_allclose(logs[0, :2], [-0.126928, -2.126928], atol=1e-6)
    assert np.isneginf(logs[0, 2:]).all()


def test_large_logits_do_not_overflow(any_isa):
    ids, logs = top_k(np.array([[3e38, 3e38, -3e38]], np.float32), 3, isa=any_isa)
    assert ids.tolist() == [[0, 1, 2]]
    np.testing.assert_allclose(logs[0, :2], np.log(0.5), atol=1e-6)


@pytest.mark.parametrize("place", [0, 5, 100, 255, 299])
@pytest.mark.parametrize("k", [1, 8])
def test_nan_is_refused_wherever_it_is(any_isa, place, k):
    logits = np.zeros((2, 300), np.float32)
    logits[1, place] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        top_k(logits, k, isa=any_isa)
    with pytest.raises(ValueError, match="NaN"):
        argmax(logits)


@pytest.mark.parametrize("bad", [np.inf, -np.inf])
def test_what_is_no_distribution(any_isa, bad):
    row = np.full((1, 70), bad if bad < 0 else 0.0, np.float32)
    row[0, 3] = bad
    with pytest.raises(ValueError, match="infinity"):
        top_k(row, 2, isa=any_isa)


@pytest.mark.parametrize(("shape", "k"), [((2, 5), 6), ((2, 5), 0), ((5,), 1), ((2, 0), 1)])
def test_sizes_that_cannot_be(any_isa, shape, k):
    with pytest.raises(ValueError, match="largest"):
        top_k(np.zeros(shape, np.float32), k, isa=any_isa)


def test_no_rows(any_isa):
    ids, logs = top_k(np.zeros((0, 5), np.float32), 2, isa=any_isa)
    assert (ids.shape, logs.shape) == ((0, 2), (0, 2))


def test_an_instruction_set_that_is_not_there():
    with pytest.raises(ValueError, match="sse9"):
        top_k(np.zeros((1, 5), np.float32), 1, isa="sse9")
