"""Is a cache's content that of a fresh prefill of the same tokens? For every backend."""

from __future__ import annotations

import numpy as np

from swiftspec_daemon.engine.toy import ToyCache


def rows(cache):
    """The content of a cache: of each position of the prefix, and of each pending row."""
    if isinstance(cache, ToyCache):
        return list(cache.states), list(cache.pending)
    if hasattr(cache, "store"):  # transformers; a row's keys and values of all layers
        layers = [layer for layer in cache.store.layers if layer.is_initialized]
        held = [layer.keys[0] for layer in layers] + [layer.values[0] for layer in layers]
        count = held[0].shape[-2] if held else 0
        every = [np.stack([part[:, i].numpy() for part in held]) for i in range(count)]
        return every[: cache.length], every[cache.length :]
    prefix = [np.stack(cache.read(i)) for i in range(cache.length)]
    return prefix, [np.stack(cache.read(i, pending=True)) for i in range(cache.pending)]


def fresh(backend, tokens, capacity):
    """The content of a new cache with `tokens`, by position."""
    cache = backend.new_cache(capacity)
    if tokens:
        backend.append(cache, tokens, logits=False)
    return rows(cache)[0]


def check(backend, cache, ledger, *, tolerance=0.0):
    """The cache holds what the ledger says: its prefix, and each pending row behind its own path.

    With `tolerance` 0 to the bit.
    """
    prefix, pending = rows(cache)
    assert len(prefix) == cache.length == len(ledger.prefix)
    _same(prefix, fresh(backend, ledger.prefix, cache.capacity), tolerance)
    assert len(pending) == len(ledger.tokens)
    paths: list[list[int]] = []
    for token, parent, found in zip(ledger.tokens, ledger.parents, pending, strict=True):
        paths.append([*(paths[parent] if parent >= 0 else []), token])
        expected = fresh(backend, [*ledger.prefix, *paths[-1]], cache.capacity)
        _same([found], expected[-1:], tolerance)


def _same(found, expected, tolerance):
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        if tolerance:
            scale = max(1.0, float(np.abs(theirs).max()))
            assert np.allclose(ours, theirs, rtol=0, atol=tolerance * scale)
        else:
            assert np.array_equal(ours, theirs)
