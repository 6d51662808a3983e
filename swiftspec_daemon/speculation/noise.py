"""Random numbers that are a function of (seed, absolute position, token id) and of nothing else.

Knows integers only: no logits, no vocabulary size, no state. That is what makes a sampled text
independent of how the vocabulary is padded, trimmed or sharded, and of which rows were computed
together.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_MASK = (1 << 64) - 1


def _mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The output function of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), element by element."""
    values = (values ^ (values >> np.uint64(30))) * _MIX_1
    values = (values ^ (values >> np.uint64(27))) * _MIX_2
    return values ^ (values >> np.uint64(31))


def hash_ids(seed: int, position: int, ids: npt.NDArray[np.integer]) -> npt.NDArray[np.uint64]:
    """64 random bits for each token id, uint64 of the shape of `ids`.

    The SplitMix64 stream whose start is derived from seed and position, read at `ids`.
    `seed` is any integer (taken modulo 2**64), `position` and `ids` are not negative.
    """
    start = _mix(np.array([seed & _MASK], dtype=np.uint64))
    start = _mix(start + np.array([(position + 1) & _MASK], dtype=np.uint64) * _GOLDEN)
    return _mix(start + (ids.astype(np.uint64) + np.uint64(1)) * _GOLDEN)


def uniform(seed: int, position: int, ids: npt.NDArray[np.integer]) -> npt.NDArray[np.float64]:
    """Uniform numbers strictly between 0 and 1, one for each token id."""
    bits = hash_ids(seed, position, ids) >> np.uint64(12)
    return (bits.astype(np.float64) + 0.5) * 2.0**-52


def gumbel(seed: int, position: int, ids: npt.NDArray[np.integer]) -> npt.NDArray[np.float64]:
    """Standard Gumbel noise, one value for each token id.

    argmax(logits + noise) is a sample of softmax(logits) (the Gumbel-max trick).
    """
    return -np.log(-np.log(uniform(seed, position, ids)))
