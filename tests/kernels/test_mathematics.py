"""The quantised forward pass against the mathematics, and the kernels against their reference."""

import numpy as np
import pytest

NAMES = [
    "llama",
    "llama-tied-head80-odd",
    "llama-head128",
    "llama-head8",
    "llama-group7",
    "qwen2",
    "qwen3",
    "llama3-rope",
    "yarn-rope",
]


def error(got, wanted):
    """Relative distance."""
    return np.linalg.norm(got - wanted) / np.linalg.norm(wanted)


@pytest.mark.parametrize("name", NAMES)
def test_chain_follows_the_mathematics(tiny, oracle, any_isa, name):
    """Int8 weights and activations cost about 2 % here; a wrong bias, norm or angle tens."""
    model = tiny.model(name)
    tokens = model.tokens(150)
    running = model.open(any_isa)
    got = running.append(running.new_cache(200), tokens, logits="all")
    assert got.shape == (150, model.spec.vocab)
    assert error(got, oracle.logits(model.spec, model.weights, tokens)) < 0.04


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_tree_follows_the_mathematics(tiny, oracle, any_isa, name):
    model = tiny.model(name)
    prefix, tree = model.tokens(140), model.tokens(9, seed=1)
    parents = [-1, 0, 0, 1, 1, 3, -1, 6, 4]
    running = model.open(any_isa)
    cache = running.new_cache(200)
    running.append(cache, prefix, logits="none")
    got = running.speculate(cache, tree, parents)
    joined = [i - 1 for i in range(140)] + [139 if p < 0 else 140 + p for p in parents]
    wanted = oracle.logits(model.spec, model.weights, prefix + tree, parents=joined)[140:]
    assert error(got, wanted) < 0.04


def test_a_wrong_position_would_be_seen(tiny, oracle):
    """The bound above is not so wide that a row's position could be off by one."""
    model = tiny.model("llama")
    tokens = model.tokens(60)
    wanted = oracle.logits(model.spec, model.weights, tokens)[-1]
    shifted = oracle.logits(model.spec, model.weights, tokens[:-2] + tokens[-1:])[-1]
    assert error(shifted, wanted) > 0.04


def row_errors(got, wanted):
    return np.linalg.norm(got - wanted, axis=1) / np.linalg.norm(wanted, axis=1)


@pytest.mark.parametrize("name", NAMES)
def test_kernels_follow_their_reference(tiny, isa, name):
    """Same integers; floats differ in the last bits, which now and then flips a rounding.

    One layer: in a second one, all rows after a flip would carry its trace in their keys.
    """
    model = tiny.model(name, layers=1)
    tokens = model.tokens(300)
    results = []
    for each in ("numpy", isa):
        running = model.open(each, threads=2)
        cache = running.new_cache(400)
        chain = running.append(cache, tokens[:270], logits="all")
        tree = running.speculate(cache, tokens[270:276], [-1, 0, 0, 1, -1, 2])
        running.commit(cache, [0, 2, 5])
        results.append(np.concatenate([chain, tree, running.append(cache, tokens[276:])]))
    errors = row_errors(results[1], results[0])
    assert np.median(errors) < 2e-6
    assert errors.max() < 0.03


def exact_model(tiny, hidden, sign):
    """Attention and network add nothing, every value is at its extreme: logits are sums of 127²."""
    of = tiny.spec(hidden=hidden, layers=1, vocab=70)
    weights = tiny.random_weights(of)
    weights["model.embed_tokens.weight"][:] = 3.0
    weights["model.layers.0.self_attn.o_proj.weight"][:] = 0
    weights["model.layers.0.mlp.down_proj.weight"][:] = 0
    weights["model.norm.weight"][:] = 1
    weights["lm_head.weight"][:] = sign * 0.5
    weights["lm_head.weight"][1] *= np.where(np.arange(hidden) % 2, 1, -1)
    return tiny.build(of, weights)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("hidden", [64, 100, 2048, 14336])
def test_extreme_values_do_not_saturate(tiny, any_isa, hidden, sign):
    """u8 times s8 pairs would overflow 16 bits; sums must not."""
    model = exact_model(tiny, hidden, sign)
    running = model.open(any_isa)
    logits = running.append(running.new_cache(16), [5])[0]
    normed = 3.0 / np.sqrt(9.0 + 1e-5)
    wanted = np.full(70, sign * 0.5 * hidden * normed)
    wanted[1] = 0.0
    np.testing.assert_allclose(logits, wanted, rtol=1e-5, atol=1e-4)


def test_instruction_sets_agree(tiny):
    """Portable and AVX-512 differ by fused multiply-adds only."""
    from swiftspec_daemon.kernels.native.library import load

    if not load().has_isa("avx512-vnni"):
        pytest.skip("this machine does not run avx512-vnni")
    model = tiny.model("qwen2", layers=1)
    results = []
    for isa in ("portable", "avx512-vnni"):
        running = model.open(isa)
        results.append(running.append(running.new_cache(200), model.tokens(150), logits="all"))
    assert np.median(row_errors(results[1], results[0])) < 2e-6
