"""Commit, truncate, limits and misuse of a cache, on every implementation."""

import numpy as np
import pytest

from swiftspec_daemon.kernels.native.model import CacheFull


@pytest.fixture
def opened(tiny, any_isa):
    """A model and its tokens."""
    model = tiny.model("qwen2")
    return model.open(any_isa, threads=2), model.tokens(300)


def test_commit_equals_a_fresh_prefill(opened):
    running, tokens = opened
    cache = running.new_cache(300)
    running.append(cache, tokens[:125], logits="none")
    running.speculate(cache, [7, *tokens[125:130], 9], [-1, -1, 1, 2, 3, 4, 0])
    running.commit(cache, [1, 2, 3, 4, 5])
    assert cache.length == 130
    fresh = running.new_cache(300)
    running.append(fresh, tokens[:130], logits="none")
    tail = tokens[130:150]
    wanted = running.append(fresh, tail, logits="all")
    np.testing.assert_array_equal(running.append(cache, tail, logits="all"), wanted)


def test_committing_part_of_a_path(opened):
    running, tokens = opened
    cache = running.new_cache(64)
    running.append(cache, tokens[:10], logits="none")
    running.speculate(cache, tokens[10:14], [-1, 0, 1, 2])
    running.commit(cache, [0, 1])
    fresh = running.new_cache(64)
    running.append(fresh, tokens[:12], logits="none")
    np.testing.assert_array_equal(running.append(cache, [5]), running.append(fresh, [5]))


def test_an_empty_commit_drops_the_tree(opened):
    running, tokens = opened
    cache = running.new_cache(64)
    running.append(cache, tokens[:10], logits="none")
    running.speculate(cache, [1], [-1])
    running.commit(cache, [])
    assert cache.length == 10
    with pytest.raises(ValueError, match="path"):
        running.commit(cache, [0])


def test_truncate_forgets(opened):
    running, tokens = opened
    cache = running.new_cache(300)
    running.append(cache, tokens[:200], logits="none")
    running.truncate(cache, 131)
    assert cache.length == 131
    fresh = running.new_cache(300)
    running.append(fresh, tokens[:131], logits="none")
    wanted = running.append(fresh, tokens[250:], logits="all")
    np.testing.assert_array_equal(running.append(cache, tokens[250:], logits="all"), wanted)


def test_truncate_and_append_drop_a_pending_tree(opened):
    running, tokens = opened
    cache = running.new_cache(64)
    running.append(cache, tokens[:10], logits="none")
    for drop in (lambda: running.truncate(cache, 10), lambda: running.append(cache, [1])):
        running.speculate(cache, [1, 2], [-1, 0])
        drop()
        with pytest.raises(ValueError, match="path"):
            running.commit(cache, [0])


def test_a_second_tree_replaces_the_first(opened):
    running, tokens = opened
    cache = running.new_cache(64)
    running.append(cache, tokens[:10], logits="none")
    running.speculate(cache, [1, 2, 3], [-1, 0, 1])
    running.speculate(cache, [4], [-1])
    with pytest.raises(ValueError, match="path"):
        running.commit(cache, [0, 1])
    running.commit(cache, [0])
    fresh = running.new_cache(64)
    running.append(fresh, [*tokens[:10], 4], logits="none")
    np.testing.assert_array_equal(running.append(cache, [5]), running.append(fresh, [5]))


@pytest.mark.parametrize("path", [[1], [0, 2], [0, 0], [-1], [3], [0, 1, 2]])
def test_what_is_no_path_is_refused(opened, path):
    running, tokens = opened
    cache = running.new_cache(64)
    running.append(cache, tokens[:10], logits="none")
    running.speculate(cache, [1, 2, 3], [-1, 0, -1])
    with pytest.raises(ValueError, match="path"):
        running.commit(cache, path)
    running.commit(cache, [0, 1])
    assert cache.length == 12


def test_what_does_not_fit_is_refused_and_changes_nothing(opened):
    running, tokens = opened
    cache = running.new_cache(20)
    running.append(cache, tokens[:15], logits="none")
    with pytest.raises(CacheFull):
        running.append(cache, tokens[:6], logits="none")
    with pytest.raises(CacheFull):
        running.speculate(cache, tokens[:6], [-1, 0, 1, 2, 3, 4])
    assert cache.length == 15
    assert running.speculate(cache, tokens[:6], [-1] * 6).shape == (6, 131)
    assert running.append(cache, tokens[:5]) is not None


def test_the_models_context_is_a_limit_too(opened):
    running, _ = opened
    cache = running.new_cache(700)
    running.append(cache, [1] * 600, logits="none")
    with pytest.raises(CacheFull):
        running.append(cache, [1])


@pytest.mark.parametrize("tokens", [[], [131], [-1], [2**40]])
def test_bad_tokens(opened, tokens):
    running, _ = opened
    cache = running.new_cache(20)
    with pytest.raises(ValueError):
        running.append(cache, tokens)
    with pytest.raises(ValueError):
        running.speculate(cache, tokens, [-1] * len(tokens))
    assert cache.length == 0


@pytest.mark.parametrize("parents", [[0], [-2], [-1, 1], [-1, -1, -1], []])
def test_bad_parents(opened, parents):
    running, _ = opened
    with pytest.raises(ValueError):
        running.speculate(running.new_cache(20), [1, 2][: max(1, len(parents))], parents)


def test_a_tree_may_have_64_rows(opened):
    running, tokens = opened
    cache = running.new_cache(100)
    assert running.speculate(cache, tokens[:64], [-1] * 64).shape == (64, 131)
    with pytest.raises(ValueError, match="64"):
        running.speculate(cache, tokens[:65], [-1] * 65)


def test_a_cache_of_another_model_is_refused(tiny, any_isa):
    one, other = tiny.model("llama").open(any_isa), tiny.model("qwen3").open(any_isa)
    with pytest.raises(ValueError, match="another model"):
        one.append(other.new_cache(20), [1])


def test_cache_bytes_grow_with_capacity(opened):
    running, _ = opened
    per_position = 2 * 2 * 2 * 64 * (4 if running.isa == "numpy" else 2)
    grown = running.cache_bytes(1600) - running.cache_bytes(800)
    assert grown == 800 * per_position
