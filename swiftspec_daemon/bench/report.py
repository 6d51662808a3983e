"""What every benchmark hands out: rows of figures, as a table, as JSON and as plots.

Knows nothing of what is measured. The JSON form is the same for all benchmarks:
`{"machine", "versions", "command", "rows": [{"name", "value", "unit", "baseline", "ratio", "n",
"p90", "interval"}]}`, where a key that makes no sense for a row is absent.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import psutil
from rich.table import Table

from swiftspec_daemon import __version__
from swiftspec_daemon.bench import drawing
from swiftspec_daemon.errors import UsageError

_LIBRARIES = ("numpy", "msgspec", "websockets", "uvicorn", "pygls", "tokenizers")
_CPUINFO = Path("/proc/cpuinfo")


class Row(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One figure."""

    name: str
    """Dotted; the part before the first dot names the benchmark ("basics.ready_s")."""
    value: float
    """The median where there are several samples."""
    unit: str
    baseline: float | None = None
    """The same quantity of what it is compared with, in the same unit."""
    ratio: float | None = None
    """value / baseline."""
    n: int | None = None
    """Number of samples."""
    p90: float | None = None
    """90th percentile of the samples."""
    interval: list[float] | None = None
    """Ends of the value's 95 % confidence interval, where it has one."""


class Report(msgspec.Struct, kw_only=True, frozen=True):
    """The figures of one run, and what they were measured on."""

    machine: dict[str, str | int | float]
    versions: dict[str, str]
    command: str
    """The command line that measured them."""
    rows: list[Row]


def row(name: str, samples: Sequence[float], unit: str, *, baseline: float | None = None) -> Row:
    """The median of `samples` (at least one), with their number and, from two on, the p90."""
    value = statistics.median(samples)
    return Row(
        name=name,
        value=value,
        unit=unit,
        baseline=baseline,
        ratio=value / baseline if baseline else None,
        n=len(samples),
        p90=percentile(samples, 90) if len(samples) > 1 else None,
    )


def percentile(samples: Sequence[float], percent: float) -> float:
    """The smallest sample that at least `percent` of the samples do not exceed (nearest rank)."""
    ordered = sorted(samples)
    rank = -(-percent * len(ordered) // 100)
    return ordered[max(0, int(rank) - 1)]


def report(rows: Sequence[Row]) -> Report:
    """`rows` with this machine, these versions and this process's command line."""
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    return Report(machine=machine(), versions=versions(), command=command, rows=list(rows))


def machine() -> dict[str, str | int | float]:
    """Processor, cores, memory, system and the load average when asked."""
    found: dict[str, str | int | float] = {
        "processor": _processor(),
        "cores": psutil.cpu_count(logical=False) or 0,
        "logical_cores": os.cpu_count() or 0,
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
    }
    if hasattr(os, "getloadavg"):
        found["load_1min"] = round(os.getloadavg()[0], 2)
    return found


def _processor() -> str:
    """The processor's name for people; `platform` knows none on Linux."""
    try:
        for line in _CPUINFO.read_text("utf-8", "replace").splitlines():
            if line.lower().startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """This project, Python, and the libraries that figures depend on."""
    found = {"swiftspec-daemon": __version__, "python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def write_json(report: Report, file: Path) -> None:
    """Write the JSON form. Raises UsageError where the file cannot be written."""
    body = msgspec.json.format(msgspec.json.encode(report), indent=2)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(body + b"\n")
    except OSError as error:
        hint = "Name a file in a folder of yours with --json."
        raise UsageError(f"{file} cannot be written: {error.strerror}.", hint) from None


def table(report: Report) -> Table:
    """The rows for a terminal; columns that no row fills are left out."""
    optional = [
        name
        for name in ("interval", "p90", "baseline", "ratio", "n")
        if any(getattr(row, name) is not None for row in report.rows)
    ]
    made = Table(title=report.command, caption=_caption(report), caption_justify="left")
    made.add_column("figure")
    for name in ("value", *optional):
        made.add_column(name, justify="right")
    made.add_column("unit")
    for row in report.rows:
        cells = [_number(getattr(row, name)) for name in ("value", *optional)]
        made.add_row(row.name, *cells, row.unit)
    return made


def markdown(report: Report) -> str:
    """The rows as a Markdown table, for documents that quote them."""
    lines = ["| figure | value | p90 | unit | n |", "|---|---|---|---|---|"]
    for row in report.rows:
        cells = [_number(row.value), _number(row.p90), row.unit, _number(row.n)]
        lines.append(f"| {row.name} | {' | '.join(cells)} |")
    lines += ["", f"`{report.command}`; {_caption(report)}."]
    return "\n".join(lines)


def _caption(report: Report) -> str:
    machine = report.machine
    load = f", load {machine['load_1min']}" if "load_1min" in machine else ""
    return (
        f"{machine['processor']}, {machine['cores']} cores ({machine['logical_cores']} logical), "
        f"{machine['memory_gb']} GB, {machine['system']}{load}; "
        f"version {report.versions['swiftspec-daemon']}, Python {report.versions['python']}"
    )


def _number(value: float | list[float] | None) -> str:
    """Three significant digits, whole numbers as they are, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, list):
        return " - ".join(_number(end) for end in value)
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.3g}"


def plot(report: Report, samples: Mapping[str, Sequence[float]], folder: Path) -> list[Path]:
    """Draw the distribution of each row's samples; returns the files written (PNG).

    `samples` maps row names to what was measured, in the row's unit; rows without are left out.
    Raises UsageError if matplotlib is not installed or the folder cannot be written.
    """
    written = []
    for row in report.rows:
        drawn = samples.get(row.name, ())
        if len(drawn) < 2:
            continue
        figure = drawing.new_figure()
        axes = figure.add_subplot()
        shares = [100 * (i + 1) / len(drawn) for i in range(len(drawn))]
        axes.step(sorted(drawn), shares, where="post")
        axes.axvline(row.value, linestyle=":", label=f"median {_number(row.value)}")
        axes.axvline(row.p90 or row.value, linestyle="--", label=f"p90 {_number(row.p90)}")
        axes.set(title=row.name, xlabel=row.unit, ylabel="samples at or below, %")
        axes.set_ylim(0, 100)
        axes.legend()
        written.append(drawing.save(figure, folder, row.name))
    return written
