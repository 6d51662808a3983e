"""Build backend: setuptools, plus a C++ compiler from PyPI where the system has none.

Knows which compilers count as present; the compiling itself is in setup.py.
"""

from __future__ import annotations

import shutil
import sys
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403


def _compiler_requirement() -> list[str]:
    """`ziglang` carries clang as a wheel; it is only asked for when nothing else is found."""
    if sys.platform == "win32" or not any(map(shutil.which, ("c++", "g++", "clang++"))):
        return ["ziglang>=0.13"]
    return []


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    return build_meta.get_requires_for_build_wheel(config_settings) + _compiler_requirement()


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    return build_meta.get_requires_for_build_editable(config_settings) + _compiler_requirement()
