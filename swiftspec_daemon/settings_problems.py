"""Says in plain words what is wrong with a setting: its name, where it is set, what it may be.

Takes msgspec's errors apart. Knows no file and no default; `settings` asks it when a value fails.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import msgspec

from swiftspec_daemon.errors import SettingsError

VARIABLE = "environment variable "
"""How an origin that is an environment variable begins."""
FLAG = "flag for "
"""How an origin that is a flag of the command line begins."""
REFERENCE = "All settings: docs/reference/settings.md."

_KINDS = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true/false"}
_UNKNOWN = "Object contains unknown field `"


def explain(
    error: msgspec.ValidationError,
    values: Mapping[str, Any],
    origins: Mapping[str, str],
    settings: type[msgspec.Struct],
) -> SettingsError:
    """The error for the user.

    `values`: what msgspec was given; `origins`: where each part of it comes from, by its dotted
    name; `settings`: the type of them all.
    """
    detail, _, where = str(error).partition(" - at `")
    path = where.rstrip("`").removeprefix("$").lstrip(".").partition("[")[0]
    if detail.startswith(_UNKNOWN):
        field = detail.removeprefix(_UNKNOWN).rstrip("`")
        name = _leaf(f"{path}.{field}".lstrip("."), values)
        origin = origins.get(name, "")
        meant = _closest(name, settings)
        question = f"; did you mean {meant}?" if meant else "."
        return SettingsError(
            f"There is no setting {name}{_place(origin)}{question}", _hint(origin, name)
        )
    given, origin = _given(_look_up(path, values)), origins.get(path, "")
    allowed = _allowed(path, settings)
    return SettingsError(
        f"{path}{_place(origin)} cannot be {given}; it must be {allowed}.", _hint(origin, path)
    )


def names(settings: type[msgspec.Struct]) -> list[str]:
    """The dotted names of all settings."""
    return [
        f"{section.name}.{field.name}"
        for section in msgspec.structs.fields(settings)
        for field in msgspec.structs.fields(section.type)
    ]


def _leaf(name: str, values: Mapping[str, Any]) -> str:
    """The first value's name under an unknown section; the name itself where it is a value."""
    value = _look_up(name, values)
    while isinstance(value, dict) and value:
        key, value = next(iter(value.items()))
        name = f"{name}.{key}"
    return name


def _look_up(name: str, values: Mapping[str, Any]) -> Any:
    found: Any = values
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _closest(name: str, settings: type[msgspec.Struct]) -> str:
    """The setting that was probably meant, "" if none is near."""
    known = names(settings)
    if near := difflib.get_close_matches(name, known, n=1, cutoff=0.75):
        return near[0]
    last = {known_name.rpartition(".")[2]: known_name for known_name in known}
    near = difflib.get_close_matches(name.rpartition(".")[2], last, n=1, cutoff=0.75)
    return last[near[0]] if near else ""


def _place(origin: str) -> str:
    if origin.startswith(FLAG):
        return " (on the command line)"
    if origin.startswith(VARIABLE):
        return f" ({origin})"
    return f" (in {origin})" if origin else ""


def _hint(origin: str, name: str) -> str:
    if origin.startswith(VARIABLE):
        return f"Correct it, or `unset {origin.removeprefix(VARIABLE)}`. {REFERENCE}"
    if origin.startswith(FLAG):
        return f"Correct the flag, or leave it out. {REFERENCE}"
    return f"Correct {name.rpartition('.')[2]} in the file, or delete it. {REFERENCE}"


def _given(value: Any) -> str:
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return f"the list {msgspec.json.encode(value).decode()}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"the number {value}"
    text = str(value)
    return f'the text "{text if len(text) <= 40 else text[:39] + "…"}"'


def _allowed(path: str, settings: type[msgspec.Struct]) -> str:
    section, _, name = path.partition(".")
    if not name:
        return f"a table of settings, [{section}]"
    (kind,) = (field.type for field in msgspec.structs.fields(settings) if field.name == section)
    schema = msgspec.json.schema(kind)["$defs"][kind.__name__]["properties"][name]
    return _in_words(schema)


def _in_words(schema: dict[str, Any]) -> str:
    """The JSON schema of one setting."""
    if "anyOf" in schema:
        return _in_words(next(part for part in schema["anyOf"] if part.get("type") != "null"))
    if "enum" in schema:
        *others, last = [f'"{value}"' for value in schema["enum"]]
        return f"{', '.join(others)} or {last}"
    if schema["type"] == "array":
        return f"a list of {_KINDS[schema['items']['type']]}s"
    low, high = schema.get("minimum"), schema.get("maximum")
    kind = f"a {_KINDS[schema['type']]}"
    if low is not None and high is not None:
        return f"{kind} from {low:g} to {high}"
    return f"{kind}, at least {low:g}" if low is not None else kind
