"""`swiftspec run`: the sample before the user's eyes; the example of the client."""

import subprocess
import sys
from pathlib import Path

import pytest

from swiftspec_daemon.cli.run import sample_text

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "complete.py"


@pytest.fixture
def real(swiftspec, shared_models):
    """The command line with the default model."""
    swiftspec.settings["model.target"] = "default"
    cache = swiftspec.home / "cache"
    cache.mkdir(parents=True)
    (cache / "models").symlink_to(shared_models, target_is_directory=True)
    return swiftspec


@pytest.mark.model
def test_the_default_model_completes_the_sample_and_ends(real):
    done = real("run", "--once")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(sample_text())
    written = done.stdout.removeprefix(sample_text())
    assert "counts[word]" in written
    timings = done.stderr.splitlines()[-1]
    for word in ("first line", "total", "tokens/s", "prefill", "prompt tokens cached"):
        assert word in timings
    assert "\x1b" not in done.stdout + done.stderr
    assert real.record is None


@pytest.mark.model
def test_the_example_completes_a_file(real):
    file = real.folder / "add.py"
    file.write_text('def add(a, b):\n    """Return the sum of a and b."""\n    return')
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), str(file)],
        env=real.environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(" a + b")
    assert real("stop").returncode == 0


def test_it_goes_on_serving_and_a_second_run_uses_it(swiftspec, wait):
    first = swiftspec.start("run")
    record = swiftspec.wait_record()
    seen = b""
    while b"serving on" not in seen:
        line = first.stderr.readline()
        assert line, seen
        seen += line
    assert f"http://127.0.0.1:{record.port}".encode() in seen
    second = swiftspec("run", "--once")
    assert second.returncode == 0, second.stderr
    assert f"pid {record.pid}" in second.stderr
    assert second.stdout.startswith(sample_text())
    assert swiftspec.record == record
    first.terminate()
    first.communicate(timeout=60)
    assert first.returncode == 0


@pytest.mark.parametrize(
    ("target", "status", "words"),
    [
        ("toy:fail_load=1", 7, "refuses to load"),
        ("no-such/model", 7, "no-such/model"),
        ("toy:colour=red", 2, "colour"),
    ],
)
def test_a_model_that_cannot_be_run_ends_it_with_one_clear_error(swiftspec, target, status, words):
    swiftspec.settings["model.target"] = target
    done = swiftspec("run", "--once")
    assert done.returncode == status
    assert words in done.stderr
    assert done.stderr.count("error:") == 1
    assert "Traceback" not in done.stderr
    assert swiftspec.record is None


def test_without_a_network_the_error_names_file_and_folder(swiftspec):
    swiftspec.settings["model.target"] = "default"
    swiftspec.extra["PIP_NO_INDEX"] = "1"
    done = swiftspec("run", "--once")
    assert done.returncode == 7
    assert "Without a network" in done.stderr
    assert str(swiftspec.home / "cache" / "models" / "default") in done.stderr
    assert "Traceback" not in done.stderr
