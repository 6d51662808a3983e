"""Builds the native kernels when the package is built; everything else is in pyproject.toml.

With a C++ compiler the shared library joins the package; without one it is left out, loudly, and
the daemon runs its models on NumPy.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.extension import Extension

_FOLDER = Path(__file__).resolve().parent
_NATIVE = _FOLDER / "kernels" / "native"


def _load_builder() -> ModuleType:
    """kernels/native/build.py, which cannot be imported by name before it is installed."""
    spec = importlib.util.spec_from_file_location("_native_build", _NATIVE / "build.py")
    if spec is None or spec.loader is None:
        raise ImportError(f"{_NATIVE / 'build.py'} is missing")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class BuildNative(build_ext):
    """Compiles kernels/native with the compiler that is found, instead of Python's own way."""

    def run(self) -> None:
        builder = _load_builder()
        in_place = self.inplace or self.editable_mode
        folder = _NATIVE if in_place else Path(self.build_lib) / "swiftspec_daemon/kernels/native"
        library = folder / builder.LIBRARY_NAME
        library.unlink(missing_ok=True)
        compiler = builder.find_compiler()
        if compiler is None:
            _say("NOT BUILT, no C++ compiler was found: models will run on NumPy, very slowly.")
            return
        try:
            builder.build(library, compiler)
        except builder.BuildError as error:
            _say(f"NOT BUILT, models will run on NumPy, very slowly: {error}")
            return
        _say(f"built by {compiler.description}")

    # The library is no Python extension, so there is nothing for setuptools to place or to map.
    def get_outputs(self) -> list[str]:
        return []

    def get_output_mapping(self) -> dict[str, str]:
        return {}

    def get_source_files(self) -> list[str]:
        return [str(path.relative_to(_FOLDER)) for path in sorted(_NATIVE.glob("*.[ch]*"))]


class PlatformWheel(bdist_wheel):
    """The library is of one platform, but of no Python version: py3-none-<platform>."""

    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", super().get_tag()[2])


class NativeDistribution(Distribution):
    """Tells setuptools that the wheel is not pure."""

    def has_ext_modules(self) -> bool:
        return True


def _say(line: str) -> None:
    print(f"swiftspec native kernels: {line}", file=sys.stderr)


setup(
    distclass=NativeDistribution,
    ext_modules=[Extension("swiftspec_daemon.kernels.native._library", sources=[])],
    cmdclass={"build_ext": BuildNative, "bdist_wheel": PlatformWheel},
)
