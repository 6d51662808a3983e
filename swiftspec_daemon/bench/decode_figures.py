"""Rows, notes and plots of `swiftspec bench decode`, from the seconds that were measured."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from swiftspec_daemon.bench import drawing, report
from swiftspec_daemon.bench.basics import Figures
from swiftspec_daemon.bench.decode import AGAIN, PLAIN, WORST, Measured, Text
from swiftspec_daemon.bench.report import Row

_RESAMPLES = 2000


def figures(made: Measured) -> Figures:
    """The rows in their order, with samples and notes."""
    found = Figures(notes=[_setting(made)])
    kinds = list(dict.fromkeys(text.kind for text in made.texts))
    for kind in kinds:
        _ratio(found, f"decode.{kind}.speedup", by_prompt(_of(made.texts, made.auto, kind)))
    _ratio(found, "decode.worst.speedup", by_prompt(_of(made.texts, WORST)))
    _rounds(found, _of(made.texts, made.auto))
    if made.one_thread:
        _ratio(found, "decode.async_vs_serial", by_prompt(made.one_thread))
    for kind in kinds:
        found.notes += [_line(made, kind, name) for name in _names(made) if name != WORST]
    found.notes += _about_worst(made)
    if made.trace is not None:
        share = 100 * made.trace.overlap
        found.notes.append(
            f"Trace of one text: {share:.0f} % of the draft's computing time lies inside passes of "
            "the target, by one clock, in two processes."
        )
    found.notes += made.skipped
    return found


def by_prompt(texts: Iterable[Text]) -> list[float]:
    """Each prompt's speedup: the median over its pairs."""
    found: dict[str, list[float]] = {}
    for text in texts:
        found.setdefault(text.prompt, []).append(text.speedup)
    return [statistics.median(ratios) for ratios in found.values()]


def interval(samples: Sequence[float]) -> tuple[float, float]:
    """95 % interval of the median: percentile bootstrap over prompts, always the same draws."""
    draw = random.Random(0)
    medians = [statistics.median(draw.choices(samples, k=len(samples))) for _ in range(_RESAMPLES)]
    return report.percentile(medians, 2.5), report.percentile(medians, 97.5)


def _ratio(found: Figures, name: str, ratios: list[float]) -> None:
    low, high = interval(ratios)
    found.samples[name] = ratios
    found.rows.append(
        Row(
            name=name,
            value=statistics.median(ratios),
            unit="×",
            baseline=1.0,
            ratio=statistics.median(ratios),
            n=len(ratios),
            p90=report.percentile(ratios, 90),
            interval=[low, high],
        )
    )


def _rounds(found: Figures, texts: Sequence[Text]) -> None:
    """Tokens of a round and our own time in it, of the engine that "auto" is."""
    used = [text.run.speculation for text in texts if text.run.speculation]
    rounds = sum(usage.rounds for usage in used)
    if not rounds:
        return
    lengths = [usage.tokens / usage.rounds for usage in used if usage.rounds]
    name = "decode.tokens_per_verification"
    found.samples[name] = lengths
    found.rows.append(
        Row(
            name=name,
            value=sum(usage.tokens for usage in used) / rounds,
            unit="tokens",
            baseline=1.0,
            ratio=sum(usage.tokens for usage in used) / rounds,
            n=len(lengths),
            p90=report.percentile(lengths, 90),
        )
    )
    own = [1e3 * usage.own_s / usage.rounds for usage in used if usage.rounds]
    found.add("decode.scheduler_ms", own, "ms")


def _names(made: Measured) -> list[str]:
    names = dict.fromkeys(text.name for text in made.texts)
    return [name for name in names if name not in (PLAIN, AGAIN)]


def _of(texts: Iterable[Text], name: str, kind: str | None = None) -> list[Text]:
    return [text for text in texts if text.name == name and kind in (None, text.kind)]


def _setting(made: Measured) -> str:
    text = (
        f"Plain decoding is fastest with {made.threads} threads; the others have as many. Rows are "
        f'of "auto", here: {made.auto}.'
    )
    if made.async_threads:
        text += f" async: {made.async_threads} for the target, the draft has its own."
    return text


def _line(made: Measured, kind: str, name: str) -> str:
    """One engine on one kind, in words."""
    texts = _of(made.texts, name, kind)
    ratios = by_prompt(texts)
    low, high = interval(ratios)
    rates = [len(text.run.tokens) / text.run.seconds for text in texts]
    return (
        f"{kind}, {name}: {statistics.median(ratios):.2f}× plain [{low:.2f}, {high:.2f}], "
        f"{statistics.median(rates):.0f} tokens/s, {mean_length(texts):.2f} tokens a round."
    )


def mean_length(texts: Iterable[Text]) -> float:
    """Tokens of a verification, the target's own counted, over all rounds."""
    used = [text.run.speculation for text in texts if text.run.speculation]
    return sum(u.tokens for u in used) / max(1, sum(u.rounds for u in used))


def _about_worst(made: Measured) -> list[str]:
    texts = _of(made.texts, AGAIN)
    if not texts:
        return []
    low, high = interval(by_prompt(texts))
    used = [t.run.speculation for t in _of(made.texts, WORST) if t.run.speculation]
    return [
        "decode.worst.speedup is of synthetic drafts that are made to fail: of their "
        f"{sum(u.proposed for u in used)} proposals {sum(u.accepted for u in used)} were "
        "accepted. Plain decoding against itself in the same rounds: "
        f"{statistics.median(by_prompt(texts)):.3f}× [{low:.3f}, {high:.3f}]."
    ]


def plot(made: Measured, folder: Path) -> list[Path]:
    """Speedups and acceptance lengths by engine and kind, and the trace; the files written."""
    files = [
        _bars(made, folder, "decode.speedups", "× plain decoding", bars=True),
        _bars(made, folder, "decode.lengths", "tokens a round", bars=False),
    ]
    if made.trace is not None:
        files.append(made.trace.plot(folder))
    return files


def _bars(made: Measured, folder: Path, name: str, label: str, *, bars: bool) -> Path:
    """A group of bars for each kind: speedups with their intervals (`bars`), or lengths."""
    figure = drawing.new_figure(7.0, 4.0)
    axes = figure.add_subplot()
    kinds = list(dict.fromkeys(text.kind for text in made.texts))
    names = [engine for engine in _names(made) if engine != WORST]
    width = 0.8 / len(names)
    for number, engine in enumerate(names):
        places = [place + number * width for place in range(len(kinds))]
        groups = [_of(made.texts, engine, kind) for kind in kinds]
        if not bars:
            axes.bar(places, [mean_length(group) for group in groups], width, label=engine)
            continue
        medians = [statistics.median(by_prompt(group)) for group in groups]
        ends = [interval(by_prompt(group)) for group in groups]
        below = [m - low for m, (low, _) in zip(medians, ends, strict=True)]
        above = [high - m for m, (_, high) in zip(medians, ends, strict=True)]
        axes.bar(places, medians, width, yerr=[below, above], capsize=2, label=engine)
    axes.axhline(1.0, color="black", linewidth=0.8)
    middle = (len(names) - 1) * width / 2
    axes.set_xticks([place + middle for place in range(len(kinds))], kinds)
    axes.set_ylabel(label)
    axes.legend()
    return drawing.save(figure, folder, name)
