"""Wheel, sdist and editable install give a working package, from any folder.

Builds from a clean copy of the repository, without isolation and without dependencies; the new
environments see this one's libraries, pip and setuptools among them, through a .pth file, which
comes after their own packages. The kernels are compiled without optimising, for speed of the test.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IGNORED = shutil.ignore_patterns(
    ".git",
    ".venv*",
    "build",
    "dist",
    "*.egg-info",
    "__pycache__",
    ".*_cache",
    ".hypothesis",
    "*.so",
)
SEE = """
import sys, swiftspec_daemon, swiftspec_daemon.kernels, swiftspec_daemon.lsp
import swiftspec_daemon.kernels.native.library
import swiftspec_daemon.server.run, swiftspec_daemon.bench.report
import importlib.util
print(swiftspec_daemon.__file__)
print(swiftspec_daemon.kernels.__file__)
print(swiftspec_daemon.lsp.__file__)
spec = importlib.util.find_spec("kernels")
print(spec and spec.origin)
"""

pytestmark = pytest.mark.timeout(600)


def command(*arguments: str | Path, cwd: Path, **environment: str) -> str:
    ran = subprocess.run(
        [str(argument) for argument in arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONSAFEPATH": "1", **environment},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def pip(python: Path | str, *arguments: str | Path, cwd: Path) -> None:
    """Run pip in an environment."""
    flags = ("--no-input", "--disable-pip-version-check", "--no-cache-dir")
    command(python, "-m", "pip", *flags, *arguments, cwd=cwd)


@pytest.fixture(autouse=True)
def quick_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's compiler without optimising; one from PyPI is left as it is."""
    if shutil.which("c++"):
        script = tmp_path / "c++-O0"
        script.write_text('#!/bin/sh\nexec c++ "$@" -O0\n')
        script.chmod(0o755)
        monkeypatch.setenv("CXX", str(script))


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean copy of the repository."""
    return shutil.copytree(ROOT, tmp_path_factory.mktemp("source") / "repo", ignore=IGNORED)


def environment(folder: Path) -> Path:
    """A new virtual environment that also sees this one's libraries; returns its python."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    site = Path(command(python, "-c", _PURELIB, cwd=folder).strip())
    paths = [sysconfig.get_path("purelib"), *_added_paths()]
    (site / "zz_libraries.pth").write_text("\n".join(paths) + "\n")
    return python


_PURELIB = "import sysconfig; print(sysconfig.get_path('purelib'))"
# pip sees this environment's copy of the project through the .pth file; it is not to be counted.
_INSTALL = ("--no-deps", "--no-index", "--ignore-installed")


def _added_paths() -> list[str]:
    """Other site folders of this environment, outside the standard library and the repository."""
    standard = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), str(ROOT)}
    return [path for path in sys.path if path.endswith("-packages") and path not in standard]


def looks_installed(python: Path, elsewhere: Path) -> list[str]:
    """Where the package's parts came from in a process that runs in a foreign folder."""
    lines = command(python, "-c", SEE, cwd=elsewhere).splitlines()
    assert lines[3] == "None" or "swiftspec" not in lines[3]
    script = python.with_name("swiftspec")
    assert "Usage" in command(script, "--help", cwd=elsewhere)
    return lines[:3]


def test_wheel_from_sdist(checkout: Path, tmp_path: Path):
    """sdist -> wheel -> a new environment: all parts are in site-packages."""
    build = "import build_backend, sys; print(build_backend.build_sdist(sys.argv[1]))"
    path = str(checkout / "packaging")
    name = command(sys.executable, "-c", build, tmp_path, cwd=checkout, PYTHONPATH=path)
    sdist = tmp_path / name.splitlines()[-1]
    assert sdist.suffixes[-2:] == [".tar", ".gz"]
    _wheel_works(sdist, tmp_path)


def test_wheel_from_the_tree(checkout: Path, tmp_path: Path):
    _wheel_works(checkout, tmp_path)


def _wheel_works(source: Path, tmp_path: Path) -> None:
    flags = ("--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir", tmp_path / "wheels")
    pip(sys.executable, "wheel", *flags, source, cwd=tmp_path)
    (wheel,) = (tmp_path / "wheels").glob("swiftspec_daemon-*.whl")
    python = environment(tmp_path / "venv")
    pip(python, "install", *_INSTALL, wheel, cwd=tmp_path)
    for place in looks_installed(python, tmp_path):
        assert Path(place).is_relative_to(tmp_path / "venv")


def test_editable(checkout: Path, tmp_path: Path):
    python = environment(tmp_path / "venv")
    pip(python, "install", *_INSTALL, "--no-build-isolation", "-e", checkout, cwd=tmp_path)
    package, kernels, lsp = looks_installed(python, tmp_path)
    assert Path(package) == checkout / "swiftspec_daemon" / "__init__.py"
    assert Path(kernels) == checkout / "kernels" / "__init__.py"
    assert Path(lsp) == checkout / "lsp" / "__init__.py"


TINY = """
from transformers import LlamaConfig, LlamaForCausalLM
config = LlamaConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=1,
                     num_attention_heads=2, vocab_size=64)
print(type(LlamaForCausalLM(config)).__name__)
"""


@pytest.mark.parametrize("safe_path", ["1", ""])
def test_transformers_works_in_the_repository(safe_path: str):
    """transformers looks for a package called `kernels`; ours, in the working folder, is not it."""
    built = command(
        sys.executable, "-c", TINY, cwd=ROOT, PYTHONSAFEPATH=safe_path, OMP_WAIT_POLICY="PASSIVE"
    )
    assert built.split() == ["LlamaForCausalLM"]
