"""From one row of logits to one token id: greedy, or sampled by position-keyed Gumbel noise.

Pure NumPy and without state: the same logits, parameters and position give the same token, alone
or in a tree, in a padded or a trimmed vocabulary. Knows nothing of models, text or requests.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from swiftspec_daemon.errors import EngineError
from swiftspec_daemon.speculation.noise import gumbel

_FIXED_POINT = 2.0**40
"""Weights of the nucleus are summed as integers: sums then do not depend on order or padding."""
_FIRST_CANDIDATES = 256


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    """How a token is picked."""

    temperature: float = 0.0
    """0 is greedy; then nothing else here matters."""
    top_k: int = 0
    """Only the k most probable tokens, and those that tie with the k-th; 0 is all."""
    top_p: float = 1.0
    """Only the smallest set of most probable tokens that holds this much of the probability."""
    seed: int = 0


def pick(
    logits: npt.NDArray[np.float32],
    position: int,
    parameters: SamplingParameters,
    allowed: npt.NDArray[np.intp] | None = None,
) -> int:
    """The token id for absolute position `position` of the sequence.

    `logits` is [vocab], float32. With `allowed` (ids, not empty) all other tokens have probability
    zero. Among equal values the lowest id wins.
    Raises EngineError for logits that are no numbers (NaN, or no finite maximum).
    """
    ids = np.arange(len(logits)) if allowed is None else np.sort(allowed)
    values = logits if allowed is None else logits[ids]
    best = int(np.argmax(values))  # a NaN, if there is one, is what argmax finds
    if not np.isfinite(values[best]):
        raise EngineError(
            "The model computed no valid numbers (NaN or infinity) for the next token.",
            "The model's files may be damaged: try `swiftspec models verify`.",
        )
    if parameters.temperature <= 0:
        return int(ids[best])
    scaled = values.astype(np.float64) / parameters.temperature
    kept = _filter(scaled, parameters.top_k, parameters.top_p)
    if kept is not None:
        ids, scaled = ids[kept], scaled[kept]
    return int(ids[np.argmax(scaled + gumbel(parameters.seed, position, ids))])


def _filter(
    scaled: npt.NDArray[np.float64], top_k: int, top_p: float
) -> npt.NDArray[np.intp] | None:
    """Indices, ascending, that top-k and then top-p leave; None for all."""
    kept: npt.NDArray[np.intp] | None = None
    if 0 < top_k < len(scaled):
        kth = np.partition(scaled, len(scaled) - top_k)[len(scaled) - top_k]
        kept = np.flatnonzero(scaled >= kth)
    if top_p < 1:
        nucleus = _nucleus(scaled if kept is None else scaled[kept], top_p)
        kept = nucleus if kept is None else kept[nucleus]
    return kept


def _nucleus(scaled: npt.NDArray[np.float64], top_p: float) -> npt.NDArray[np.intp]:
    """Indices, ascending, of the smallest most probable set with mass >= top_p, ties included.

    Tokens below 2**-40 of the maximum's probability count as impossible.
    """
    weights = (np.exp(scaled - scaled.max()) * _FIXED_POINT).astype(np.int64)
    needed = top_p * int(weights.sum())
    count = min(_FIRST_CANDIDATES, len(weights))
    while True:
        top = np.sort(np.partition(weights, len(weights) - count)[len(weights) - count :])[::-1]
        enough = np.flatnonzero(np.cumsum(top) >= needed)
        if len(enough):
            return np.flatnonzero(weights >= max(1, int(top[enough[0]])))
        if count == len(weights):  # top_p so near 1 that rounding of the product asks for more
            return np.flatnonzero(weights > 0)
        count = min(4 * count, len(weights))
