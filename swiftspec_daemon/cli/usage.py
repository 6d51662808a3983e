"""What is wrong with a command line, in one sentence, where the parser refuses it.

Knows the parser's errors; knows no command.
"""

from __future__ import annotations

from typing import Any, cast

import typer

from swiftspec_daemon.errors import UsageError

PARSE_ERRORS = cast(type[Exception], typer.BadParameter.__mro__[1])
"""The parser's class of all such errors; typer exports only this child of it."""

_NOISE = "Value error, "
"""What newer parsers begin a message with."""


def describe(error: Exception) -> UsageError | None:
    """The parser's error in our words; None if it has shown the help already."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return None
    context: Any = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "swiftspec"
    return UsageError(_sentence(error), f"See `{command} --help`.")


def _sentence(error: Any) -> str:
    parameter = getattr(error, "param", None)
    if isinstance(error, typer.BadParameter) and error.message and parameter is not None:
        name = parameter.opts[0] if parameter.opts else parameter.name
        low, high = _bound(parameter, "min"), _bound(parameter, "max")
        if low is not None and high is not None:
            return f"{name} must be a number from {low:g} to {high:g}."
        if low is not None:
            return f"{name} must be a number, at least {low:g}."
        if high is not None:
            return f"{name} must be a number, at most {high:g}."
        return f"{name}: {_ended(error.message.removeprefix(_NOISE))}"
    return _ended(error.format_message())


def _bound(parameter: Any, name: str) -> float | None:
    """The least or greatest value; typer keeps it with the parameter, older ones with its type."""
    bound: float | None = getattr(parameter, name, None)
    return getattr(getattr(parameter, "type", None), name, None) if bound is None else bound


def _ended(text: str) -> str:
    line = " ".join(text.split())
    return line if line.endswith((".", "?", "!")) else f"{line}."
