"""Synthetic pairs: drafts that agree with their target as often as they are told to.

No weights: a synthetic draft is handed the target's own next token and decides by a hash of the
path whether to propose it, and at which rank. So tests, benchmarks, simulations and machines
without real weights can exercise any acceptance profile. Whatever is measured with one is to be
labelled synthetic. Knows token ids only; deterministic in its seed and the path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log

from swiftspec_daemon.speculation.decoding import Ranked

LABEL = "synthetic"
_MASK = (1 << 64) - 1
_EMPTY = 0x9E3779B97F4A7C15
_LEAST = 1e-4
"""No token is stated as less probable."""

TargetFunction = Callable[[Sequence[int]], int]
"""The token that the target decides behind these."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often a draft is right, and what it says of itself.

    Raises ValueError for numbers that are no probabilities.
    """

    ranks: tuple[tuple[float, ...], ...]
    """`ranks[d - 1][r]`: the probability that, at depth d below the decided tokens and behind
    right tokens, the r-th best proposal (0 is the best) is the target's token. The last row holds
    for all that is deeper; for Sequoia's acceptance by rank (2402.12374, section 4.1) give one."""
    spread: float = 0.0
    """0: equally sure everywhere. Up to 1: surer at some places than at others, with the same
    mean, and honest about it."""
    stated: float | None = None
    """What the draft claims for its best proposal; None is the truth."""

    def __post_init__(self) -> None:
        for row in self.ranks:
            if not row or min(row) < 0 or sum(row) > 1 + 1e-9:
                raise ValueError(f"{row} are no probabilities of one position's proposals")
        stated = 0.5 if self.stated is None else self.stated
        if not self.ranks or not 0 <= self.spread <= 1 or not 0 < stated <= 1:
            raise ValueError("an agreement needs positions, a spread and a claim from 0 to 1")

    @classmethod
    def by_position(
        cls, best: Sequence[float], siblings: Sequence[float] = (), *, spread: float = 0.0
    ) -> Agreement:
        """The best proposal is right with `best[d - 1]` at depth d; the next ones with
        `siblings[0]`, `siblings[1]`, ... of what is then left."""
        rows = tuple((a, *((1 - a) * share for share in siblings)) for a in best)
        return cls(rows, spread)

    @classmethod
    def perfect(cls) -> Agreement:
        """Always right."""
        return cls(((1.0,),))

    @classmethod
    def adversarial(cls, stated: float = 0.9) -> Agreement:
        """Never right, and sure of itself."""
        return cls(((0.0,),), stated=stated)

    @classmethod
    def random(cls, vocab: int, branching: int = 4) -> Agreement:
        """Right by chance alone, as a draft that draws tokens out of `vocab`."""
        return cls(((1 / vocab,) * branching,), stated=0.3)

    def row(self, depth: int, v: float) -> tuple[float, ...]:
        """The probabilities at `depth` (1 and up) of a place with `v` (0 to 1) on the spread."""
        row = self.ranks[min(depth, len(self.ranks)) - 1]
        if not self.spread:
            return row
        mean = row[0]
        best = mean + self.spread * min(mean, 1 - mean) * (2 * v - 1)
        rest = (1 - best) / (1 - mean) if mean < 1 else 0.0
        return (best, *(p * rest for p in row[1:]))


class HashTarget:
    """A target for simulations: its next token is a hash of the path."""

    def __init__(self, vocab: int = 32_000, seed: int = 0) -> None:
        self.vocab = vocab
        self._salt = _mix(seed + 1)

    def __call__(self, tokens: Sequence[int]) -> int:
        return self.behind(path_state(tokens))

    def behind(self, state: int) -> int:
        """The same, of a path's state."""
        return _mix(state ^ self._salt) % self.vocab


class RecordedTarget:
    """A target whose text was recorded before, for models too slow to be asked at every node.

    Behind anything but a beginning of the record it decides by hash; nothing there is accepted.
    """

    def __init__(self, tokens: Sequence[int], vocab: int) -> None:
        self._tokens = list(tokens)
        self._elsewhere = HashTarget(vocab)

    def __call__(self, tokens: Sequence[int]) -> int:
        size = len(tokens)
        if size < len(self._tokens) and self._tokens[:size] == list(tokens):
            return self._tokens[size]
        return self._elsewhere(tokens)


class FreeState:
    """A decoding state without any rules, for simulations."""

    def after(self, token: int) -> FreeState:
        return self


class SyntheticDraft:
    """A `DraftModel` without weights: see the module.

    Pays no heed to the nodes' decoding states; the target's function stands for all rules.
    """

    label = LABEL

    def __init__(
        self,
        agreement: Agreement,
        target: TargetFunction | None = None,
        *,
        vocab: int = 32_000,
        branching: int = 4,
        seed: int = 0,
        capacity: int = 1 << 20,
        max_rows: int = 64,
        max_pending: int = 256,
        max_depth: int = 64,
    ) -> None:
        """`target` gives the next token behind any path; by default that of `HashTarget(vocab)`.

        Every node gets `branching` (less than `vocab`) proposals.
        """
        if not 1 <= branching < vocab:
            raise ValueError("a synthetic draft proposes fewer tokens than there are")
        self.max_rows, self.max_pending = max_rows, max_pending
        self.max_depth, self.capacity = max_depth, capacity
        self.forwards: list[int] = []
        """Rows of each forward pass so far."""
        self._agreement = agreement
        self._target = target
        self._hashed = HashTarget(vocab)
        self._vocab = vocab
        self._branching = branching
        self._salt = _mix(seed + 0x5EED)
        self._tokens: list[int] = []
        self._states: list[int] = [_EMPTY]  # of the prefix's beginnings
        self._slots: list[tuple[int, int, int]] = []  # pending: token, parent, state

    def held(self) -> list[int]:
        """The tokens of the committed prefix."""
        return list(self._tokens)

    def extend(self, tokens: Sequence[int], state: object | None) -> Ranked | None:
        """Commit tokens; proposals behind the last one, if `state` is given."""
        self._slots.clear()
        self._commit(tokens)
        self.forwards.append(len(tokens))
        return None if state is None else self._rank(-1)

    def grow(
        self, tokens: Sequence[int], parents: Sequence[int], states: Sequence[object]
    ) -> list[Ranked]:
        """Add pending rows, and rank what may come after each."""
        ranked = []
        for token, parent in zip(tokens, parents, strict=True):
            above = self._states[-1] if parent < 0 else self._slots[parent][2]
            self._slots.append((token, parent, state_after(above, token)))
            ranked.append(self._rank(len(self._slots) - 1))
        self.forwards.append(len(tokens))
        return ranked

    def reroot(self, path: Sequence[int], keep: Sequence[int]) -> None:
        """Move the slots `path` into the prefix; `keep` stay pending, compacted."""
        place = {slot: i for i, slot in enumerate(keep)}
        slots = self._slots
        self._commit([slots[slot][0] for slot in path])
        self._slots = [(slots[s][0], place.get(slots[s][1], -1), slots[s][2]) for s in keep]

    def rewind(self, length: int) -> None:
        """Forget all positions from `length` on, and pending rows."""
        self._slots.clear()
        del self._tokens[length:]
        del self._states[length + 1 :]

    def _commit(self, tokens: Sequence[int]) -> None:
        self._tokens += tokens
        for token in tokens:
            self._states.append(state_after(self._states[-1], token))

    def _rank(self, slot: int) -> Ranked:
        """What this draft proposes behind a pending row, or behind the prefix (-1)."""
        path: list[int] = []
        at = slot
        while at >= 0:
            path.append(self._slots[at][0])
            at = self._slots[at][1]
        path.reverse()
        state = self._states[-1] if slot < 0 else self._slots[slot][2]
        if self._target is None:
            truth = self._hashed.behind(state)
        else:
            truth = self._target(self._tokens + path)
        return self._propose(state, truth, depth=len(path) + 1)

    def _propose(self, state: int, truth: int, depth: int) -> Ranked:
        u = _uniform(state ^ self._salt)
        row = self._agreement.row(depth, _uniform(_mix(state) ^ self._salt))
        tokens: list[int] = []
        for probability in row[: self._branching]:
            right = 0 <= u < probability
            tokens.append(truth if right else self._wrong(state, truth, tokens))
            u -= probability
        while len(tokens) < self._branching:
            tokens.append(self._wrong(state, truth, tokens))
        stated = [max(p, _LEAST) for p in row[: self._branching]]
        stated += [_LEAST] * (self._branching - len(stated))
        if self._agreement.stated is not None:
            stated[0] = self._agreement.stated
        order = sorted(range(len(tokens)), key=lambda i: -stated[i])
        return [tokens[i] for i in order], [log(stated[i]) for i in order]

    def _wrong(self, state: int, truth: int, taken: list[int]) -> int:
        """A token that is neither the target's nor proposed already."""
        token = _mix(state + len(taken)) % self._vocab
        while token == truth or token in taken:
            token = (token + 1) % self._vocab
        return token


def path_state(tokens: Sequence[int]) -> int:
    """64 bits that stand for a path of tokens."""
    state = _EMPTY
    for token in tokens:
        state = state_after(state, token)
    return state


def state_after(state: int, token: int) -> int:
    """The state of a path with one more token."""
    return (state * 0x5851F42D4C957F2D + token + 1) & _MASK


def _mix(value: int) -> int:
    """The output function of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014)."""
    value &= _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def _uniform(bits: int) -> float:
    return (_mix(bits) >> 11) * 2.0**-53


__all__ = [
    "LABEL",
    "Agreement",
    "FreeState",
    "HashTarget",
    "RecordedTarget",
    "SyntheticDraft",
    "TargetFunction",
    "path_state",
    "state_after",
]
