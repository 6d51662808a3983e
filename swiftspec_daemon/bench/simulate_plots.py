"""What the simulation came to, as plots."""

from __future__ import annotations

from pathlib import Path

from swiftspec_daemon.bench import drawing
from swiftspec_daemon.bench.simulate import PARALLEL, SERIAL, Simulated


def plot(made: Simulated, folder: Path) -> list[Path]:
    """The files written. Raises UsageError without matplotlib or where nothing can be written."""
    return [_steps(made, folder), _sizes(made, folder)]


def _steps(made: Simulated, folder: Path) -> Path:
    chosen = made.chosen
    figure = drawing.new_figure()
    axes = figure.add_subplot()
    for label, best, row in (
        ("serial", chosen.serial, SERIAL),
        ("parallel", chosen.parallel, PARALLEL),
    ):
        tried = sorted(best.by_steps)
        rates = [best.by_steps[steps].tokens_per_second for steps in tried]
        (line,) = axes.plot(tried, rates, marker="o", label=f"{label}, simulated")
        style = {"linestyle": ":", "color": line.get_color()}
        axes.axhline(row.rate, label=f"{label}, SwiftSpec table 7", **style)
    axes.set(title="tokens/s by d", xlabel="d: draft passes in a round", ylabel="tokens/s")
    axes.legend()
    return drawing.save(figure, folder, "simulate.steps")


def _sizes(made: Simulated, folder: Path) -> Path:
    figure = drawing.new_figure()
    rates, lengths = figure.subplots(1, 2)
    sizes = [str(size) for size in made.by_size]
    outcomes = [best.outcome for best in made.by_size.values()]
    rates.bar(sizes, [outcome.tokens_per_second for outcome in outcomes])
    rates.set(xlabel="bs", ylabel="tokens/s")
    lengths.bar(sizes, [outcome.tokens_per_round for outcome in outcomes])
    lengths.set(xlabel="bs", ylabel="tokens a round")
    return drawing.save(figure, folder, "simulate.sizes")
