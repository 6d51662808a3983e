"""What crosses between the daemon and an engine worker: token ids and numbers, never text.

Frames are a 4-byte little-endian length and a MessagePack body, over the worker's standard input
and output. Knows neither sockets nor tensors.
"""

from __future__ import annotations

import enum
from typing import Literal

import msgspec

from swiftspec_daemon.speculation.counters import SpeculationCounters


class Priority(enum.IntEnum):
    """Who goes first; a lower number wins. LOOK_AHEAD and WARM_UP are dropped when one arrives."""

    INVOKED = 0
    """The user pressed a key that asks for a completion."""
    AUTOMATIC = 1
    """The user typed."""
    RAW = 2
    """Chat and raw generation."""
    LOOK_AHEAD = 3
    """The completion after the one that is shown."""
    WARM_UP = 4
    """Prefill only, so that a later request finds its KV."""

    @property
    def droppable(self) -> bool:
        """Dropped, not suspended, when a request of a higher priority arrives."""
        return self >= Priority.LOOK_AHEAD


Speculation = Literal["auto", "off", "ngram", "serial", "async"]
"""How tokens are guessed ahead; the text is the same with all of them.

auto: what is fastest; off: not at all; ngram: from the text alone; serial: by a draft model in the
same process, between the target's steps; async: by one in a process of its own, during them.
"""


class _Message(msgspec.Struct, kw_only=True, frozen=True, tag_field="type"):
    pass


# --- daemon to worker ---------------------------------------------------------------------------


class Generate(_Message, tag="generate", frozen=True):
    """Continue `prompt`."""

    id: int
    """Unique while the worker lives; only grows."""
    prompt: list[int]
    """Token ids, at least one, BOS included where the model wants it."""
    max_tokens: int
    """New tokens at most; 0 only prefills."""
    priority: Priority = Priority.AUTOMATIC
    sequence: str = ""
    """Names the document; requests of one sequence prefer the same KV slot."""
    text_id: str = ""
    """Names the document as `Remember` does. The new text is remembered under it, for later drafts;
    with an empty name it is not."""
    temperature: float = 0.0
    """0 is greedy."""
    top_k: int = 0
    """0 is all."""
    top_p: float = 1.0
    min_p: float = 0.0
    """Only tokens with at least this part of the likeliest one's probability; 0 to 1."""
    repetition_penalty: float = 1.0
    """Makes tokens of the prompt and the new text less likely if above 1."""
    logit_bias: dict[int, float] = {}
    """Added to the logits of these token ids."""
    seed: int = 0
    """With the absolute position and the token id it keys the sampling noise."""
    required: bytes = b""
    """Bytes that the new text must start with (token healing); the last token may overrun them."""
    stop_ids: list[int] = []
    """Token ids that end the text; they are not sent."""
    stop: list[bytes] = []
    """Byte strings that end the text; the token that completes one is sent."""
    logprobs: int = 0
    """0: none; else log-probabilities of each token and of this many likeliest ones."""
    speculation: Speculation = "auto"


class Cancel(_Message, tag="cancel", frozen=True):
    """Stop request `id` within one step; its KV stays."""

    id: int


class Remember(_Message, tag="remember", frozen=True):
    """A text that drafts may copy from, such as an open file; replaces the one of that name.

    Kept in the worker's memory alone, within its bounds, and taken in when there is nothing else
    to do.
    """

    text_id: str
    tokens: list[int]


class Forget(_Message, tag="forget", frozen=True):
    """Forget a text, and the past suggestions for it."""

    text_id: str


class Unload(_Message, tag="unload", frozen=True):
    """End the worker process once nothing runs."""


Command = Generate | Cancel | Remember | Forget | Unload


# --- worker to daemon ---------------------------------------------------------------------------


class Loading(_Message, tag="loading", frozen=True):
    """Progress before `Ready`."""

    phase: str
    fraction: float
    """0 to 1."""


class Ready(_Message, tag="ready", frozen=True):
    """The model is loaded and requests are served."""

    model: str
    backend: str
    kernels: str
    """Which build of the kernels runs, for people ("avx512-vnni, gcc 12.2")."""
    vocab: int
    context: int
    """Positions a request may fill, prompt and new tokens together."""
    slots: int
    """Documents whose KV is kept."""
    load_ms: float
    weight_bytes: int
    kv_bytes: int


class DraftModel(msgspec.Struct, kw_only=True, frozen=True):
    """A draft model, as it is now."""

    name: str
    state: Literal["stopped", "loading", "ready", "failed"]
    own_process: bool = False
    """Works in a process of its own."""
    kernels: str = ""
    weight_bytes: int = 0
    kv_bytes: int = 0
    """Keys and values at most."""
    pid: int | None = None
    restarts: int = 0
    problem: str = ""
    """What went wrong last, for people."""


class SourcePlan(msgspec.Struct, kw_only=True, frozen=True):
    """`Planner.explain` about one source."""

    kind: Literal["lookup", "draft"]
    worth: float
    step_ms: dict[int, float] = {}
    acceptance: list[list[float]] = []


class PlannerPlan(msgspec.Struct, kw_only=True, frozen=True):
    """`Planner.explain`: what it has measured and chooses; sources by name."""

    plain_ms: float
    target_ms: dict[int, float]
    tokens_per_second: float
    tokens_per_round: float
    speedup: float
    last_size: int
    expected_gain: float
    rounds: dict[str, int]
    sources: dict[str, SourcePlan] = {}


class Drafts(_Message, tag="drafts", frozen=True):
    """What there is for speculation: before `Ready`, whenever a draft model's state changes, and
    after requests, at most once a second."""

    mode: Speculation
    """What "auto" means now."""
    models: list[DraftModel] = []
    problem: str = ""
    """Why a draft model that was asked for is not used, for people."""
    tuned: str = ""
    """When the measurements that are used were made (ISO 8601); empty without."""
    planners: dict[Speculation, PlannerPlan] = {}


class Failed(_Message, tag="failed", frozen=True):
    """The worker cannot serve (before `Ready`) or met an error that it does not survive."""

    code: str
    """`SwiftSpecError.code`."""
    message: str
    hint: str = ""


class SpeculationUsage(msgspec.Struct, kw_only=True, frozen=True):
    """What speculation did in a request."""

    mode: Speculation
    """How it was done, where "auto" or what there is no draft for was asked for."""
    counters: SpeculationCounters


class Usage(msgspec.Struct, kw_only=True, frozen=True):
    """What a request cost. Times in milliseconds."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens whose KV was there already."""
    new_tokens: int = 0
    queue_ms: float = 0.0
    """Waiting for other requests, before the first step and while suspended."""
    prefill_ms: float = 0.0
    """Up to the first new token; a suspended request's KV that is computed anew counts below."""
    decode_ms: float = 0.0
    """From the first new token to the last."""
    speculation: SpeculationUsage | None = None
    """None where decoding was plain."""


class TokenLogProbs(msgspec.Struct, frozen=True, array_like=True):
    """Natural log-probabilities at one token, after temperature, filters, penalty and bias."""

    log_prob: float
    top_ids: list[int]
    """The likeliest tokens, best first."""
    top_log_probs: list[float]


class Tokens(_Message, tag="tokens", frozen=True):
    """New tokens of request `id`, decided and final."""

    id: int
    ids: list[int]
    logprobs: list[TokenLogProbs] = []
    """One for each of `ids`, if the request asks for them."""
    usage: Usage | None = None
    """What the request has cost so far, should it be cancelled later: with the first tokens, and
    with all where speculation counts."""


FinishReason = Literal["stop", "length", "cancelled", "dropped", "error"]
"""stop: a stop id, a stop string or the model's end; length: max_tokens or the context is full;
cancelled: asked for; dropped: a look-ahead or warm-up made room; error: see `message`."""


class Finished(_Message, tag="finished", frozen=True):
    """The last message about request `id`; each request gets exactly one."""

    id: int
    reason: FinishReason
    usage: Usage
    code: str = ""
    message: str = ""


Event = Loading | Ready | Drafts | Failed | Tokens | Finished

_command_decoder = msgspec.msgpack.Decoder(Command)
_event_decoder = msgspec.msgpack.Decoder(Event)
_encoder = msgspec.msgpack.Encoder()


def encode(message: Command | Event) -> bytes:
    """One frame: length and body."""
    body = _encoder.encode(message)
    return len(body).to_bytes(4, "little") + body


def decode_command(body: bytes) -> Command:
    """The body of a frame that the daemon sent. Raises msgspec.DecodeError."""
    return _command_decoder.decode(body)


def decode_event(body: bytes) -> Event:
    """The body of a frame that a worker sent. Raises msgspec.DecodeError."""
    return _event_decoder.decode(body)
