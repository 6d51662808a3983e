"""The one exception tree of the project.

Every error that a user can meet derives from `SwiftSpecError`: its message says in one sentence
what is wrong, `hint` says what to do next, and `exit_code` is what the command line ends with.
Knows no other module.
"""

from __future__ import annotations

from typing import ClassVar


class SwiftSpecError(Exception):
    """An error with a message for the user, a hint, a wire code and an exit code."""

    code: ClassVar[str] = "internal"
    """Short machine-readable name, sent over the wire."""
    exit_code: ClassVar[int] = 1
    """Exit status of the command line."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


def in_one_line(error: BaseException, characters: int = 300) -> str:
    """What another library's error says, on one line with a full stop, for a message of ours."""
    said = " ".join(str(error).split()) or type(error).__name__
    if len(said) > characters:
        return said[:characters].rstrip() + "..."
    return said if said.endswith((".", "!", "?")) else f"{said}."


class UsageError(SwiftSpecError):
    """The user asked for something that makes no sense: wrong argument, position outside a file."""

    code = "invalid_request"
    exit_code = 2


class SettingsError(UsageError):
    """A setting has a value that it cannot have."""

    code = "invalid_settings"


class DaemonNotRunning(SwiftSpecError):
    """No daemon answers where one should."""

    code = "daemon_not_running"
    exit_code = 3


class DaemonAlreadyRunning(SwiftSpecError):
    """A second daemon was started for the same user."""

    code = "daemon_already_running"
    exit_code = 4


class PortInUse(SwiftSpecError):
    """Another program listens on the daemon's port."""

    code = "port_in_use"
    exit_code = 5


class Unauthorized(SwiftSpecError):
    """The token is missing or wrong, or the request comes from a foreign page."""

    code = "unauthorized"
    exit_code = 6


class ModelError(SwiftSpecError):
    """A model cannot be found, fetched, read or run."""

    code = "model_error"
    exit_code = 7


class ModelNotFound(ModelError):
    """No model of that name, or not all of its files."""

    code = "model_not_found"


class UnsupportedModel(ModelError):
    """The model's architecture, quantisation or tokenizer is not one that we can run."""

    code = "unsupported_model"


class DownloadError(ModelError):
    """A download failed, or what came has the wrong checksum."""

    code = "download_failed"


class EngineError(SwiftSpecError):
    """The engine worker failed or is not there."""

    code = "engine_error"
    exit_code = 8


class ContextTooLong(EngineError):
    """A request needs more tokens than the model's context or the memory budget holds."""

    code = "context_too_long"


class Overloaded(EngineError):
    """The queue is full; try again later."""

    code = "overloaded"


class ProtocolError(SwiftSpecError):
    """The other side sent something that is not of the protocol."""

    code = "protocol_error"
    exit_code = 9


class DocumentError(ProtocolError):
    """An edit or request names a document that is not open, or a version that is not the last."""

    code = "document_error"
