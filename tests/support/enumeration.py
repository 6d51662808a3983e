"""Every outcome of a program that draws uniform numbers, with its exact probability.

The program gets numbers in (0, 1) that are not drawn but intervals. Whenever it compares one with a
bound inside its interval, the program is run both ways and the interval is cut there, so that the
outcomes' probabilities are sums of exact fractions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from fractions import Fraction


class Uniform:
    """A uniform number, known only to lie in an interval; `factor` times it is what is compared."""

    def __init__(self, trace: Trace, factor: Fraction = Fraction(1), of: Uniform | None = None):
        self._trace, self._factor, self._of = trace, factor, of or self
        if of is None:
            self.low, self.high = Fraction(0), Fraction(1)

    def __mul__(self, factor):
        return Uniform(self._trace, self._factor * factor, self._of)

    def _below(self, bound) -> bool:
        if self._factor == 0:
            return bound > 0
        whole, cut = self._of, Fraction(bound) / self._factor
        if cut >= whole.high:
            return True
        if cut <= whole.low:
            return False
        below = self._trace.branch((cut - whole.low) / (whole.high - whole.low))
        if below:
            whole.high = cut
        else:
            whole.low = cut
        return below

    # A bound is met with probability zero. Searching, NumPy compares a number with itself first.
    def __lt__(self, bound):
        return bound is not self and self._below(bound)

    __le__ = __lt__

    def __gt__(self, bound):
        return bound is not self and not self._below(bound)

    __ge__ = __gt__


class Trace:
    """One run of the program."""

    def __init__(self, script: list[bool]) -> None:
        self._script = script
        self.taken: list[bool] = []
        self.probability = Fraction(1)
        self._numbers: dict[Hashable, Uniform] = {}

    def uniform(self, key: Hashable) -> Uniform:
        """The number of this key: the same one whenever it is asked for."""
        if key not in self._numbers:
            self._numbers[key] = Uniform(self)
        return self._numbers[key]

    def branch(self, probability: Fraction) -> bool:
        taken = len(self.taken)
        way = self._script[taken] if taken < len(self._script) else True
        self.taken.append(way)
        self.probability *= probability if way else 1 - probability
        return way


def outcomes(program: Callable[[Trace], Hashable]) -> dict[Hashable, Fraction]:
    """The exact distribution of what `program` returns."""
    found: dict[Hashable, Fraction] = defaultdict(Fraction)
    scripts: list[list[bool]] = [[]]
    while scripts:
        script = scripts.pop()
        trace = Trace(script)
        found[program(trace)] += trace.probability
        # Where the run chose by itself it went the first way; the second is still to be run.
        scripts += [[*trace.taken[:place], False] for place in range(len(script), len(trace.taken))]
    assert sum(found.values()) == 1
    return {outcome: weight for outcome, weight in found.items() if weight}


def total_variation(left: dict[Hashable, Fraction], right: dict[Hashable, Fraction]) -> Fraction:
    """Half the sum of absolute differences."""
    keys = set(left) | set(right)
    return sum(abs(left.get(k, Fraction(0)) - right.get(k, Fraction(0))) for k in keys) / 2


def inverse(probabilities, number):
    """The inverse-CDF sample: the first index whose cumulative probability exceeds `number`."""
    reached = Fraction(0)
    for token, probability in enumerate(probabilities[:-1]):
        reached += probability
        if number < reached:
            return token
    return len(probabilities) - 1
