"""Finding the library, saying which it is, and what happens without it."""

import logging
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from swiftspec_daemon.kernels.native import build, choose, library
from swiftspec_daemon.kernels.native.library import LibraryUnavailable
from swiftspec_daemon.kernels.native.reference import ReferenceModel

LIBRARY = build.SOURCES / build.LIBRARY_NAME


def test_a_missing_library_says_how_to_build_it(tmp_path):
    with pytest.raises(LibraryUnavailable, match=r"have not been built.*pip install"):
        library.load(tmp_path / "none.so")


def test_a_file_that_is_no_library(tmp_path):
    broken = tmp_path / build.LIBRARY_NAME
    broken.write_bytes(b"not a library")
    with pytest.raises(LibraryUnavailable, match=r"cannot be loaded.*pip install"):
        library.load(broken)


def test_a_library_of_older_sources_is_refused(tmp_path, monkeypatch):
    copy = tmp_path / build.LIBRARY_NAME
    shutil.copy(LIBRARY, copy)
    monkeypatch.setattr(library, "source_digest", lambda: "0" * 16)
    with pytest.raises(LibraryUnavailable, match=r"older than their sources.*pip install"):
        library.load(copy)


def test_a_library_of_another_interface_is_refused(tmp_path, monkeypatch):
    copy = tmp_path / build.LIBRARY_NAME
    shutil.copy(LIBRARY, copy)
    monkeypatch.setattr(library, "ABI_VERSION", library.ABI_VERSION + 1)
    with pytest.raises(LibraryUnavailable, match=r"another version.*pip install"):
        library.load(copy)


def test_the_digest_changes_with_any_source(tmp_path):
    for path in build.SOURCES.glob("*.h"):
        shutil.copy(path, tmp_path)
    before = build.source_digest(tmp_path)
    assert before == build.source_digest(tmp_path)
    (tmp_path / "simd.h").write_text("// other\n")
    assert build.source_digest(tmp_path) != before


def test_without_a_library_numpy_runs_and_says_so_once(tiny, monkeypatch, caplog):
    def unavailable():
        raise LibraryUnavailable("The kernels are not there. Build them.")

    model = tiny.model("llama")
    monkeypatch.setattr(choose, "load", unavailable)
    monkeypatch.delenv(library.ISA_VARIABLE, raising=False)
    choose._warn_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        first, second = model.open(None), model.open(None)
    assert isinstance(first, ReferenceModel)
    assert isinstance(second, ReferenceModel)
    assert caplog.text.count("Build them.") == 1
    with pytest.raises(ValueError, match="portable"):
        model.open("portable")


def test_the_environment_forces_an_instruction_set(tiny, monkeypatch):
    model = tiny.model("llama")
    for isa in ("portable", "numpy"):
        monkeypatch.setenv(library.ISA_VARIABLE, isa)
        assert model.open(None).isa == isa
    assert "NumPy" in library.describe()
    monkeypatch.setenv(library.ISA_VARIABLE, "portable")
    assert library.describe().startswith("portable, ")
    monkeypatch.setenv(library.ISA_VARIABLE, "sse9")
    with pytest.raises(ValueError, match="sse9"):
        model.open(None)


def test_the_best_is_taken_by_default(tiny, monkeypatch):
    monkeypatch.delenv(library.ISA_VARIABLE, raising=False)
    assert tiny.model("llama").open(None).isa == library.load().best_isa


@pytest.mark.parametrize("threads", [0, -1, 257])
def test_thread_counts_that_cannot_be(tiny, threads):
    with pytest.raises(ValueError, match="threads"):
        tiny.model("llama").open("portable", threads=threads)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("layers.1.down.panels", None),
        ("layers.0.qkv.scales", lambda a: a[:-1]),
        ("final_norm", lambda a: a.astype(np.float64)),
        ("embedding.panels", lambda a: a[:, ::-1]),
    ],
)
def test_arrays_that_do_not_fit_are_refused_by_name(tiny, name, change):
    model = tiny.model("llama")
    arrays = dict(model.arrays)
    array = arrays.pop(name)
    if change:
        arrays[name] = change(array)
    with pytest.raises(ValueError, match=name):
        type(model)(model.spec, model.weights, arrays).open("portable")


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_idle_threads_sleep(tiny):
    """Workers spin for a moment and then leave the processor to others."""
    before = set(os.listdir("/proc/self/task"))
    running = tiny.model("llama").open("portable", threads=4)
    workers = set(os.listdir("/proc/self/task")) - before
    assert len(workers) == 3
    running.append(running.new_cache(50), [1, 2, 3])

    def states():
        stats = [Path(f"/proc/self/task/{worker}/stat").read_text() for worker in workers]
        return {stat.rpartition(")")[2].split()[0] for stat in stats}

    deadline = time.monotonic() + 30
    while states() != {"S"} and time.monotonic() < deadline:
        time.sleep(0.01)
    assert states() == {"S"}
    del running


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_threads_end_with_their_model(tiny):
    before = set(os.listdir("/proc/self/task"))
    running = tiny.model("llama").open("portable", threads=3)
    workers = set(os.listdir("/proc/self/task")) - before
    running.append(running.new_cache(10), [1])
    del running
    assert len(workers) == 2
    assert not workers & set(os.listdir("/proc/self/task"))
