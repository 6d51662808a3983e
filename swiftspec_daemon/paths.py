"""Where files live: settings, token, lock, logs, models. Follows the system's conventions.

`SWIFTSPEC_HOME`, if set, holds everything in one folder (tests, portable installs).
Creates folders for their owner alone; knows nothing of what is in the files.
"""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from swiftspec_daemon.errors import SettingsError

_NAME = "swiftspec"


def _folder(kind: str, standard: str) -> Path:
    home = os.environ.get("SWIFTSPEC_HOME")
    folder = Path(home).expanduser().absolute() / kind if home else Path(standard)
    _make(folder)
    return folder


def _make(folder: Path) -> None:
    """Raises SettingsError where there can be no such folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise SettingsError(
            f"The folder {folder} cannot be made: {error.strerror}.",
            "Set SWIFTSPEC_HOME to a folder that you can write to.",
        ) from None


def config_dir() -> Path:
    """Settings file and token."""
    return _folder("config", platformdirs.user_config_dir(_NAME, appauthor=False))


def state_dir() -> Path:
    """Lock, record of the running daemon, local statistics."""
    return _folder("state", platformdirs.user_state_dir(_NAME, appauthor=False))


def log_dir() -> Path:
    """Rotating log files."""
    return _folder("log", platformdirs.user_log_dir(_NAME, appauthor=False))


def cache_dir() -> Path:
    """Models, downloaded and converted; can be deleted at any time."""
    return _folder("cache", platformdirs.user_cache_dir(_NAME, appauthor=False))


def settings_file() -> Path:
    return config_dir() / "settings.toml"


def token_file() -> Path:
    return config_dir() / "token"


def lock_file() -> Path:
    return state_dir() / "daemon.lock"


def daemon_record_file() -> Path:
    """JSON about the running daemon: pid, port, version, start time."""
    return state_dir() / "daemon.json"


def tuned_file() -> Path:
    """JSON of what `swiftspec tune` found, for each machine and model."""
    return state_dir() / "tuned.json"


def models_dir() -> Path:
    folder = cache_dir() / "models"
    _make(folder)
    return folder
