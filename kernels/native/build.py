"""Compiles the C++ sources beside this file into a shared library.

Knows compilers and their flags; knows nothing of setuptools or of what the library does. Standard
library only, and no relative imports: `setup.py` loads this file by its path.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
LIBRARY_NAME = {"win32": "swiftspec_native.dll", "darwin": "libswiftspec_native.dylib"}.get(
    sys.platform, "libswiftspec_native.so"
)
# No -march: each isa_*.cpp names its own target, and the choice is made at run time. Contraction
# is off so that a multiply and an add are fused only where the source says so.
_FLAGS = ["-std=c++17", "-O3", "-DNDEBUG", "-ffp-contract=off", "-fvisibility=hidden"]
_FLAGS += ["-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics"]
_WARNINGS = ["-Wall", "-Wextra", "-Wno-psabi"]


class BuildError(Exception):
    """The sources did not compile; the message holds what the compiler said."""


@dataclass(frozen=True)
class Compiler:
    """A command that compiles C++ and links shared libraries."""

    command: tuple[str, ...]
    description: str
    """For people: "g++ (Debian 12.2.0) 12.2.0"."""
    flags: tuple[str, ...] = ()
    link_flags: tuple[str, ...] = ()


def source_digest(folder: Path = SOURCES) -> str:
    """Names the state of the C++ sources; the library carries the one it was built from."""
    digest = hashlib.sha256()
    for path in sorted([*folder.glob("*.cpp"), *folder.glob("*.h")]):
        digest.update(path.name.encode())
        digest.update(path.read_bytes().replace(b"\r\n", b"\n"))
    return digest.hexdigest()[:16]


def find_compiler() -> Compiler | None:
    """$CXX, else the system's compiler, else the one in PyPI's ziglang, else None."""
    candidates = [shlex.split(os.environ["CXX"])] if os.environ.get("CXX") else []
    if sys.platform != "win32":
        candidates += [["c++"], ["g++"], ["clang++"]]
    for command in candidates:
        if shutil.which(command[0]) and (version := _version(command)):
            return Compiler(tuple(command), version)
    return zig_compiler()


def zig_compiler() -> Compiler | None:
    """The clang that PyPI's ziglang carries, or None if that is not installed."""
    if importlib.util.find_spec("ziglang") is None:
        return None
    command = [sys.executable, "-m", "ziglang"]
    version = _run([*command, "version"])
    if version.returncode != 0:
        return None
    # Without a target zig would compile for this very processor.
    flags = ("-target", _zig_target(), "-fno-sanitize=undefined", "-g0")
    # The sources need no C++ library but on Windows; zig would spend minutes on compiling its own.
    link_flags = () if sys.platform == "win32" else ("-nostdlib++",)
    return Compiler((*command, "c++"), f"zig c++ {version.stdout.strip()}", flags, link_flags)


def build(output: Path, compiler: Compiler) -> None:
    """Compile and link into `output`, which is replaced in one step. Raises BuildError."""
    output.parent.mkdir(parents=True, exist_ok=True)
    flags = [*_FLAGS, *_WARNINGS, f'-DSWIFTSPEC_SOURCE_DIGEST="{source_digest()}"']
    if sys.platform != "win32":
        flags += ["-fPIC", "-pthread"]
    with tempfile.TemporaryDirectory(dir=output.parent) as name:
        folder = Path(name)

        def compile_one(source: Path) -> str:
            compiled = str(folder / f"{source.stem}.o")
            _compile(compiler, [*flags, "-c", str(source), "-o", compiled])
            return compiled

        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            objects = list(pool.map(compile_one, sorted(SOURCES.glob("*.cpp"))))
        linked = folder / output.name
        _compile(compiler, [*flags, *compiler.link_flags, "-shared", *objects, "-o", str(linked)])
        os.replace(linked, output)


def _compile(compiler: Compiler, arguments: list[str]) -> None:
    done = _run([*compiler.command, *compiler.flags, *arguments])
    if done.returncode != 0:
        raise BuildError(f"{compiler.description} failed:\n{done.stdout}{done.stderr}")


def _zig_target() -> str:
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(
        platform.machine().lower(), platform.machine().lower()
    )
    if sys.platform == "darwin":
        return f"{machine}-macos"
    if sys.platform == "win32":
        return f"{machine}-windows-gnu"
    libc = "gnu.2.28" if platform.libc_ver()[0] == "glibc" else "musl"
    return f"{machine}-linux-{libc}"


def _version(command: list[str]) -> str:
    done = _run([*command, "--version"])
    lines = done.stdout.splitlines()
    return lines[0].strip() if done.returncode == 0 and lines else ""


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))
