"""The token that clients must show: a file that only its owner can read, kept across restarts.

Knows nothing of requests.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import stat
import tempfile
from pathlib import Path

from swiftspec_daemon import paths
from swiftspec_daemon.errors import SettingsError

_log = logging.getLogger(__name__)

_BYTES = 32
_LONGEST_FILE = 1024
_FORM = re.compile(r"[A-Za-z0-9_-]{32,256}")
"""Valid as a websocket subprotocol (RFC 6455, section 4.1) and a bearer token (RFC 6750) too."""


def load_or_create_token(file: Path | None = None) -> str:
    """The token in `file` (default: the user's), made with mode 0600 if it is not there.

    Permissions that let others read it are mended, and the log says so. Raises SettingsError if
    the file cannot be read, cannot be made private, or holds no token.
    """
    file = _place(file)
    try:
        return _create(file)
    except FileExistsError:
        return _load(file)
    except OSError as error:
        raise SettingsError(f"The token file {file} cannot be made: {error.strerror}.") from None


def rotate_token(file: Path | None = None) -> str:
    """Replace the token by a new one, in one step; a running daemon still wants the old one.

    Raises SettingsError.
    """
    file = _place(file)
    token = secrets.token_urlsafe(_BYTES)
    try:
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=".token-")  # mode 0600
        with os.fdopen(handle, "w", encoding="ascii") as stream:
            stream.write(token + "\n")
        Path(name).replace(file)
    except OSError as error:
        raise SettingsError(f"The token file {file} cannot be made: {error.strerror}.") from None
    return token


def _place(file: Path | None) -> Path:
    file = file or paths.token_file()
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return file


def _create(file: Path) -> str:
    """Raises FileExistsError."""
    token = secrets.token_urlsafe(_BYTES)
    # Written under another name first: whoever finds the file finds a whole token in it.
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=".token-")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as stream:
            stream.write(token + "\n")
        _link(temporary, file, token)
    finally:
        temporary.unlink(missing_ok=True)
    return token


def _link(temporary: Path, file: Path, token: str) -> None:
    """Raises FileExistsError, unlike a rename."""
    try:
        os.link(temporary, file)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as stream:
            stream.write(token + "\n")


def _load(file: Path) -> str:
    """Read the token, then make its file private: one descriptor for all, links not followed.

    Nothing is changed before the file has shown that it is a token of ours.
    """
    hint = f"Delete {file}; the daemon makes a new one."
    try:
        # Without O_NONBLOCK a named pipe would keep us waiting.
        flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        descriptor = os.open(file, os.O_RDONLY | flags)
    except OSError as error:
        if file.is_symlink():
            raise SettingsError(f"The token file {file} is a link.", hint) from None
        message = f"The token file {file} cannot be read: {error.strerror}."
        raise SettingsError(message, hint) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise SettingsError(f"The token file {file} is not a regular file.", hint)
        token = os.read(descriptor, _LONGEST_FILE).decode("ascii", "replace").strip()
        if not _FORM.fullmatch(token):
            raise SettingsError(f"The token file {file} holds no token.", hint)
        if os.name == "posix":  # elsewhere the user's folder is private by default
            _make_private(file, descriptor, status)
    finally:
        os.close(descriptor)
    return token


def _make_private(file: Path, descriptor: int, status: os.stat_result) -> None:
    if status.st_uid != os.getuid():
        raise SettingsError(
            f"The token file {file} belongs to another user.", "Delete it, or run as its owner."
        )
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        os.fchmod(descriptor, 0o600)
        _log.warning(
            "the token file %s could be used by others; it is private now. "
            "Consider `swiftspec token rotate`.",
            file,
        )
