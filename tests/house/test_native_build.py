"""The native kernels build with the system's compiler and with zig's, to the same results."""

import sys

import numpy as np
import pytest

from swiftspec_daemon.kernels.native import build, packing
from swiftspec_daemon.kernels.native.library import load
from swiftspec_daemon.kernels.native.model import NativeModel
from swiftspec_daemon.kernels.native.shape import NativeShape

SHAPE = NativeShape(
    hidden=72,
    layers=1,
    heads=4,
    kv_heads=2,
    head_dim=24,
    ff=88,
    vocab=50,
    norm_eps=1e-6,
    tied=True,
)


def logits(library, isa):
    random = np.random.default_rng(0)

    def matrix(out, width):
        return (random.standard_normal((out, width)) / width**0.5).astype(np.float32)

    q, kv = matrix(96, 72), [matrix(48, 72), matrix(48, 72)]
    matrices = {
        "embedding": matrix(50, 72) * 9,
        "layers.0.qkv": packing.join_qkv(SHAPE, q, *kv),
        "layers.0.output": packing.pad_output(SHAPE, matrix(72, 96)),
        "layers.0.gate_up": packing.join_gate_up(matrix(88, 72), matrix(88, 72)),
        "layers.0.down": matrix(72, 88),
    }
    arrays = {
        name: array
        for linear, weight in matrices.items()
        for name, array in packing.pack_linear(linear, weight)
    }
    for name in ("final_norm", "layers.0.attention_norm", "layers.0.ff_norm"):
        arrays[name] = np.ones(72, np.float32)
    angles = np.arange(64)[:, None] * 100.0 ** (-np.arange(12) / 12)
    tables = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    model = NativeModel(library, SHAPE, arrays, *tables, threads=2, isa=isa)
    return model.append(model.new_cache(64), list(range(50)), logits="all")


@pytest.fixture(scope="module")
def of_the_system(tmp_path_factory):
    """Built by the system's compiler, apart from the installed library."""
    compiler = build.find_compiler()
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    path = tmp_path_factory.mktemp("system") / build.LIBRARY_NAME
    build.build(path, compiler)
    return load(path)


def test_a_build_is_whole(of_the_system):
    assert of_the_system.has_isa("portable")
    assert not of_the_system.has_isa("sse9")
    assert of_the_system.has_isa(of_the_system.best_isa)
    assert np.isfinite(logits(of_the_system, "portable")).all()


@pytest.mark.timeout(600)
def test_zig_builds_the_same(of_the_system, tmp_path):
    compiler = build.zig_compiler()
    if compiler is None:
        pytest.skip("ziglang is not installed")
    path = tmp_path / build.LIBRARY_NAME
    build.build(path, compiler)
    library = load(path)
    assert "clang" in library.compiler
    assert library.best_isa == of_the_system.best_isa
    for isa in {"portable", library.best_isa}:
        ours, theirs = logits(of_the_system, isa), logits(library, isa)
        assert np.array_equal(ours.view(np.uint32), theirs.view(np.uint32)), isa


def test_the_named_compiler_is_taken(monkeypatch):
    compiler = build.find_compiler()
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    monkeypatch.setenv("CXX", " ".join(compiler.command))
    assert build.find_compiler() == compiler
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert build.find_compiler() == compiler


def test_a_failed_build_says_why_and_leaves_nothing(tmp_path):
    broken = build.Compiler((sys.executable, "-c", "raise SystemExit('no such thing')"), "a fake")
    with pytest.raises(build.BuildError, match=r"(?s)a fake failed.*no such thing"):
        build.build(tmp_path / "library.so", broken)
    assert list(tmp_path.iterdir()) == []


def test_the_build_is_for_no_single_machine():
    """Targets belong to functions; a flag would put them everywhere."""
    compilers = [build.find_compiler(), build.zig_compiler()]
    flags = [*build._FLAGS, *(flag for one in compilers if one for flag in one.flags)]
    assert not [flag for flag in flags if flag.startswith(("-march", "-mcpu", "-mtune"))]
