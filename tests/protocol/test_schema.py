"""The schema, and the page that quotes it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import msgspec
import pytest
from message_examples import FROM_CLIENT, FROM_SERVER

from swiftspec_daemon.protocol import codec, schema

PAGE = Path(__file__).parents[2] / schema.PAGE


def validator(root):
    whole = schema.schema()
    return jsonschema.Draft202012Validator({**whole, "$ref": f"#/$defs/{root}"})


def page_examples():
    page = PAGE.read_text("utf-8")
    [part] = re.findall("<!-- example -->(.*?)<!-- end of example -->", page, re.DOTALL)
    lines = re.findall(r"^([CS]) (\{.*\})$", part, re.MULTILINE)
    assert len(lines) == len(re.findall(r"^[CS] ", part, re.MULTILINE))
    return lines


def test_the_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(schema.schema())


@pytest.mark.parametrize("message", FROM_CLIENT, ids=lambda m: type(m).__name__)
def test_client_messages_are_valid(message):
    validator("ClientMessage").validate(json.loads(codec.encode(message)))


@pytest.mark.parametrize("message", FROM_SERVER, ids=lambda m: type(m).__name__)
def test_server_messages_are_valid(message):
    validator("ServerMessage").validate(json.loads(codec.encode(message)))


@pytest.mark.parametrize(
    "message",
    [{"type": "explode"}, {"type": "open", "uri": "u"}, {"type": "cancel", "id": 1.5}, {}],
)
def test_other_messages_are_not(message):
    assert not validator("ClientMessage").is_valid(message)
    with pytest.raises(msgspec.ValidationError):
        codec.decode_client_message(json.dumps(message))


def test_the_page_is_up_to_date():
    """If not: python -m swiftspec_daemon.protocol.schema"""
    page = PAGE.read_text("utf-8")
    assert schema.updated(page) == page


def test_every_message_and_field_is_described():
    tables = schema.tables()
    for message in (*FROM_CLIENT, *FROM_SERVER):
        assert f"#### `{message.__struct_config__.tag}`" in tables
        for field in msgspec.structs.fields(message):
            assert f"| `{field.name}` |" in tables


def test_the_pages_example_is_valid():
    examples = page_examples()
    assert len(examples) >= 10
    for side, text in examples:
        root = "ClientMessage" if side == "C" else "ServerMessage"
        validator(root).validate(json.loads(text))


def test_the_pages_example_keeps_its_own_rules():
    server = [json.loads(text) for side, text in page_examples() if side == "S"]
    deltas = "".join(m["text"] for m in server if m["type"] == "delta")
    assert deltas == server[-1]["text"]
    [first_line] = [m["text"] for m in server if m["type"] == "first_line"]
    assert deltas.startswith(first_line)


def test_a_page_without_markers_is_an_error():
    with pytest.raises(ValueError, match="markers"):
        schema.updated("no markers")
