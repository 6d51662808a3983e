"""Picking a token: greedy, filters, distribution, and independence of the vocabulary's padding."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from swiftspec_daemon.errors import EngineError
from swiftspec_daemon.speculation.noise import gumbel, uniform, uniform_below
from swiftspec_daemon.speculation.sampling import (
    Distribution,
    SamplingParameters,
    choose,
    distribution,
    greatest,
    log_probs,
    log_total,
    perturb,
    pick,
)

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
        min_p=draw(st.sampled_from([0.0, 0.0, 0.02, 0.5, 1.0])),
        repetition_penalty=draw(st.sampled_from([1.0, 1.0, 1.3, 0.7])),
        logit_bias=draw(st.dictionaries(st.integers(0, 100), st.floats(-9, 9), max_size=3)),
    )


seen_ids = st.one_of(
    st.none(), st.lists(st.integers(0, 100), unique=True).map(lambda ids: np.array(ids, np.intp))
)


@given(finite_logits, st.integers(0, 10_000))
def test_greedy_is_the_first_maximum(logits, position):
    values = logits.tolist()
    assert pick(logits, position, GREEDY) == values.index(max(values))


@given(finite_logits, sampling(), st.integers(0, 5000), st.integers(1, 40), seen_ids)
def test_padding_the_vocabulary_changes_nothing(logits, parameters, position, pad, seen):
    padded = np.concatenate([logits, np.full(pad, -np.inf, dtype=np.float32)])
    token = pick(padded, position, parameters, seen=seen)
    assert token == pick(logits, position, parameters, seen=seen)
    choice = distribution(logits, parameters, seen=seen)
    padded_choice = distribution(padded, parameters, seen=seen)
    assert log_probs(choice, token, 90) == log_probs(padded_choice, token, 90)


@given(finite_logits, sampling(), st.integers(0, 5000), st.data(), seen_ids)
def test_masking_equals_trimming_in_any_order(logits, parameters, position, data, seen):
    ids = data.draw(st.lists(st.integers(0, len(logits) - 1), min_size=1, unique=True))
    masked = np.full_like(logits, -np.inf)
    masked[ids] = logits[ids]
    chosen = pick(logits, position, parameters, np.array(ids), seen)
    assert chosen in ids
    assert chosen == pick(masked, position, parameters, seen=seen)
    trimmed = distribution(logits, parameters, np.array(ids[::-1]), seen)
    whole = distribution(masked, parameters, seen=seen)
    assert log_probs(trimmed, chosen, 90) == log_probs(whole, chosen, 90)


def adjusted(values, parameters, seen):
    """Hugging Face's definitions, token by token."""
    out = list(values)
    for token in range(len(out)):
        out[token] += parameters.logit_bias.get(token, 0.0)
        if seen is not None and token in seen:
            penalty = parameters.repetition_penalty
            out[token] = out[token] * penalty if out[token] < 0 else out[token] / penalty
    return out


def allowed_by_filters(logits, parameters, seen=None):
    """A slow, plain statement of what the processors, top-k, top-p, then min-p leave."""
    values = adjusted(logits.tolist(), parameters, seen)
    scaled = [x / parameters.temperature for x in values]
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
    least = math.log(parameters.min_p) if parameters.min_p else -math.inf
    return {i for i in nucleus if scaled[i] >= scaled[kept[0]] + least - 1e-9}


@given(finite_logits, sampling(), st.integers(0, 5000), seen_ids)
def test_only_tokens_that_the_filters_leave_are_picked(logits, parameters, position, seen):
    token = pick(logits, position, parameters, seen=seen)
    assert token in allowed_by_filters(logits, parameters, seen)


@given(finite_logits, sampling(), st.integers(0, 5000), seen_ids)
def test_bias_and_penalty_act_on_greedy_decoding(logits, parameters, position, seen):
    greedy = SamplingParameters(
        repetition_penalty=parameters.repetition_penalty, logit_bias=parameters.logit_bias
    )
    values = adjusted(logits.tolist(), greedy, seen)
    assert pick(logits, position, greedy, seen=seen) == values.index(max(values))


@given(st.integers(0, 2**32), st.integers(1, 12))
def test_as_hugging_face_does_it(seed, history):
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    generator = np.random.default_rng(seed)
    logits = (generator.normal(size=60) * 3).astype(np.float32)
    ids = generator.integers(0, 60, history)
    penalty, top_k, top_p, min_p, temperature = 1.3, 20, 0.9, 0.05, 0.7
    theirs = torch.tensor(logits)[None]
    for processor in (
        transformers.RepetitionPenaltyLogitsProcessor(penalty),
        transformers.TemperatureLogitsWarper(temperature),
        transformers.TopKLogitsWarper(top_k),
        transformers.TopPLogitsWarper(top_p),
        transformers.MinPLogitsWarper(min_p),
    ):
        theirs = processor(torch.tensor(ids)[None], theirs)
    parameters = SamplingParameters(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=penalty,
    )
    choice = distribution(logits, parameters, seen=np.unique(ids))
    assert choice.ids.tolist() == np.flatnonzero(np.isfinite(theirs[0].numpy())).tolist()
    assert np.allclose(choice.values, theirs[0].numpy()[choice.ids], atol=1e-4)


@st.composite
def rows(draw):
    """Flat, steep, spiked and partly impossible rows, also wider than a block of noise."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    size = draw(st.sampled_from([1, 2, 30, 30, 300, 9000]))
    values = generator.normal(size=size) * draw(st.sampled_from([0.01, 1, 5, 40]))
    if draw(st.booleans()):
        values[generator.integers(size)] += 30
    if draw(st.booleans()):
        values[generator.random(size) < 0.5] = -np.inf
        values[generator.integers(size)] = 0
    return values


@given(rows(), st.integers(0, 1000), st.integers(1, 30), st.booleans())
def test_the_noisy_maximum_is_found_without_all_the_noise(values, position, count, listed):
    ids = np.arange(len(values)) * 3 if listed else None
    sums = values + gumbel(7, position, np.arange(len(values)) if ids is None else ids)
    choice = Distribution(ids, values)
    parameters = SamplingParameters(temperature=1, seed=7)
    assert choose(choice, position, parameters) == choice.token(int(sums.argmax()))
    index, found = perturb(choice, position, 7, count)
    assert (np.diff(index) > 0).all()
    assert (found == sums[index]).all()
    best = greatest(sums, count)
    assert set(best.tolist()) <= set(index.tolist())
    assert index[greatest(found, count)].tolist() == best.tolist()


@given(rows(), st.integers(1, 40))
def test_the_greatest_are_as_a_stable_sort_has_them(values, count):
    expected = [int(i) for i in np.argsort(-values, kind="stable")[:count] if values[i] > -np.inf]
    assert greatest(values, count).tolist() == expected


@given(rows())
def test_the_total_of_a_row(values):
    assert log_total(values) == pytest.approx(np.logaddexp.reduce(values), abs=1e-6)
    order = np.random.default_rng(0).permutation(len(values))
    assert log_total(values[order]) == log_total(values)


@given(st.integers(-5, 2**63), st.integers(0, 5000), st.integers(1, 20_000))
def test_cached_noise_is_the_same(seed, position, count):
    assert (uniform_below(seed, position, count) == uniform(seed, position, np.arange(count))).all()


@pytest.mark.parametrize(
    ("parameters", "kept"),
    [
        (SamplingParameters(temperature=1.0, seed=3), range(8)),
        (SamplingParameters(temperature=0.5, seed=4), range(8)),
        (SamplingParameters(temperature=1.0, top_k=3, seed=5), (0, 3, 6)),
        (SamplingParameters(temperature=1.0, top_p=0.8, seed=6), (0, 1, 3, 6)),
        (SamplingParameters(temperature=1.0, min_p=0.4, seed=7), (0, 1, 3, 6)),
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
