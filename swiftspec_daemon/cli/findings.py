"""What `swiftspec doctor` finds on the machine: facts by section, and problems with their cure.

Looks only; imports neither torch nor transformers. Knows nothing of how findings are shown.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

PACKAGES = (
    "numpy",
    "msgspec",
    "starlette",
    "uvicorn",
    "websockets",
    "pygls",
    "tokenizers",
    "gguf",
    "huggingface-hub",
    "torch",
    "transformers",
    "triton",
)
_ISA_FLAGS = (
    "avx2",
    "f16c",
    "fma",
    "avx_vnni",
    "avx512f",
    "avx512bw",
    "avx512_vnni",
    "avx512_bf16",
    "amx_int8",
    "asimd",
    "asimddp",
    "i8mm",
    "sve",
)


class Problem(msgspec.Struct, frozen=True):
    """Something that is wrong, and one line how to mend it."""

    what: str
    cure: str


class Report(msgspec.Struct):
    """Facts, by section and name, and what is wrong."""

    facts: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    problems: list[Problem] = msgspec.field(default_factory=list)

    def fact(self, section: str, name: str, value: Any) -> None:
        self.facts.setdefault(section, {})[name] = value

    def problem(self, what: str, cure: str) -> None:
        """Add a problem. Advice to ask the doctor is left out."""
        cure = cure.replace("See `swiftspec doctor`.", "").strip()
        self.problems.append(Problem(what, cure or "See `swiftspec logs`."))


def look_at_machine(report: Report) -> None:
    """Operating system, processor, memory."""
    import psutil

    report.fact("machine", "system", f"{platform.system()} {platform.release()}")
    report.fact("machine", "python", f"{platform.python_version()} ({sys.executable})")
    name, flags = _processor()
    report.fact("machine", "processor", name or platform.processor() or platform.machine())
    report.fact("machine", "instruction sets", " ".join(f for f in _ISA_FLAGS if f in flags))
    physical, logical = psutil.cpu_count(logical=False), psutil.cpu_count()
    report.fact("machine", "cores", f"{physical or '?'} physical, {logical} logical")
    if hasattr(os, "sched_getaffinity"):
        report.fact("machine", "cores for this process", len(os.sched_getaffinity(0)))
    memory = psutil.virtual_memory()
    report.fact("machine", "memory", f"{memory.total / 1e9:.1f} GB")
    report.fact("machine", "memory free", f"{memory.available / 1e9:.1f} GB")
    if memory.available < 5e8:
        report.problem(
            f"Only {memory.available / 1e6:.0f} MB of memory are free.",
            "The default model needs about 500 MB: close other programs.",
        )


def look_at_gpus(report: Report) -> None:
    """GPUs, as nvidia-smi names them."""
    program = shutil.which("nvidia-smi")
    if program is None:
        report.fact("gpus", "nvidia", "none (no nvidia-smi)")
        return
    query = [program, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        report.fact("gpus", "nvidia", "nvidia-smi does not answer")
        report.problem(
            "nvidia-smi is there but does not answer.",
            "Check the NVIDIA driver; without a GPU the processor is used.",
        )
        return
    for index, line in enumerate(answer.stdout.splitlines()):
        report.fact("gpus", f"gpu {index}", line.strip())


def look_at_packages(report: Report) -> None:
    """Versions of what we stand on, from their metadata."""
    for name in PACKAGES:
        report.fact("packages", name, installed_version(name) or "not installed")
    nccl = [name for name in ("nvidia-nccl-cu12", "nvidia-nccl-cu13") if installed_version(name)]
    if len(nccl) == 2:
        report.problem(
            "nvidia-nccl-cu12 and nvidia-nccl-cu13 are both installed; they overwrite each other.",
            "Uninstall both, then reinstall the one that torch requires.",
        )
    torch, transformers = installed_version("torch"), installed_version("transformers")
    if (torch is None) != (transformers is None):
        report.problem(
            f"{'torch' if torch else 'transformers'} is installed without "
            f"{'transformers' if torch else 'torch'}: the transformers backend needs both.",
            "Install `swiftspec-daemon[transformers]`, or leave it if you use the native backend.",
        )


def installed_version(name: str) -> str | None:
    """The version of an installed distribution, without importing it."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> tuple[str, set[str]]:
    """Model name and feature flags, where the system tells them in /proc/cpuinfo."""
    name, flags = "", set[str]()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return name, flags
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name" and not name:
            name = value.strip()
        elif key.strip() in ("flags", "Features") and not flags:
            flags = set(value.split())
    return name, flags
