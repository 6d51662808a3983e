"""Random numbers that are a function of (seed, absolute position, token id) and of nothing else.

Knows integers only: no logits, no vocabulary size, no state. That is what makes a sampled text
independent of how the vocabulary is padded, trimmed or sharded, and of which rows were computed
together. Streams with different tags are independent of each other.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_MASK = (1 << 64) - 1
_CACHED_ROWS = 12
_BLOCK = 8192


def _mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The output function of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), element by element.

    Overwrites `values`.
    """
    for shift, factor in ((30, _MIX_1), (27, _MIX_2)):
        values ^= values >> np.uint64(shift)
        values *= factor
    values ^= values >> np.uint64(31)
    return values


def _start(seed: int, position: int, tag: int) -> npt.NDArray[np.uint64]:
    """Where the stream of a position starts, uint64 [1]."""
    start = _mix(np.array([seed & _MASK], dtype=np.uint64))
    start = _mix(start + np.array([(position + 1) & _MASK], dtype=np.uint64) * _GOLDEN)
    if tag:  # the untagged stream is that of the target's tokens
        start = _mix(start ^ _mix(np.array([tag & _MASK], dtype=np.uint64)))
    return start


def hash_ids(
    seed: int, position: int, ids: npt.NDArray[np.integer], tag: int = 0
) -> npt.NDArray[np.uint64]:
    """64 random bits for each token id, uint64 of the shape of `ids`.

    The SplitMix64 stream whose start is derived from seed, position and tag, read at `ids`.
    `seed` is any integer (taken modulo 2**64); `position`, `ids` and `tag` are not negative.
    """
    return _mix(_start(seed, position, tag) + (ids.astype(np.uint64) + np.uint64(1)) * _GOLDEN)


def uniform(
    seed: int, position: int, ids: npt.NDArray[np.integer], tag: int = 0
) -> npt.NDArray[np.float64]:
    """Uniform numbers strictly between 0 and 1, one for each token id."""
    return _to_unit(hash_ids(seed, position, ids, tag))


@lru_cache(maxsize=_CACHED_ROWS)
def uniform_below(seed: int, position: int, count: int) -> npt.NDArray[np.float64]:
    """`uniform` of the ids below `count`, read-only.

    The last few are kept: all nodes of one depth, of the draft and of the target, share a position.
    """
    start = _start(seed, position, 0)
    values = np.empty(count)
    steps = _steps(count)
    for first in range(0, count, _BLOCK):  # blocks stay in the cache of the processor
        block = slice(first, first + _BLOCK)
        values[block] = _to_unit(_mix(start + steps[block]))
    values.flags.writeable = False
    return values


def gumbel(
    seed: int, position: int, ids: npt.NDArray[np.integer], tag: int = 0
) -> npt.NDArray[np.float64]:
    """Standard Gumbel noise, one value for each token id.

    argmax(logits + noise) is a sample of softmax(logits) (the Gumbel-max trick).
    """
    return to_gumbel(uniform(seed, position, ids, tag))


def to_gumbel(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Standard Gumbel numbers from uniform ones, by the inverse of their distribution function."""
    gumbels: npt.NDArray[np.float64] = -np.log(-np.log(values))
    return gumbels


def _to_unit(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    values = (bits >> np.uint64(12)).astype(np.float64)
    values += 0.5
    values *= 2.0**-52
    return values


@lru_cache(maxsize=2)
def _steps(count: int) -> npt.NDArray[np.uint64]:
    """How far each id's number lies in its stream."""
    steps = np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN
    steps.flags.writeable = False
    return steps
