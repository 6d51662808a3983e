"""What crosses between a target and its draft: token ids, parents and epochs; no logits, no KV.

SwiftSpec §3.1: "the groups exchange only the verified token prefix and the next subtree to
verify". Knows the messages' form, and nothing of who sends them over what.
"""

from __future__ import annotations

import msgspec


class Epoch(msgspec.Struct, frozen=True, array_like=True):
    """Which moment of which request a message belongs to; what carries another one is stale."""

    incarnation: int
    """Counts the draft processes that the target has started."""
    request: int
    round: int
    """Only grows, over all requests. A count of tokens would repeat after a rewind."""


class Plan(msgspec.Struct, frozen=True, array_like=True):
    """How the draft shall grow its tree until it hears of verified tokens again."""

    size: int
    """Nodes of the tree that is wanted, the root included (SwiftSpec's bs)."""
    width: int
    """Leaves that one forward pass expands (w)."""
    steps: int
    """Expansions after the answer, while the target verifies (d)."""
    just_in_time: int
    """Expansions before the answer at most, where the tree has too few nodes."""


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """Work on this request from now on. Answered by a tree."""

    epoch: Epoch
    sequence: str
    """Names the document, for the choice of a KV slot."""
    tokens: list[int]
    """All decided tokens, the prompt's included; the last one is the tree's root."""
    prompt: int
    """How many of them are the prompt's."""
    request: bytes
    """The request's rules, opaque here."""
    plan: Plan


class Verified(msgspec.Struct, frozen=True, tag="verified"):
    """The tokens that a round has decided, after those known. Answered by a tree."""

    epoch: Epoch
    """The new round's."""
    tokens: list[int]
    plan: Plan


class End(msgspec.Struct, frozen=True, tag="end"):
    """The request is over or suspended; its KV may stay. Answered by `DraftAlive`."""

    epoch: Epoch


class Tree(msgspec.Struct, frozen=True, tag="tree"):
    """The draft's best connected subtree, for the round of `epoch`."""

    epoch: Epoch
    tokens: list[int]
    """Node 0 is the root, then the proposed nodes."""
    parents: list[int]
    """Index of the parent, less than the node's own; -1 for the root."""
    log_probs: list[float]
    """Summed from the root, by the draft; 0 for the root."""
    matched: int
    """How many of the verified tokens were in the draft's tree."""
    forwards: int = 0
    """Forward passes of the draft since its last answer, and"""
    busy_ms: float = 0.0
    """how long they took, and"""
    idle_ms: float = 0.0
    """how long it had nothing to do."""


class DraftReady(msgspec.Struct, frozen=True, tag="ready"):
    """The draft's model is loaded."""

    model: str
    kernels: str
    vocab: int
    """Token ids that it can propose are below it."""
    context: int
    weight_bytes: int
    kv_bytes: int
    step_ms: list[tuple[int, float]] = []
    """Rows of a forward pass, and how long it takes."""


class DraftAlive(msgspec.Struct, frozen=True, tag="alive"):
    """The draft lives although it has no tree to send: it reads a long prompt, or a request has
    ended."""

    problem: str = ""
    """Why it drafts nothing for this request, for people."""


class DraftFailed(msgspec.Struct, frozen=True, tag="failed"):
    """The draft cannot go on."""

    code: str
    message: str
    hint: str = ""


ToDraft = Begin | Verified | End
ToTarget = Tree | DraftReady | DraftAlive | DraftFailed
