"""The JSON schema of all messages, and the tables of `docs/reference/websocket.md`, from the types.

`python -m swiftspec_daemon.protocol.schema [FILE]` brings the generated parts of that page up to
date. Texts are the types' own docstrings. Knows no sockets.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
import textwrap
import types
import typing
from pathlib import Path
from typing import Any

import msgspec

from swiftspec_daemon.protocol import messages, speculation
from swiftspec_daemon.protocol.messages import ClientMessage, ServerMessage

PAGE = Path("docs/reference/websocket.md")
_PARTS = (
    messages.Position,
    messages.Edit,
    messages.Timings,
    messages.ModelStatus,
    messages.Counters,
    speculation.SpeculationReport,
    speculation.SpeculationCounts,
    speculation.SpeculationStatus,
    speculation.DraftStatus,
    speculation.PlannerStatus,
    speculation.SourceStatus,
)


def schema() -> dict[str, Any]:
    """JSON schema 2020-12; `#/$defs/ClientMessage` and `#/$defs/ServerMessage` are the roots."""
    (client, server), components = msgspec.json.schema_components(
        [ClientMessage, ServerMessage], ref_template="#/$defs/{name}"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "swiftspec.v1",
        "$defs": {**components, "ClientMessage": client, "ServerMessage": server},
    }


def tables() -> str:
    """One table for each message, as Markdown."""
    parts = ["### From the client"]
    parts += [_table(kind) for kind in typing.get_args(ClientMessage)]
    parts += ["### From the server"]
    parts += [_table(kind) for kind in typing.get_args(ServerMessage)]
    parts += ["### Parts of messages"]
    parts += [_table(kind) for kind in _PARTS]
    return "\n\n".join(parts)


def updated(page: str) -> str:
    """`page` with its generated parts as they should be. Raises ValueError without markers."""
    page = _replaced(page, "messages", tables())
    text = json.dumps(schema(), indent=1, ensure_ascii=False)
    return _replaced(page, "schema", f"```json\n{text}\n```")


def main() -> None:
    """Bring the page up to date."""
    page = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    page.write_text(updated(page.read_text("utf-8")), "utf-8")


def _replaced(page: str, name: str, content: str) -> str:
    begin, end = f"<!-- generated: {name} -->\n", f"\n<!-- end of {name} -->"
    head, found, rest = page.partition(begin)
    _, found_end, tail = rest.partition(end)
    if not found or not found_end:
        raise ValueError(f"The page lacks the markers of {name}.")
    return head + begin + content + end + tail


def _table(kind: type[msgspec.Struct]) -> str:
    tag = kind.__struct_config__.tag
    title = f"#### `{tag}`" if tag else f"#### {kind.__name__}"
    lines = [title, "", _paragraph(inspect.getdoc(kind) or "")]
    texts = _field_texts(kind)
    fields = msgspec.structs.fields(kind)
    if fields:
        lines += ["", "| field | type | default | |", "|---|---|---|---|"]
    hints = typing.get_type_hints(kind)
    for field in fields:
        cells = (f"`{field.name}`", _type_name(hints[field.name]), _default(field))
        lines.append(f"| {' | '.join(cells)} | {_paragraph(texts.get(field.name, ''))} |")
    return "\n".join(lines)


def _paragraph(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _field_texts(kind: type) -> dict[str, str]:
    """The string below each field in the source."""
    [definition] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    if not isinstance(definition, ast.ClassDef):
        raise TypeError(kind)
    texts = {}
    for field, text in zip(definition.body, definition.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            texts[field.target.id] = str(text.value.value)
    return texts


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    made = field.default is msgspec.NODEFAULT
    value = field.default_factory() if made else field.default
    return "absent" if value is None else f"`{_json(value)}`"


def _json(value: object) -> str:
    return "{}" if isinstance(value, msgspec.Struct) else json.dumps(value)


def _type_name(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return ", ".join(f"`{_json(value)}`" for value in arguments)
    if origin in (types.UnionType, typing.Union):
        names = [_type_name(part) for part in arguments if part is not types.NoneType]
        return " or ".join(names)
    if origin is dict:
        return f"object of {_type_name(arguments[1])}"
    if origin is not None:
        return f"list of {_type_name(arguments[0])}"
    plain = {str: "string", int: "integer", float: "number", bool: "boolean"}
    name: str = plain.get(hint, hint.__name__)
    return name


if __name__ == "__main__":
    main()
