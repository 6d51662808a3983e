"""Picking a token: greedy, filters, distribution, and independence of the vocabulary's padding."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from swiftspec_daemon.errors import EngineError
from swiftspec_daemon.speculation.sampling import SamplingParameters, pick

GREEDY = SamplingParameters()
finite_logits = arrays(
    np.float32, st.integers(1, 80), elements=st.floats(-30, 30, width=32, allow_nan=False)
)


@st.composite
def sampling(draw):
    return SamplingParameters(
        temperature=draw(st.floats(0.05, 5)),
        top_k=draw(st.integers(0, 90)),
        top_p=draw(st.floats(0.01, 1)),
        seed=draw(st.integers(-5, 2**63)),
    )


@given(finite_logits, st.integers(0, 10_000))
def test_greedy_is_the_first_maximum(logits, position):
    values = logits.tolist()
    assert pick(logits, position, GREEDY) == values.index(max(values))


@given(finite_logits, sampling(), st.integers(0, 5000), st.integers(1, 40))
def test_padding_the_vocabulary_changes_nothing(logits, parameters, position, pad):
    padded = np.concatenate([logits, np.full(pad, -np.inf, dtype=np.float32)])
    assert pick(padded, position, parameters) == pick(logits, position, parameters)


@given(finite_logits, sampling(), st.integers(0, 5000), st.data())
def test_masking_equals_trimming(logits, parameters, position, data):
    ids = data.draw(st.lists(st.integers(0, len(logits) - 1), min_size=1, unique=True))
    masked = np.full_like(logits, -np.inf)
    masked[ids] = logits[ids]
    chosen = pick(logits, position, parameters, np.array(ids))
    assert chosen in ids
    assert chosen == pick(masked, position, parameters)


def allowed_by_filters(logits, parameters):
    """A slow, plain statement of what top-k then top-p leave."""
    scaled = [x / parameters.temperature for x in logits.tolist()]
    kept = sorted(range(len(scaled)), key=lambda i: -scaled[i])
    if parameters.top_k:
        bound = scaled[kept[min(parameters.top_k, len(kept)) - 1]]
        kept = [i for i in kept if scaled[i] >= bound]
    weights = [math.exp(scaled[i] - scaled[kept[0]]) for i in kept]
    needed = parameters.top_p * sum(weights) * (1 + 1e-9)
    mass, smallest, nucleus = 0.0, weights[0], set()
    for i, weight in zip(kept, weights, strict=True):
        if mass >= needed and weight < smallest * (1 - 1e-9):
            break
        nucleus.add(i)
        mass += weight
        smallest = weight
    return nucleus


@given(finite_logits, sampling(), st.integers(0, 5000))
def test_only_tokens_that_the_filters_leave_are_picked(logits, parameters, position):
    assert pick(logits, position, parameters) in allowed_by_filters(logits, parameters)


@pytest.mark.parametrize(
    ("parameters", "kept"),
    [
        (SamplingParameters(temperature=1.0, seed=3), range(8)),
        (SamplingParameters(temperature=0.5, seed=4), range(8)),
        (SamplingParameters(temperature=1.0, top_k=3, seed=5), (0, 3, 6)),
        (SamplingParameters(temperature=1.0, top_p=0.8, seed=6), (0, 1, 3, 6)),
    ],
)
def test_distribution(parameters, kept):
    probabilities = np.array([0.25, 0.12, 0.05, 0.2, 0.08, 0.03, 0.24, 0.03])
    logits = np.log(probabilities).astype(np.float32)
    draws = 6_000
    counts = np.bincount([pick(logits, i, parameters) for i in range(draws)], minlength=8)
    expected = np.zeros(8)
    expected[list(kept)] = probabilities[list(kept)] ** (1 / parameters.temperature)
    expected *= draws / expected.sum()
    assert counts[expected == 0].sum() == 0
    used = expected > 0
    chi_square = ((counts[used] - expected[used]) ** 2 / expected[used]).sum()
    # Mean + 4 standard deviations of chi-square; the noise is fixed by the seed.
    degrees = used.sum() - 1
    assert chi_square < degrees + 4 * math.sqrt(2 * degrees)


def test_top_k_one_and_tiny_top_p_are_greedy():
    logits = np.random.default_rng(0).normal(size=5000).astype(np.float32)
    best = int(logits.argmax())
    for position in range(50):
        assert pick(logits, position, SamplingParameters(temperature=2, top_k=1)) == best
        assert pick(logits, position, SamplingParameters(temperature=2, top_p=1e-6)) == best


def test_nucleus_wider_than_the_first_candidates():
    logits = np.zeros(3000, dtype=np.float32)
    logits[::3] = 1.0
    heavy = set(range(0, 3000, 3))
    mass = 1000 * math.e / (1000 * math.e + 2000)
    narrow = SamplingParameters(temperature=1, top_p=mass * 0.99)
    assert {pick(logits, i, narrow) for i in range(300)} <= heavy
    wide = SamplingParameters(temperature=1, top_p=0.999)
    assert not {pick(logits, i, wide) for i in range(300)} <= heavy


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("parameters", [GREEDY, SamplingParameters(temperature=1)])
def test_numbers_that_are_none_are_an_error(bad, parameters):
    logits = np.zeros(100, dtype=np.float32)
    logits[60] = bad
    with pytest.raises(EngineError, match="no valid numbers"):
        pick(logits, 0, parameters)
    with pytest.raises(EngineError):
        pick(np.full(5, -np.inf, dtype=np.float32), 0, parameters)
