"""A request's rules as they cross from the target's process to the draft's.

The target's own request message, without its prompt: so both sides decide and rank under the same
sampling parameters, constraints and stops. Knows no tree and no model.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from swiftspec_daemon.engine.generation import Vocabulary
from swiftspec_daemon.engine.messages import Generate
from swiftspec_daemon.errors import ProtocolError
from swiftspec_daemon.speculation.decoding import DecodeState
from swiftspec_daemon.speculation.pairing_messages import Begin

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Generate)


def pack(request: Generate) -> bytes:
    """What `Begin.request` carries."""
    return _encoder.encode(msgspec.structs.replace(request, prompt=[]))


class RequestStates:
    """States behind a request's tokens, on the draft's side."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        """`vocabulary` is the target's."""
        self._vocabulary = vocabulary

    def begin(self, begin: Begin) -> DecodeState:
        """The state behind all tokens of the message. Raises ProtocolError if it has none."""
        try:
            request = _decoder.decode(begin.request)
        except msgspec.DecodeError as error:
            raise ProtocolError(f"A request cannot be understood: {error}.") from error
        prompt, decided = begin.tokens[: begin.prompt], begin.tokens[begin.prompt :]
        first = self._vocabulary.rules(request).begin(prompt, request.max_tokens)
        return self.advance(first, decided)

    @staticmethod
    def advance(state: DecodeState, tokens: Sequence[int]) -> DecodeState:
        """The state behind further tokens. Raises ProtocolError if the text has ended there."""
        after = state.follow(tokens)
        if after is None:
            raise ProtocolError("Tokens were verified behind the end of a text.")
        return after
