"""A row's bits do not depend on its company: block splits, trees, slots, threads, earlier cuts."""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swiftspec_daemon.kernels.native.library import load

FIXTURES = [HealthCheck.function_scoped_fixture]


def chain_logits(running, tokens):
    """Logits of each token, decoded one by one."""
    cache = running.new_cache(500)
    return np.concatenate([running.append(cache, [token]) for token in tokens])


def same_bits(a, b):
    return np.array_equal(a.view(np.uint32), b.view(np.uint32))


@st.composite
def trees(draw, rows=16):
    """parents[] of a random tree, in any topological order."""
    count = draw(st.integers(1, rows))
    return [draw(st.integers(-1, i - 1)) for i in range(count)]


@pytest.mark.parametrize("name", ["llama", "llama-tied-head80-odd", "qwen2", "qwen3"])
def test_prefill_has_the_bits_of_decoding(tiny, isa, name):
    model = tiny.model(name)
    tokens = model.tokens(290)
    one_by_one = chain_logits(model.open(isa), tokens)
    for threads in (1, 2, 3):
        running = model.open(isa, threads=threads)
        got = running.append(running.new_cache(500), tokens, logits="all")
        assert same_bits(got, one_by_one), threads


@settings(max_examples=25, deadline=None, suppress_health_check=FIXTURES)
@given(cuts=st.lists(st.integers(1, 180), max_size=6), threads=st.integers(1, 4))
def test_any_split_of_a_prompt(tiny, isa, cuts, threads):
    model = tiny.model("llama-group7")
    tokens = model.tokens(200)
    whole = model.open(isa)
    wanted = whole.append(whole.new_cache(256), tokens, logits="all")
    running = model.open(isa, threads=threads)
    cache = running.new_cache(256)
    edges = sorted({0, 200, *cuts})
    parts = [tokens[a:b] for a, b in itertools.pairwise(edges)]
    got = np.concatenate([running.append(cache, part, logits="all") for part in parts])
    assert same_bits(got, wanted)


@settings(max_examples=40, deadline=None, suppress_health_check=FIXTURES)
@given(parents=trees(), prefix=st.integers(0, 270), threads=st.integers(1, 3))
def test_any_tree(tiny, isa, parents, prefix, threads):
    """Every node has the logits of plain decoding along its path."""
    model = tiny.model("llama")
    tokens, nodes = model.tokens(prefix), model.tokens(len(parents), seed=len(parents))
    running = model.open(isa, threads=threads)
    cache = running.new_cache(300)
    if tokens:
        running.append(cache, tokens, logits="none")
    got = running.speculate(cache, nodes, parents)
    plain = model.open(isa)
    for row, parent in enumerate(parents):
        path = [row]
        while parent >= 0:
            path.insert(0, parent)
            parent = parents[parent]
        alone = plain.new_cache(300)
        wanted = plain.append(alone, tokens + [nodes[i] for i in path])
        assert same_bits(got[row], wanted[0]), (row, path)


@pytest.mark.parametrize("prefix", [0, 1, 111, 112, 126, 127, 128, 129, 240, 255, 256, 257])
@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_chains_across_chunk_edges(tiny, isa, name, prefix):
    """Deep chains in the tail cross blocks of 16 and chunks of 128 positions at every offset."""
    model = tiny.model(name)
    tokens = model.tokens(prefix + 40)
    running = model.open(isa)
    wanted = running.append(running.new_cache(500), tokens, logits="all")[prefix:]
    cache = running.new_cache(500)
    if prefix:
        running.append(cache, tokens[:prefix], logits="none")
    got = running.speculate(cache, tokens[prefix:], range(-1, 39))
    assert same_bits(got, wanted)


def test_slots_of_a_tree_may_be_in_any_order(tiny, isa):
    model = tiny.model("llama")
    running = model.open(isa)
    cache = running.new_cache(200)
    running.append(cache, model.tokens(120), logits="none")
    nodes, parents = [3, 4, 5, 6, 7, 8, 9, 10], [-1, 0, 1, 2, -1, 4, 5, 6]
    order = [4, 0, 5, 1, 6, 2, 7, 3]
    place = {old: new for new, old in enumerate(order)}
    moved = [place.get(parents[old], -1) for old in order]
    first = running.speculate(cache, nodes, parents)
    second = running.speculate(cache, [nodes[old] for old in order], moved)
    assert same_bits(second, first[order])


@pytest.mark.parametrize("rows", range(1, 18))
def test_every_number_of_rows(tiny, isa, rows):
    model = tiny.model("llama-tied-head80-odd")
    running = model.open(isa, threads=2)
    cache = running.new_cache(200)
    running.append(cache, model.tokens(60), logits="none")
    nodes = model.tokens(rows, seed=3)
    together = running.speculate(cache, nodes, [-1] * rows)
    for row, token in enumerate(nodes):
        assert same_bits(running.speculate(cache, [token], [-1])[0], together[row])


@pytest.mark.parametrize("rows", [*range(1, 18), 40])
def test_tiles_have_the_bits_of_vectors(tiny, rows):
    """Integer sums are exact and the groups' order is the same, so the machine may be changed."""
    if not load().has_isa("amx-int8"):
        pytest.skip("this machine does not run amx-int8")
    model = tiny.model("llama")
    results = []
    for isa in ("avx512-vnni", "amx-int8"):
        running = model.open(isa, threads=2)
        results.append(running.append(running.new_cache(100), model.tokens(rows), logits="all"))
    assert same_bits(*results)


def test_the_reference_keeps_rows_apart_too(tiny):
    model = tiny.model("llama")
    running = model.open("numpy")
    tokens = model.tokens(140)
    one_by_one = chain_logits(running, tokens)
    assert same_bits(running.append(running.new_cache(200), tokens, logits="all"), one_by_one)
