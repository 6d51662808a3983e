"""Messages to JSON text and back, lone surrogates included.

Editors hold UTF-16, so a document may have half a surrogate pair in it. JSON can carry it as an
escape ("\\ud83d"), which msgspec refuses; such messages take a detour by the standard library.
Knows nothing of sockets.
"""

from __future__ import annotations

import json
from typing import TypeVar

import msgspec

from swiftspec_daemon.protocol.messages import ClientMessage, Message, ServerMessage

_Union = TypeVar("_Union")

_encoder = msgspec.json.Encoder()
_client_decoder = msgspec.json.Decoder(ClientMessage)
_server_decoder = msgspec.json.Decoder(ServerMessage)


def encode(message: Message) -> str:
    """One text frame."""
    try:
        return _encoder.encode(message).decode()
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(message), separators=(",", ":"))


def decode_client_message(frame: str | bytes) -> ClientMessage:
    """What a client sent. Raises msgspec.ValidationError, or msgspec.DecodeError if not JSON."""
    return _decode(frame, _client_decoder)


def decode_server_message(frame: str | bytes) -> ServerMessage:
    """What a server sent. Raises as `decode_client_message`."""
    return _decode(frame, _server_decoder)


def message_type(frame: str | bytes) -> str | None:
    """The `type` of a frame that is a JSON object with one, else None."""
    try:
        return msgspec.json.decode(frame, type=_Typed).type
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


class _Typed(msgspec.Struct):
    type: str


def _decode(frame: str | bytes, decoder: msgspec.json.Decoder[_Union]) -> _Union:
    try:
        return decoder.decode(frame)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        try:
            plain = json.loads(frame)
        except (ValueError, RecursionError):
            raise msgspec.DecodeError(str(error)) from None
        try:
            message: _Union = msgspec.convert(plain, decoder.type)
        except UnicodeEncodeError:  # where the type is told by a text that is none
            raise msgspec.ValidationError("Invalid value - at `$.type`") from None
        return message
