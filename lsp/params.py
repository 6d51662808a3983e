"""Reads the parameters of requests leniently: what is missing or wrong gets a harmless value.

Knows the shapes of the Language Server Protocol 3.18 and of what clients really send; knows
nothing of documents, connections or answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from swiftspec_daemon.protocol.messages import Edit, Position, PositionEncoding

_ENCODINGS: dict[str, PositionEncoding] = {"utf-8": "utf-8", "utf-16": "utf-16", "utf-32": "utf-32"}
_LARGEST = 2**31 - 1
_SURROGATES = re.compile("[\ud800-\udfff]")

Trigger = Literal["invoked", "automatic"]


@dataclass(frozen=True)
class Client:
    """What an editor says of itself in `initialize`."""

    name: str
    """Name and version ("Neovim/0.12.4"), empty if not told."""
    process_id: int | None
    position_encoding: PositionEncoding
    """The first of its encodings that we know; utf-16 if it names none."""
    has_inline_completion: bool
    plain_completion: bool
    """Whether `textDocument/completion` is offered: by its option, else where inline is not."""


@dataclass(frozen=True)
class SelectedCompletion:
    """The entry that is selected in the editor's own completion menu."""

    start: Position
    end: Position
    text: str


@dataclass(frozen=True)
class CompletionRequest:
    """A request for a completion, of any of the three methods."""

    uri: str
    position: Position
    trigger: Trigger = "automatic"
    selected: SelectedCompletion | None = None
    partial_token: int | str | None = None
    max_lines: int | None = None
    max_tokens: int | None = None


@dataclass(frozen=True)
class Change:
    """The edits of one `didChange`; `text` instead, if the whole text was sent."""

    edits: list[Edit]
    text: str | None = None


def client(params: Any) -> Client:
    """The parameters of `initialize`."""
    info = mapping(params, "clientInfo")
    name = "/".join(filter(None, (string(info.get("name")), string(info.get("version")))))
    capabilities = mapping(params, "capabilities")
    inline = mapping(capabilities, "textDocument").get("inlineCompletion") is not None
    option = mapping(params, "initializationOptions").get("plainCompletion")
    return Client(
        name=name,
        process_id=_positive(mapping(params).get("processId")),
        position_encoding=_encoding(mapping(capabilities, "general").get("positionEncodings")),
        has_inline_completion=inline,
        plain_completion=option if isinstance(option, bool) else not inline,
    )


def uri(params: Any) -> str:
    """`textDocument.uri`, empty if there is none."""
    return string(mapping(params, "textDocument").get("uri"))


def completion_request(params: Any) -> CompletionRequest:
    """The parameters of an inline, plain or streaming completion request."""
    given = mapping(params)
    context = mapping(given, "context")
    kind = context.get("triggerKind", given.get("triggerKind"))
    token = given.get("partialToken")
    return CompletionRequest(
        uri=uri(given),
        position=position(given.get("position")),
        # The specification counts from 1 (invoked), older clients from 0.
        trigger="invoked" if kind in (0, 1) and not isinstance(kind, bool) else "automatic",
        selected=_selected(context.get("selectedCompletionInfo")),
        partial_token=token if isinstance(token, int | str) else None,
        max_lines=_positive(given.get("maxLines")),
        max_tokens=_positive(given.get("maxTokens")),
    )


def change(params: Any) -> Change:
    """`contentChanges`: edits, each against the text that the one before it left."""
    edits: list[Edit] = []
    whole: str | None = None
    changes = mapping(params).get("contentChanges")
    for item in changes if isinstance(changes, list) else []:
        given = mapping(item)
        text = well_formed(string(given.get("text")))
        if given.get("range") is None:
            whole, edits = text, []
        else:
            edges = mapping(given, "range")
            start, end = position(edges.get("start")), position(edges.get("end"))
            edits.append(Edit(start=start, end=end, text=text))
    return Change(edits, whole)


def position(value: Any) -> Position:
    """A position; fields that are missing, negative or no numbers count as 0."""
    given = mapping(value)
    return Position(_clamped(given.get("line")), _clamped(given.get("character")))


def well_formed(text: str) -> str:
    """`text` with lone surrogates replaced by U+FFFD, which is as long in every encoding."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def mapping(value: Any, key: str | None = None) -> dict[str, Any]:
    """`value`, or its member `key`, if it is a JSON object; else an empty one."""
    if key is not None:
        value = mapping(value).get(key)
    return value if isinstance(value, dict) else {}


def string(value: Any) -> str:
    """`value` if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def _selected(value: Any) -> SelectedCompletion | None:
    given = mapping(value)
    if not isinstance(given.get("text"), str):
        return None
    edges = mapping(given, "range")
    if not isinstance(edges.get("start"), dict) or not isinstance(edges.get("end"), dict):
        return None  # without a range nobody can tell what it would replace
    return SelectedCompletion(
        position(edges.get("start")), position(edges.get("end")), well_formed(given["text"])
    )


def _encoding(names: Any) -> PositionEncoding:
    for name in names if isinstance(names, Iterable) else ():
        if isinstance(name, str) and name in _ENCODINGS:
            return _ENCODINGS[name]
    return "utf-16"


def _clamped(value: Any) -> int:
    if isinstance(value, float) and value.is_integer():  # so neither infinite nor "not a number"
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return min(max(value, 0), _LARGEST)


def _positive(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        return None
    return min(value, _LARGEST)
