"""The draft worker process: `python -m swiftspec_daemon.engine.drafts.worker PARENT_PID CONFIG`.

A child of the target's worker, with its own model, KV and cores (SwiftSpec §3.1: disaggregated
draft). One thread: it takes in what the target has sent, then makes one forward pass, and so on;
with nothing to do it sleeps. Ends when standard input does. Knows nothing of logits on the
target's side, of text or of the daemon.
"""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path
from typing import TextIO

import msgspec

from swiftspec_daemon.engine.drafts import loading
from swiftspec_daemon.engine.drafts.codec import decode_to_draft, encode
from swiftspec_daemon.engine.drafts.config import DraftConfig
from swiftspec_daemon.engine.drafts.rules import RequestStates
from swiftspec_daemon.errors import SwiftSpecError, in_one_line
from swiftspec_daemon.parallel.channel import ChannelClosed, FrameChannel
from swiftspec_daemon.parallel.lifeline import (
    claim_standard_output,
    end_at_once,
    tie_to_parent,
)
from swiftspec_daemon.speculation.decoding import DecodeState
from swiftspec_daemon.speculation.pairing import Drafter, DraftLoop
from swiftspec_daemon.speculation.pairing_messages import (
    Begin,
    DraftAlive,
    DraftFailed,
    End,
    ToTarget,
)

log = logging.getLogger("swiftspec_daemon.engine.drafts.worker")

_SIGN_OF_LIFE_S = 0.5
"""While it works without an answer, for instance at a long prompt, the target hears from it."""


class _Clock:
    """How long the draft worked and waited since its last answer, in milliseconds."""

    def __init__(self) -> None:
        self.busy = self.idle = 0.0
        self._last = time.perf_counter()

    def lap(self, *, idle: bool) -> None:
        now = time.perf_counter()
        spent = (now - self._last) * 1e3
        self._last = now
        if idle:
            self.idle += spent
        else:
            self.busy += spent

    def read(self) -> tuple[float, float]:
        """Busy and idle since the last reading."""
        both = self.busy, self.idle
        self.busy = self.idle = 0.0
        return both


def main(arguments: list[str]) -> int:
    """Run the draft worker; its exit status."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    parent, config_json = arguments
    tie_to_parent(int(parent))
    channel = FrameChannel(sys.stdin.fileno(), claim_standard_output())
    try:
        config = msgspec.json.decode(config_json, type=DraftConfig)
        _serve(config, channel)
    except ChannelClosed:
        return 0  # the target has gone, or has given up on us
    except SwiftSpecError as error:
        return _fail(channel, DraftFailed(error.code, error.message, error.hint))
    except Exception as error:  # the edge of the process: say what happened, then end
        log.exception("the draft worker failed")
        message = f"The draft worker failed: {type(error).__name__}: {in_one_line(error)}"
        return _fail(channel, DraftFailed("engine_error", message, "See `swiftspec logs`."))
    return 0


def _fail(channel: FrameChannel, failure: DraftFailed) -> int:
    try:
        channel.send(encode(failure), timeout_s=0.2)
    except ChannelClosed:
        return 0
    return 1


def _serve(config: DraftConfig, channel: FrameChannel) -> None:
    """Load, say so, then serve. Ends by an exception."""
    draft = loading.load(config, lambda phase, fraction: None)
    pool = loading.new_pool(draft, config)
    states = RequestStates(draft.vocabulary)

    def open_drafter(begin: Begin) -> tuple[Drafter[DecodeState], DecodeState]:
        state = states.begin(begin)
        return pool.open(begin.tokens, begin.sequence, state), state

    loop = DraftLoop[DecodeState](open_drafter, states.advance)
    _send(channel, loading.ready(draft, config.target.kv_slots))
    _Server(loop, channel, _open_trace(config)).run()


class _Server:
    """Alternates between messages and forward passes."""

    def __init__(
        self, loop: DraftLoop[DecodeState], channel: FrameChannel, trace: TextIO | None
    ) -> None:
        self._loop = loop
        self._trace = trace
        self._channel = channel
        self._clock = _Clock()
        self._last_sent = time.monotonic()

    def run(self) -> None:
        """Until the channel is closed, by ChannelClosed."""
        loop = self._loop
        while True:
            idle = not loop.wants_step
            bodies = self._channel.receive(None if idle else 0.0)
            self._clock.lap(idle=idle)
            for body in bodies:
                self._take_in(body)
            if loop.wants_step:
                self._step()

    def _take_in(self, body: bytes) -> None:
        try:
            message = decode_to_draft(body)
        except msgspec.DecodeError as error:
            log.error("a message could not be understood and is ignored: %s", error)
            return
        try:
            self._loop.receive(message)
        except SwiftSpecError as error:
            self._give_up(error)
        if isinstance(message, End):
            self._send(DraftAlive())

    def _step(self) -> None:
        started = time.monotonic_ns()
        try:
            answer = self._loop.step()
        except SwiftSpecError as error:
            self._give_up(error)
            return
        self._clock.lap(idle=False)
        if self._trace is not None:
            self._trace.write(f"{started} {time.monotonic_ns()}\n")
        if answer is not None:
            busy_ms, idle_ms = self._clock.read()
            self._send(msgspec.structs.replace(answer, busy_ms=busy_ms, idle_ms=idle_ms))
        elif time.monotonic() - self._last_sent > _SIGN_OF_LIFE_S:
            self._send(DraftAlive())

    def _give_up(self, error: SwiftSpecError) -> None:
        """One request's draft has failed; the next request's may not."""
        self._loop.give_up()
        self._send(DraftAlive(f"The draft gave a request up: {error}"))

    def _send(self, message: ToTarget) -> None:
        self._last_sent = time.monotonic()
        _send(self._channel, message)


def _open_trace(config: DraftConfig) -> TextIO | None:
    """The file of step times that was asked for, a line at a time."""
    return Path(config.trace).open("w", encoding="ascii", buffering=1) if config.trace else None


def _send(channel: FrameChannel, message: ToTarget) -> None:
    channel.send(encode(message), timeout_s=5.0)


if __name__ == "__main__":
    end_at_once(main(sys.argv[1:]))
