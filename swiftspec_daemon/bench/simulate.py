"""SwiftSpec's parallel against its serial tree: predicted from the paper's inputs, by simulation.

Table 7 of the paper (arXiv 2506.11309; Qwen2-72B with a draft of 1.5B) gives for both ways the
time of a forward pass of target and draft, and tokens per second. One acceptance profile is fitted
to the serial row; the parallel row is then predicted, and nothing about its acceptance is put in.
Knows the paper's figures and the project's simulator; measures no machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from swiftspec_daemon.bench.report import Row
from swiftspec_daemon.speculation.simulator import (
    Hardware,
    Outcome,
    Strategy,
    simulate_async,
    simulate_serial,
)
from swiftspec_daemon.speculation.synthetic import Agreement

NAME = "simulate.swiftspec_table7.parallel_vs_serial"
SIBLINGS = (9 / 32, 4 / 32, 3 / 32, 1 / 32)
"""Of the places where the best proposal is wrong, the share where the second to fifth are right:
the steps of SpecInfer's table 1 (arXiv 2305.09781; greedy, top-1 to top-5 success rates 68, 77, 81,
84 and 85 %)."""
SIZE = WIDTH = 8
"""bs and w of the paper (section 4.5)."""
TARGET_BY_SIZE = {4: 10.32e-3, 8: 10.39e-3, 16: 13.25e-3}
"""Seconds of a target pass by bs (section 4.5: Llama-3-70B on four GPUs)."""
MOST_STEPS = 9
"""Values of d that are tried."""

Progress = Callable[[str, float], None]


class PaperRow(NamedTuple):
    """A row of table 7."""

    rate: float
    """Tokens per second."""
    target_s: float
    draft_s: float
    length: float
    """Mean acceptance length over the six data sets, the target's own token counted."""


SERIAL = PaperRow(200.0, 10.34e-3, 3.73e-3, 3.63)
PARALLEL = PaperRow(274.0, 10.48e-3, 3.25e-3, 3.34)


class Effort(NamedTuple):
    """How long is simulated."""

    tokens: int = 4000
    """Of each simulated text."""
    tolerance: float = 0.003
    """Of the fit, relative."""
    spreads: tuple[float, ...] = (0.0, 1.0)
    """Other values of the assumption `Agreement.spread`, to see what hangs on it."""


SPREAD = 0.5
"""Assumed: half as much surer at some places than at others as a probability allows."""
QUICK = Effort(tokens=200, tolerance=0.05, spreads=())


@dataclass(frozen=True)
class Best:
    """The fastest number of steps, and all that were tried."""

    steps: int
    by_steps: Mapping[int, Outcome]

    @property
    def outcome(self) -> Outcome:
        return self.by_steps[self.steps]


@dataclass(frozen=True)
class Prediction:
    """A profile fitted to the serial row, and the parallel row that follows."""

    passes: int
    """Forward passes of the draft in what the table calls the draft's time."""
    spread: float
    right: float
    """The fitted probability that the draft's best proposal is right."""
    serial: Best
    parallel: Best

    @property
    def ratio(self) -> float:
        return self.parallel.outcome.tokens_per_second / self.serial.outcome.tokens_per_second

    @property
    def length_error(self) -> float:
        """How far the serial acceptance length, which was not fitted, is from the paper's."""
        return abs(self.serial.outcome.tokens_per_round / SERIAL.length - 1)


@dataclass
class Simulated:
    """Everything that `swiftspec bench simulate` shows."""

    predictions: list[Prediction]
    """By `passes`: the table's draft time read as one pass, and as two."""
    by_spread: list[Prediction]
    """The better reading again, under other assumptions."""
    by_size: dict[int, Best]
    """The better reading's parallel tree by bs."""
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def chosen(self) -> Prediction:
        """The reading under which the serial acceptance length fits better."""
        return min(self.predictions, key=lambda prediction: prediction.length_error)


def simulate(effort: Effort, progress: Progress) -> Simulated:
    """All of it. Deterministic."""
    parts = 3.0 + len(effort.spreads)
    predictions = []
    for passes in (1, 2):
        progress(f"draft time read as {_passes(passes)}", (passes - 1) / parts)
        predictions.append(predict(passes, SPREAD, effort))
    made = Simulated(predictions, [], {})
    chosen = made.chosen
    for number, spread in enumerate(effort.spreads):
        progress(f"another assumption: spread {spread:g}", (2 + number) / parts)
        made.by_spread.append(predict(chosen.passes, spread, effort))
    progress("tree sizes", 1 - 1 / parts)
    made.by_size = sweep_sizes(chosen, effort)
    ratio, paper = chosen.ratio, PARALLEL.rate / SERIAL.rate
    made.rows = [Row(name=NAME, value=ratio, unit="×", baseline=paper, ratio=ratio / paper)]
    made.notes = notes(made)
    return made


def predict(passes: int, spread: float, effort: Effort) -> Prediction:
    """Fit on the serial row, then the parallel one."""
    serial, parallel = hardware(SERIAL, passes), hardware(PARALLEL, passes)

    def by_rate(right: float) -> Best:
        return best_steps(simulate_serial, serial, agreement(right, spread), effort.tokens)

    right = fit(
        lambda right: by_rate(right).outcome.tokens_per_second, SERIAL.rate, effort.tolerance
    )
    return Prediction(
        passes,
        spread,
        right,
        by_rate(right),
        best_steps(simulate_async, parallel, agreement(right, spread), effort.tokens),
    )


def hardware(row: PaperRow, passes: int) -> Hardware:
    """The row's times; both passes are latency-bound, so that up to 8 rows take as long as one.

    No time is assumed for rounds besides passes, nor for messages: the paper gives none.
    """
    return Hardware(lambda rows: row.target_s, lambda rows: row.draft_s / passes)


def agreement(right: float, spread: float) -> Agreement:
    """The same at every depth."""
    return Agreement.by_position([right], SIBLINGS, spread=spread)


Simulate = Callable[[Hardware, Agreement, Strategy, int], Outcome]


def best_steps(
    way: Simulate, on: Hardware, draft: Agreement, tokens: int, size: int = SIZE
) -> Best:
    """Try d = 1, 2, ... until three more brought nothing; ties go to the fewest."""
    tried: dict[int, Outcome] = {}
    best = 1
    for steps in range(1, MOST_STEPS + 1):
        strategy = Strategy(size, WIDTH, steps, branching=1 + len(SIBLINGS))
        tried[steps] = way(on, draft, strategy, tokens)
        if tried[steps].tokens_per_second > tried[best].tokens_per_second:
            best = steps
        elif steps >= best + 3:
            break
    return Best(best, tried)


def sweep_sizes(prediction: Prediction, effort: Effort) -> dict[int, Best]:
    """The parallel tree with the paper's target times by bs, each with its best d."""
    draft_s = PARALLEL.draft_s / prediction.passes
    draft = agreement(prediction.right, prediction.spread)

    def by(size: int, target_s: float) -> Best:
        on = Hardware(lambda rows: target_s, lambda rows: draft_s)
        return best_steps(simulate_async, on, draft, effort.tokens, size)

    return {size: by(size, target_s) for size, target_s in TARGET_BY_SIZE.items()}


def fit(function: Callable[[float], float], wanted: float, tolerance: float) -> float:
    """Where `function`, which rises from 0.3 to 1, is `wanted`, within `tolerance` of it.

    Regula falsi in its Illinois form. The simulation is a staircase, so it ends after 12 tries.
    """
    low, high = 0.3, 0.999
    below, above = function(low) - wanted, function(high) - wanted
    middle, last = high, 0.0
    for _ in range(12):
        middle = (low * above - high * below) / (above - below)
        off = function(middle) - wanted
        if abs(off) <= tolerance * wanted:
            break
        same = off * last > 0  # the same end moved twice: draw the other one nearer
        if off < 0:
            low, below, above = middle, off, above / 2 if same else above
        else:
            high, above, below = middle, off, below / 2 if same else below
        last = off
    return middle


def notes(made: Simulated) -> list[str]:
    """What came out, against the paper, in words."""
    found = [_reading(prediction) for prediction in made.predictions]
    found.append(_why())
    chosen = made.chosen
    found.append(f"The row is of the draft time read as {_passes(chosen.passes)}.")
    found += [
        f"With spread {other.spread:g} instead of the assumed {SPREAD:g}: {_parallel(other)}."
        for other in made.by_spread
    ]
    found += [_choice_of_steps(chosen), _choice_of_size(made.by_size)]
    return found


def _reading(prediction: Prediction) -> str:
    serial = prediction.serial.outcome
    return (
        f"Draft time read as {_passes(prediction.passes)}: the serial row needs drafts that are "
        f"right at {100 * prediction.right:.1f} % and d = {prediction.serial.steps} "
        f"({serial.tokens_per_second:.0f} tokens/s, {serial.tokens_per_round:.2f} tokens a round; "
        f"paper {SERIAL.rate:.0f} and {SERIAL.length}). {_parallel(prediction)}."
    )


def _parallel(prediction: Prediction) -> str:
    outcome = prediction.parallel.outcome
    rate = outcome.tokens_per_second
    return (
        f"Predicted parallel: {rate:.0f} tokens/s with d = {prediction.parallel.steps}, "
        f"{_error(rate, PARALLEL.rate)} from the paper's {PARALLEL.rate:.0f}; "
        f"{outcome.tokens_per_round:.2f} tokens a round, "
        f"{_error(outcome.tokens_per_round, PARALLEL.length)} from {PARALLEL.length}; "
        f"{prediction.ratio:.2f}×, paper {PARALLEL.rate / SERIAL.rate:.2f}×"
    )


def _why() -> str:
    """What the table itself says of its rounds."""
    serial_ms, parallel_ms = (1e3 * row.length / row.rate for row in (SERIAL, PARALLEL))
    drafting = serial_ms - 1e3 * SERIAL.target_s
    return (
        f"By the table's own acceptance lengths a serial round took {serial_ms:.1f} ms, "
        f"{drafting:.1f} ms of them not the target's: {drafting / SERIAL.draft_s / 1e3:.1f} draft "
        f"times, too few for {SERIAL.length - 1:.2f} accepted drafts if each added one level. A "
        f"parallel round took {parallel_ms:.1f} ms, {parallel_ms - 1e3 * PARALLEL.target_s:.1f} ms "
        "more than its target pass. That time is not in the table and so not in the simulation, "
        "whose rounds are shorter and give fewer tokens."
    )


def _choice_of_steps(prediction: Prediction) -> str:
    rule = int(PARALLEL.target_s / (PARALLEL.draft_s / prediction.passes) + 1e-9)
    rates = ", ".join(
        f"{steps}: {outcome.tokens_per_second:.0f}"
        for steps, outcome in prediction.parallel.by_steps.items()
    )
    return (
        f"Choice of d, parallel, tokens/s: {rates}. SwiftSpec's rule (target time over draft time, "
        f"rounded down, or one more) says {rule} or {rule + 1}; the simulation "
        f"{prediction.parallel.steps}."
    )


def _choice_of_size(by_size: Mapping[int, Best]) -> str:
    outcomes = {size: best.outcome for size, best in by_size.items()}
    rates = ", ".join(
        f"{size}: {outcome.tokens_per_second:.0f} ({outcome.tokens_per_round:.2f} a round)"
        for size, outcome in outcomes.items()
    )
    best = max(outcomes, key=lambda size: outcomes[size].tokens_per_second)
    longer = outcomes[16].tokens_per_round / outcomes[8].tokens_per_round - 1
    return (
        f"Choice of bs, parallel, tokens/s: {rates}; best {best}, paper 8. From 8 to 16 the "
        f"acceptance length rises by {100 * longer:.1f} % (paper: 24.5 % with its models)."
    )


def _passes(passes: int) -> str:
    return "one forward pass" if passes == 1 else f"{passes} forward passes"


def _error(value: float, paper: float) -> str:
    return f"{100 * (value / paper - 1):+.1f} %"
