"""FILE:LINE:COL: which file, and where in it. Reads source files as people have them.

Lines and columns count from 1, as compilers and editors print them; a column counts characters
(Unicode code points). Knows nothing of the daemon.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from swiftspec_daemon.documents import Document
from swiftspec_daemon.errors import UsageError
from swiftspec_daemon.protocol.messages import Position

_TARGET = re.compile(r"(?P<file>.+?):(?P<line>\d+)(?::(?P<column>\d+))?", re.DOTALL)

_LANGUAGES = {
    ".bash": "shellscript",
    ".c": "c",
    ".cc": "cpp",
    ".cpp": "cpp",
    ".cs": "csharp",
    ".css": "css",
    ".go": "go",
    ".h": "c",
    ".hpp": "cpp",
    ".html": "html",
    ".java": "java",
    ".js": "javascript",
    ".json": "json",
    ".jsx": "javascriptreact",
    ".kt": "kotlin",
    ".lua": "lua",
    ".md": "markdown",
    ".php": "php",
    ".py": "python",
    ".pyi": "python",
    ".r": "r",
    ".rb": "ruby",
    ".rs": "rust",
    ".scala": "scala",
    ".sh": "shellscript",
    ".sql": "sql",
    ".swift": "swift",
    ".toml": "toml",
    ".ts": "typescript",
    ".tsx": "typescriptreact",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".zig": "zig",
}
"""Language identifiers of the Language Server Protocol, by file suffix."""


@dataclass(frozen=True)
class Target:
    """A place in a file."""

    file: str
    """As the user wrote it; "-" is standard input."""
    line: int | None
    """From 1; None is the last line."""
    column: int | None
    """From 1; None is the end of the line."""


@dataclass(frozen=True)
class Source:
    """A file's text, and how it was read."""

    uri: str
    text: str
    language: str
    """Empty if the suffix is not known."""
    encoding: str
    """"utf-8" or, for what is not, "latin-1"."""


def parse_target(argument: str) -> Target:
    """Take FILE, FILE:LINE or FILE:LINE:COL apart. A file that is named like that wins.

    Raises UsageError.
    """
    if not argument.strip():
        raise UsageError("No file is named.", "Write FILE:LINE:COL.")
    match = _TARGET.fullmatch(argument)
    if match is None or Path(argument).exists():
        return Target(argument, None, None)
    line, column = int(match["line"]), match["column"]
    if line < 1 or (column is not None and int(column) < 1):
        raise UsageError(
            f"{argument}: lines and columns count from 1.", "Write FILE:LINE:COL, say main.py:10:5."
        )
    return Target(match["file"], line, int(column) if column else None)


def read_source(name: str, *, max_bytes: int) -> Source:
    """Read a text file, or standard input for "-".

    UTF-8 with or without a byte order mark; what is not UTF-8 is read as Latin-1. Raises UsageError
    for what is missing, no file, not text, or larger than `max_bytes`.
    """
    raw = sys.stdin.buffer.read(max_bytes + 1) if name == "-" else _read_bytes(name, max_bytes)
    if len(raw) > max_bytes:
        raise UsageError(
            f"{name} is larger than the {max_bytes} bytes that a message may have.",
            "Raise server.max_message_bytes in settings.toml.",
        )
    if b"\0" in raw:
        raise UsageError(f"{name} is not a text file: it has NUL bytes.", "Choose a text file.")
    path = Path(name)
    uri = "untitled:stdin" if name == "-" else path.absolute().as_uri()
    language = _LANGUAGES.get(path.suffix.lower(), "")
    try:
        return Source(uri, raw.decode("utf-8-sig"), language, "utf-8")
    except UnicodeDecodeError:
        return Source(uri, raw.decode("latin-1"), language, "latin-1")


def locate(target: Target, document: Document) -> Position:
    """The position, in code points. Raises UsageError, naming the file's size, if it is outside."""
    count = document.line_count
    line = count if target.line is None else target.line
    if line > count:
        lines = "line" if count == 1 else "lines"
        raise UsageError(
            f"Line {line} is outside of {target.file}, which has {count} {lines}.",
            f"Choose a line from 1 to {count}.",
        )
    start, end = document.line_span(line - 1)
    length = end - start
    column = length + 1 if target.column is None else target.column
    if column > length + 1:
        raise UsageError(
            f"Column {column} is outside of line {line} of {target.file}, "
            f"which has {length} characters.",
            f"Choose a column from 1 to {length + 1}, or leave it out for the end of the line.",
        )
    return Position(line - 1, column - 1)


def _read_bytes(name: str, limit: int) -> bytes:
    path = Path(name)
    try:
        if path.is_dir():
            raise UsageError(f"{name} is a folder, not a file.", "Name a file in it.")
        if path.exists() and not path.is_file():
            raise UsageError(f"{name} is not a regular file.", "Use `-` to read standard input.")
        with path.open("rb") as stream:
            return stream.read(limit + 1)
    except FileNotFoundError:
        raise UsageError(f"There is no file {name}.", "Write FILE:LINE:COL.") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{name} cannot be read: {reason}.") from None
