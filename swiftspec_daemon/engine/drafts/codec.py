"""Frames between target and draft: a 4-byte little-endian length and a MessagePack body."""

from __future__ import annotations

import msgspec

from swiftspec_daemon.parallel.frames import HEADER_BYTES
from swiftspec_daemon.speculation.pairing_messages import ToDraft, ToTarget

_encoder = msgspec.msgpack.Encoder()
_to_draft = msgspec.msgpack.Decoder(ToDraft)
_to_target = msgspec.msgpack.Decoder(ToTarget)


def encode(message: ToDraft | ToTarget) -> bytes:
    """One frame."""
    body = _encoder.encode(message)
    return len(body).to_bytes(HEADER_BYTES, "little") + body


def decode_to_draft(body: bytes) -> ToDraft:
    """The body of a frame that the target sent. Raises msgspec.DecodeError."""
    return _to_draft.decode(body)


def decode_to_target(body: bytes) -> ToTarget:
    """The body of a frame that the draft sent. Raises msgspec.DecodeError."""
    return _to_target.decode(body)
