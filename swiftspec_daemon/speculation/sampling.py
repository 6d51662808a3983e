"""From one row of logits to one token id: greedy, or sampled by position-keyed Gumbel noise.

Pure NumPy and without state: the same logits, parameters, position and history give the same token,
alone or in a tree, in a padded or a trimmed vocabulary. Knows nothing of models, text or requests.

The order of the processors is that of Hugging Face's `generate`: logit bias, repetition penalty,
temperature, top-k, top-p, min-p; then the noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from swiftspec_daemon.errors import EngineError
from swiftspec_daemon.speculation.noise import to_gumbel, uniform, uniform_below

Ids = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float32] | npt.NDArray[np.float64]

_FIXED_POINT = 2.0**40
"""Weights are summed as integers: sums then do not depend on order or padding."""
_EXACT_TERMS = 2**13
_FIRST_CANDIDATES = 256
_NEAR = 8.0
"""Tokens less than this below the maximum are tried first for the noisy maximum."""
_FEW = 16


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    """How a token is picked."""

    temperature: float = 0.0
    """0 is greedy; of the rest only penalty and bias matter then."""
    top_k: int = 0
    """Only the k most probable tokens, and those that tie with the k-th; 0 is all."""
    top_p: float = 1.0
    """Only the smallest set of most probable tokens that holds this much of the probability."""
    seed: int = 0
    min_p: float = 0.0
    """Only tokens with at least this part of the most probable one's probability."""
    repetition_penalty: float = 1.0
    """Logits of tokens that have occurred, in prompt or new text, are divided by it if positive,
    else multiplied (CTRL, arXiv 1909.05858, section 4.1; Hugging Face's definition)."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """Added to the logits of these token ids, before everything else."""

    @property
    def greedy(self) -> bool:
        return self.temperature <= 0

    @property
    def adjusts(self) -> bool:
        """Logits are changed before a token is picked."""
        return self.repetition_penalty != 1 or bool(self.logit_bias)


class LogProbs(NamedTuple):
    """Natural logarithms of probabilities, of the distribution that a token was picked from.

    Before the noise, after all processors and masks. Greedy: of the softmax at temperature 1.
    """

    log_prob: float
    """Of the token that was picked."""
    top_ids: list[int]
    """The most probable tokens, best first; among equals the lowest id."""
    top_log_probs: list[float]


class Distribution(NamedTuple):
    """What may be picked, and how probable it is."""

    ids: Ids | None
    """Ascending token ids of `values`; None: id i is at index i."""
    values: Floats
    """Unnormalised log-probabilities; -inf is impossible."""

    def token(self, index: int) -> int:
        return index if self.ids is None else int(self.ids[index])


def greedy(logits: npt.NDArray[np.float32]) -> int:
    """The index of the maximum, the lowest among equals. Raises EngineError as `pick`."""
    best = int(logits.argmax())  # a NaN, if there is one, is what argmax finds
    if not math.isfinite(logits[best]):
        raise _no_numbers()
    return best


def pick(
    logits: npt.NDArray[np.float32],
    position: int,
    parameters: SamplingParameters,
    allowed: Ids | None = None,
    seen: Ids | None = None,
) -> int:
    """The token id for absolute position `position` of the sequence.

    `logits` is [vocab], float32. With `allowed` (ids, not empty) all other tokens have probability
    zero. `seen` are the distinct ids that have occurred, for the repetition penalty. Among equal
    values the lowest id wins.
    Raises EngineError for logits that are no numbers (NaN, or no finite maximum).
    """
    return choose(distribution(logits, parameters, allowed, seen), position, parameters)


def distribution(
    logits: npt.NDArray[np.float32],
    parameters: SamplingParameters,
    allowed: Ids | None = None,
    seen: Ids | None = None,
) -> Distribution:
    """What `pick` picks from; arguments and errors as there."""
    values: Floats = logits
    if parameters.adjusts:
        values = _adjust(logits, parameters, seen)
    ids = None if allowed is None else np.sort(allowed)
    if ids is not None:
        values = values[ids]
    if not math.isfinite(values[int(values.argmax())]):
        raise _no_numbers()
    if parameters.greedy:
        return Distribution(ids, values)
    scaled = values.astype(np.float64) / parameters.temperature
    kept = _filter(scaled, parameters)
    if kept is None:
        return Distribution(ids, scaled)
    return Distribution(kept if ids is None else ids[kept], scaled[kept])


def choose(choice: Distribution, position: int, parameters: SamplingParameters) -> int:
    """The token id that greedy decoding or the noise of this position picks."""
    if parameters.greedy:
        return choice.token(int(choice.values.argmax()))
    index, scores = perturb(choice, position, parameters.seed, 1)
    return choice.token(int(index[scores.argmax()]))


def perturb(
    choice: Distribution, position: int, seed: int, count: int
) -> tuple[Ids, npt.NDArray[np.float64]]:
    """Indices, ascending, into `choice.values`, and these values plus their Gumbel noise.

    The `count` greatest sums are among them; the others are left out unless they might have been.
    Noise of a far less probable token can hardly lift it to the top, and how much it needs is
    compared with its uniform number, so that few logarithms are taken.
    """
    ids, values = choice
    if ids is None:
        noise = uniform_below(seed, position, len(values))
    else:
        noise = uniform(seed, position, ids)
    bound = float(values.max()) - _NEAR
    near = values >= bound
    index = np.flatnonzero(near)
    if len(index) < count:
        index = np.sort(greatest(values, count))
        bound = float(values[index].min())
        near = values >= bound
        index = np.flatnonzero(near)
    scores = values[index] + to_gumbel(noise[index])
    reached = float(np.sort(scores)[-min(count, len(scores))])
    if len(index) < len(values) and math.isfinite(reached):
        # Values below `bound` need noise of at least this, less a margin for rounding.
        lift = max(reached - bound - 1e-6, -700.0)
        lucky = noise >= math.exp(-math.exp(-lift)) - 2.0**-51
        index = np.flatnonzero(near | lucky)
        scores = values[index] + to_gumbel(noise[index])
    return index, scores


def log_probs(choice: Distribution, token: int, top: int) -> LogProbs:
    """Those of `token`, which may be picked, and of the `top` most probable ones."""
    ids, values = choice
    index = token if ids is None else int(np.searchsorted(ids, token))
    total = log_total(values)
    best = greatest(values, top).tolist()
    return LogProbs(
        float(values[index]) - total,
        [choice.token(i) for i in best],
        [float(values[i]) - total for i in best],
    )


def log_total(values: Floats) -> float:
    """log(sum(exp(values))) of a row with a finite maximum, to about 1e-7; order does not matter.

    Terms are summed in fixed point, so that masked or padded entries (-inf) change no bit.
    """
    wide = values.astype(np.float64)
    return float(wide.max()) + math.log(_total(_weights(wide)) / _FIXED_POINT)


def top_log_probs(logits: Floats, count: int) -> tuple[list[int], list[float]]:
    """Indices of the `count` greatest logits, best first, and the log-softmax at them.

    Fast rather than exact: for drafts, where it decides nothing. Raises EngineError for
    logits that are no numbers (NaN first of all, or no finite maximum).
    """
    best = greatest(logits, count)
    most = float(logits[best[0]]) if len(best) else -math.inf
    if not math.isfinite(most):
        raise _no_numbers()
    total = most + math.log(float(np.exp(logits - logits[best[0]]).sum()))
    return best.tolist(), [value - total for value in logits[best].tolist()]


def greatest(values: Floats, count: int) -> Ids:
    """Indices of the `count` greatest values, best first, the lowest index first among equals.

    Fewer where there are fewer that are not -inf. A NaN comes first.
    """
    if count > _FEW:  # a pass of argmax takes microseconds, a partition hundreds of them
        count = min(count, len(values))
        bound = np.partition(values, len(values) - count)[len(values) - count]
        above = np.flatnonzero((values >= bound) & (values > -np.inf))
        order: Ids = above[np.argsort(-values[above], kind="stable")][:count]
        return order
    left = values.copy()
    found: list[int] = []
    for _ in range(count):
        best = int(left.argmax())
        if left[best] == -np.inf:
            break
        found.append(best)
        left[best] = -np.inf
    return np.array(found, dtype=np.intp)


def _adjust(
    logits: npt.NDArray[np.float32], parameters: SamplingParameters, seen: Ids | None
) -> npt.NDArray[np.float64]:
    """Logits after bias and penalty. Ids beyond the row are left out of account."""
    values = logits.astype(np.float64)
    size = len(values)
    for token, bias in parameters.logit_bias.items():
        if token < size:
            values[token] += bias
    penalty = parameters.repetition_penalty
    if penalty != 1 and seen is not None:
        ids = seen[seen < size]
        old = values[ids]
        values[ids] = np.where(old < 0, old * penalty, old / penalty)
    return values


def _filter(scaled: npt.NDArray[np.float64], parameters: SamplingParameters) -> Ids | None:
    """Indices, ascending, that top-k, then top-p, then min-p leave; None for all."""
    kept: Ids | None = None
    top_k = parameters.top_k
    if 0 < top_k < len(scaled):
        kth = np.partition(scaled, len(scaled) - top_k)[len(scaled) - top_k]
        kept = np.flatnonzero(scaled >= kth)
    if parameters.top_p < 1:
        nucleus = _nucleus(scaled if kept is None else scaled[kept], parameters.top_p)
        kept = nucleus if kept is None else kept[nucleus]
    if parameters.min_p > 0:
        # The most probable token is always left, so its probability may stay unnormalised.
        bound = float(scaled.max()) + math.log(parameters.min_p)
        likely = np.flatnonzero((scaled if kept is None else scaled[kept]) >= bound)
        kept = likely if kept is None else kept[likely]
    return kept


def _nucleus(scaled: npt.NDArray[np.float64], top_p: float) -> Ids:
    """Indices, ascending, of the smallest most probable set with mass >= top_p, ties included.

    Tokens below 2**-40 of the maximum's probability count as impossible.
    """
    weights = _weights(scaled)
    needed = top_p * _total(weights)
    count = min(_FIRST_CANDIDATES, len(weights))
    while True:
        top = np.sort(np.partition(weights, len(weights) - count)[len(weights) - count :])[::-1]
        enough = np.flatnonzero(np.cumsum(top.astype(np.int64)) >= needed)
        if len(enough):
            return np.flatnonzero(weights >= max(1.0, float(top[enough[0]])))
        if count == len(weights):  # top_p so near 1 that rounding of the product asks for more
            return np.flatnonzero(weights > 0)
        count = min(4 * count, len(weights))


def _weights(scaled: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Probabilities relative to the greatest one, as whole multiples of 2**-40."""
    weights: npt.NDArray[np.float64] = scaled - scaled.max()
    np.exp(weights, out=weights)
    weights *= _FIXED_POINT
    return np.floor(weights, out=weights)


def _total(weights: npt.NDArray[np.float64]) -> int:
    """The exact sum: no block's sum passes 2**53, below which doubles hold every integer."""
    return sum(map(int, np.add.reduceat(weights, np.arange(0, len(weights), _EXACT_TERMS))))


def _no_numbers() -> EngineError:
    return EngineError(
        "The model computed no valid numbers (NaN or infinity) for the next token.",
        "The model's files may be damaged: try `swiftspec models verify`.",
    )
