"""What `swiftspec tune` found, and the file that remembers it: for a machine, its kernels, a model
and its draft. Anything else that the file holds does not count.

Knows numbers and the file; measures nothing and opens no model.
"""

from __future__ import annotations

import contextlib
import os
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from swiftspec_daemon import paths
from swiftspec_daemon.engine.config import Measured, WorkerConfig
from swiftspec_daemon.engine.messages import Speculation

_VERSION = 1
_MOST_ENTRIES = 32
_SIMPLEST_FIRST: tuple[Speculation, ...] = ("off", "ngram", "serial", "async")
_WORTH_IT = 1.02
"""What a less simple mode must bring to be chosen: measurements differ by as much."""


class TunedKey(msgspec.Struct, kw_only=True, frozen=True):
    """What measurements hold for."""

    processor: str
    cores: int
    """That this process may use."""
    kernels: str
    """Their build and instruction set."""
    backend: str
    """As the setting `model.backend`."""
    model: str
    """The model's converted files, by name, which tells the source files' sizes and times."""
    draft: str
    """The same of its first draft; empty without one."""


class Setup(msgspec.Struct, kw_only=True, frozen=True):
    """A way of decoding, and how fast it was."""

    mode: Speculation
    threads: int
    """Of the target."""
    draft_threads: int
    """Of a draft in a process of its own."""
    tokens_per_second: float
    """Median over prompts."""
    speedup: float
    """Median of the ratios to plain decoding, prompt by prompt."""


class Tuned(msgspec.Struct, kw_only=True, frozen=True):
    """One measurement."""

    key: TunedKey
    name: str
    """Of the model, as in the settings."""
    mode: Speculation
    """What "auto" shall mean."""
    setups: list[Setup]
    """The best one of each mode that was tried."""
    measured: Measured

    def setup(self, mode: Speculation) -> Setup | None:
        """The best way of decoding in this mode, if it was tried."""
        return next((setup for setup in self.setups if setup.mode == mode), None)


class _File(msgspec.Struct, kw_only=True):
    version: int
    tuned: list[Tuned]


def best_of_each_mode(setups: Sequence[Setup]) -> list[Setup]:
    """The fastest of each mode, the simplest mode first."""
    found = []
    for mode in _SIMPLEST_FIRST:
        same = [setup for setup in setups if setup.mode == mode]
        if same:
            found.append(max(same, key=lambda setup: setup.speedup))
    return found


def best_mode(setups: Sequence[Setup]) -> Speculation:
    """The mode to use: the fastest one, or a simpler one that is nearly as fast."""
    best = best_of_each_mode(setups)
    fastest = max(setup.speedup for setup in best)
    return next(setup.mode for setup in best if setup.speedup * _WORTH_IT >= fastest)


def applied(config: WorkerConfig, tuned: Tuned) -> WorkerConfig:
    """`config` with what was found in the place of what the settings leave open.

    Those are threads that are 0 and the mode "auto"; with the mode come the draft's threads.
    """
    asked = config.speculation
    mode: Speculation = tuned.mode if asked.mode == "auto" else asked.mode
    setup = tuned.setup(mode)
    if setup is None:
        return msgspec.structs.replace(config, measured=tuned.measured)
    if asked.mode == "auto":
        asked = msgspec.structs.replace(asked, mode=mode, draft_threads=setup.draft_threads)
    threads = config.threads or setup.threads
    return msgspec.structs.replace(
        config, threads=threads, speculation=asked, measured=tuned.measured
    )


def find(key: TunedKey, name: str) -> tuple[Tuned | None, str]:
    """What was found for `key`; and a sentence for people where the file is of no use, or holds
    only what is out of date for the model `name`."""
    entries, note = read()
    for entry in entries:
        if entry.key == key:
            return entry, ""
    if not note and any(entry.name == name for entry in entries):
        note = "What `swiftspec tune` found is out of date: machine, kernels or files are others."
    return None, note


def read() -> tuple[list[Tuned], str]:
    """All entries; none, and a sentence for people, of a file that cannot be used."""
    file = paths.tuned_file()
    try:
        found = msgspec.json.decode(file.read_bytes(), type=_File)
    except FileNotFoundError:
        return [], ""
    except (OSError, msgspec.DecodeError) as error:
        return [], f"{file} is ignored: it cannot be read ({error})."
    if found.version != _VERSION:
        return [], f"{file} is ignored: it is of another version."
    return found.tuned, ""


def remember(tuned: Tuned) -> Path:
    """Add it to the file, in the place of what has the same key. Raises OSError."""
    entries = [entry for entry in read()[0] if entry.key != tuned.key]
    file = paths.tuned_file()
    content = _File(version=_VERSION, tuned=[*entries, tuned][-_MOST_ENTRIES:])
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix="tuned-")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(msgspec.json.format(msgspec.json.encode(content)))
        os.replace(temporary, file)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    return file


def usable_cores() -> int:
    """Logical processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor() -> str:
    """The processor's name, as far as the system tells."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
