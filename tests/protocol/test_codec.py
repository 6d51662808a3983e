"""Frames to messages and back."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from message_examples import FROM_CLIENT, FROM_SERVER

from swiftspec_daemon.protocol import codec
from swiftspec_daemon.protocol.messages import Cancel, OpenDocument


@pytest.mark.parametrize("message", FROM_CLIENT, ids=lambda m: type(m).__name__)
def test_client_messages_come_back(message):
    assert codec.decode_client_message(codec.encode(message)) == message


@pytest.mark.parametrize("message", FROM_SERVER, ids=lambda m: type(m).__name__)
def test_server_messages_come_back(message):
    assert codec.decode_server_message(codec.encode(message)) == message


@given(st.text(st.sampled_from('a"\\\n é😀\ud83d\ude00'), max_size=8))
def test_lone_surrogates_cross(text):
    # Two halves next to each other are one character in JSON, as in an editor's UTF-16.
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    frame = codec.encode(OpenDocument(uri="u", text=text))
    frame.encode()  # a text frame must be UTF-8
    assert codec.decode_client_message(frame) == OpenDocument(uri="u", text=whole)


def test_unknown_fields_are_ignored():
    frame = json.dumps({"type": "cancel", "id": 3, "colour": {"r": [1]}})
    assert codec.decode_client_message(frame) == Cancel(id=3)


def test_unknown_position_encodings_are_no_error():
    hello = codec.decode_client_message('{"type":"hello","position_encodings":["utf-7","utf-8"]}')
    assert hello.position_encodings == ["utf-7", "utf-8"]


@pytest.mark.parametrize(
    "frame",
    [
        "",
        "{",
        "nonsense",
        '{"type":"cancel","id":',
        '"\\ud83d',
        b"\xff{}",
        '{"type":"hello","x":' + "[" * 100_000,
    ],
)
def test_what_is_not_json_is_a_decode_error_and_not_a_validation_error(frame):
    with pytest.raises(msgspec.DecodeError) as caught:
        codec.decode_client_message(frame)
    assert not isinstance(caught.value, msgspec.ValidationError)


@pytest.mark.parametrize(
    "frame",
    [
        "{}",
        "[]",
        "3",
        '{"type":"explode"}',
        '{"type":"open","uri":"u"}',
        '{"type":"cancel","id":[]}',
        '{"type":"open","uri":"\\ud83d","text":3}',
    ],
)
def test_json_that_is_no_message_is_a_validation_error(frame):
    with pytest.raises(msgspec.ValidationError):
        codec.decode_client_message(frame)


def test_message_type():
    assert codec.message_type('{"type":"explode","x":1}') == "explode"
    assert codec.message_type('{"x":1}') is None
    assert codec.message_type("nonsense") is None
