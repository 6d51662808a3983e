"""Every message of the websocket API, typed once; the JSON schema and the docs come from here.

One JSON object a text frame, discriminated by `type`. Unknown fields are ignored, on both sides.
Knows nothing of sockets, documents or engines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from swiftspec_daemon.protocol.speculation import (
    Speculation,
    SpeculationReport,
    SpeculationStatus,
)

PROTOCOL_VERSION = 1
SUBPROTOCOL = "swiftspec.v1"
"""Websocket subprotocol. A client that cannot set headers also offers "bearer.<token>"."""

PositionEncoding = Literal["utf-8", "utf-16", "utf-32"]


class Message(msgspec.Struct, kw_only=True, frozen=True, tag_field="type", omit_defaults=True):
    """Base of all messages; `type` names the kind."""


class Position(msgspec.Struct, frozen=True):
    """A place between two characters, as in the Language Server Protocol."""

    line: int
    """From 0."""
    character: int
    """From 0, in code units of the negotiated position encoding."""


class Edit(msgspec.Struct, kw_only=True, frozen=True):
    """Replace the text from `start` to `end` by `text`."""

    start: Position
    end: Position
    text: str


# --- client to server ---------------------------------------------------------------------------


class Hello(Message, tag="hello", frozen=True):
    """The first message of a connection; the server answers `welcome`."""

    protocol: int = PROTOCOL_VERSION
    """The newest version that the client speaks."""
    client: str = ""
    """Name and version of the client, for logs and status ("neovim/0.12.4")."""
    position_encodings: Sequence[str] = msgspec.field(default_factory=lambda: ["utf-16"])
    """In order of preference; the server takes the first that it speaks, else "utf-16"."""


class OpenDocument(Message, tag="open", frozen=True):
    """The client has opened a document; its text is the client's from now on."""

    uri: str
    text: str
    version: int = 0
    language: str = ""
    """Language identifier ("python"), empty if not known."""


class ChangeDocument(Message, tag="change", frozen=True):
    """Edits, each against the text that the one before it left."""

    uri: str
    version: int
    """Of the text after the edits; greater than before."""
    edits: list[Edit] = []
    text: str | None = None
    """If given, the whole new text; `edits` is then ignored."""


class CloseDocument(Message, tag="close", frozen=True):
    """The client no longer keeps this document in sync."""

    uri: str


class Complete(Message, tag="complete", frozen=True):
    """Ask for a completion; it supersedes an earlier one of the same document."""

    id: int | str
    """Chosen by the client; not in use by another request of this connection."""
    uri: str
    position: Position
    version: int | None = None
    """If given, the version that the position belongs to; another one is answered by an error."""
    trigger: Literal["invoked", "automatic"] = "automatic"
    max_tokens: int | None = None
    """At most this many tokens of text beyond the cursor; the setting `completion.max_tokens` if
    absent. More than 4,096, or than half of the model's context, means that limit."""
    max_lines: int | None = None
    """At most this many lines; the setting `completion.max_lines` if absent. More than 1,000 means
    that limit."""
    temperature: float | None = None
    """0 always takes the likeliest token; the setting `completion.temperature` if absent."""
    seed: int | None = None
    """Of the sampling; the setting `completion.seed` if absent."""
    top_k: int | None = None
    """Only the so many likeliest tokens; all if absent or 0."""
    top_p: float | None = None
    """Only the likeliest tokens that together have this probability; all if absent or 1."""
    min_p: float | None = None
    """Only tokens with this part of the likeliest one's probability; all if absent or 0."""
    repetition_penalty: float | None = None
    """Above 1: what is in the prompt or the new text already becomes less likely."""
    speculation: Speculation | None = None
    """How tokens are guessed ahead. It changes the speed, never the text."""


class Cancel(Message, tag="cancel", frozen=True):
    """Stop a request; it ends with `done`, reason "cancelled"."""

    id: int | str


class Shown(Message, tag="shown", frozen=True):
    """The user has seen this much of the completion."""

    id: int | str
    characters: int | None = None
    """Unicode code points shown; all if absent."""


class Accepted(Message, tag="accepted", frozen=True):
    """The user has taken the completion or a part of it."""

    id: int | str
    characters: int | None = None
    """Unicode code points taken, from the start; all if absent."""


class Rejected(Message, tag="rejected", frozen=True):
    """The user has seen the completion and did not take it."""

    id: int | str


class GetStatus(Message, tag="get_status", frozen=True):
    """Ask for one `status` message. With `subscribe`, also for one, without `memory_mb`, whenever
    the model's state, the progress of loading or a draft model's state changes."""

    subscribe: bool = False


ClientMessage = (
    Hello
    | OpenDocument
    | ChangeDocument
    | CloseDocument
    | Complete
    | Cancel
    | Shown
    | Accepted
    | Rejected
    | GetStatus
)


# --- server to client ---------------------------------------------------------------------------


class Welcome(Message, tag="welcome", frozen=True):
    """The answer to `hello`."""

    protocol: int
    server: str
    """Name and version of the server ("swiftspec-daemon/0.1.0")."""
    position_encoding: PositionEncoding
    capabilities: list[str] = []
    """"streaming", "first_line", "feedback", "status"; more may come."""


class Delta(Message, tag="delta", frozen=True):
    """More text of a completion, to be appended; what was sent is never taken back."""

    id: int | str
    text: str


class FirstLine(Message, tag="first_line", frozen=True):
    """The first line is whole (the deltas so far hold at least this); a client may show it now.

    Sent at most once, and only if the completion has text.
    """

    id: int | str
    text: str
    """Up to the end of the first line that is not blank, without that line's end."""


class Timings(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Where the time went, in milliseconds from the arrival of `complete`, and token counts."""

    total_ms: float
    first_token_ms: float | None = None
    first_line_ms: float | None = None
    loading_ms: float = 0.0
    """Waiting until the model was loaded, and fetched where need be; part of all times above."""
    queue_ms: float = 0.0
    """Waiting for the model, while it served others."""
    prefill_ms: float = 0.0
    """The model read what it had not read before, up to the first token."""
    decode_ms: float = 0.0
    """The model wrote the tokens after the first."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens that the model had read before."""
    new_tokens: int = 0
    """Tokens of text beyond the cursor. Those that write again what stands before it, as token
    healing has it, do not count."""


DoneReason = Literal["stop", "length", "lines", "cancelled", "superseded", "empty", "error"]
"""stop: the model ended; length: max_tokens or the context; lines: max_lines; cancelled: by the
client; superseded: by a newer request of the document; empty: nothing to suggest, `message` says
why; error: `message` says what."""


class Done(Message, tag="done", frozen=True):
    """The last message about a completion; each request gets exactly one."""

    id: int | str
    reason: DoneReason
    text: str = ""
    """The whole completion: the concatenation of the deltas."""
    timings: Timings | None = None
    speculation: SpeculationReport | None = None
    """What speculation did; absent if the model wrote nothing."""
    code: str = ""
    message: str = ""
    hint: str = ""


class ModelStatus(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The target model and its engine."""

    name: str
    state: Literal["unloaded", "loading", "ready", "failed"]
    phase: str = ""
    fraction: float = 0.0
    backend: str = ""
    kernels: str = ""
    context: int = 0
    message: str = ""
    """One sentence for people: why it is not ready."""
    hint: str = ""


class Counters(msgspec.Struct, kw_only=True, frozen=True):
    """Since the daemon started."""

    completions: int = 0
    shown: int = 0
    accepted: int = 0
    partly_accepted: int = 0
    rejected: int = 0
    cancelled: int = 0
    errors: int = 0
    new_tokens: int = 0


class Status(Message, tag="status", frozen=True):
    """What the daemon is doing."""

    version: str
    pid: int
    uptime_s: float
    model: ModelStatus
    connections: int = 0
    documents: int = 0
    counters: Counters = msgspec.field(default_factory=Counters)
    memory_mb: dict[str, float] = {}
    """Proportional set size, by process ("daemon", "worker", "draft"), in 10^6 bytes."""
    speculation: SpeculationStatus | None = None
    """Absent while no model is loaded, and where all decoding is plain."""


class Error(Message, tag="error", frozen=True):
    """A message was not understood or could not be obeyed; the connection goes on."""

    code: str
    message: str
    hint: str = ""
    id: int | str | None = None
    """The request it belongs to, if any. A failed `complete` ends with `done`, not with this."""
    uri: str | None = None
    """The document it belongs to, if any. With code "document_error" the client sends `open`."""


ServerMessage = Welcome | Delta | FirstLine | Done | Status | Error
