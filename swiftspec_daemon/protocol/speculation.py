"""What messages say of speculation: what it did, in counts, and what there is for it.

Knows no other message.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Speculation = Literal["auto", "off", "ngram", "serial", "async"]
"""auto: what is fastest; off: none; ngram: from the text alone; serial: a draft model between the
target's steps; async: a draft model during them."""


class SpeculationCounts(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Sums over rounds; a round is one verification by the target. Times in milliseconds."""

    rounds: int = 0
    """Plain steps among them."""
    plain_rounds: int = 0
    """Those in which nothing was proposed."""
    tokens: int = 0
    """What the rounds decided: accepted tokens, and the target's own one of each round. The token
    that a prompt's last block gives is in no round."""
    tokens_per_verification: float = 0.0
    """`tokens` / `rounds`."""
    proposed: int = 0
    """Proposed tokens that the target verified."""
    accepted: int = 0
    """Those of them that are in the text."""
    accepted_lengths: list[int] = []
    """The n-th, from 0: rounds in which n proposed tokens were accepted."""
    tried_at: list[int] = []
    """The n-th, from 0: rounds that had a proposal n tokens behind what was accepted, and"""
    accepted_at: list[int] = []
    """in how many of them one was accepted. Acceptance by position is the quotient."""
    proposed_by: dict[str, int] = {}
    """By source ("ngram", "past", "draft", "draft 2"); what two of them propose counts for both."""
    accepted_by: dict[str, int] = {}
    fall_ins: int = 0
    """Rounds whose tokens, the target's own one too, were all in the draft model's tree, which
    therefore lived on."""
    fall_outs: int = 0
    """Rounds with a token that was not: the tree was lost."""
    stale_trees: int = 0
    """Trees of an asynchronous draft that came for a round that was over."""
    missed_deadlines: int = 0
    """Rounds in which no asynchronous tree came in time."""
    draft_steps: int = 0
    """Forward passes of draft models."""
    draft_ms: float = 0.0
    """Drafts computed."""
    draft_idle_ms: float = 0.0
    """An asynchronous draft waited for the target."""
    target_ms: float = 0.0
    """The target computed, verifications only."""
    target_idle_ms: float = 0.0
    """The target waited for drafts."""
    own_ms: float = 0.0
    """Building, merging, choosing and walking trees."""


class SpeculationReport(msgspec.Struct, kw_only=True, frozen=True):
    """What speculation did in one request."""

    mode: Speculation
    """How tokens were guessed; what "auto" came to. "off": decoding was plain."""
    counts: SpeculationCounts = msgspec.field(default_factory=SpeculationCounts)


class DraftStatus(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A draft model."""

    name: str
    state: Literal["stopped", "loading", "ready", "failed"]
    own_process: bool = False
    """It works in a process of its own, during the target's steps."""
    kernels: str = ""
    weight_mb: float = 0.0
    """Weights, and"""
    kv_mb: float = 0.0
    """keys and values at most, in 10^6 bytes."""
    pid: int | None = None
    restarts: int = 0
    """How often its process was lost."""
    message: str = ""
    """One sentence for people: what went wrong last."""


class SourceStatus(msgspec.Struct, kw_only=True, frozen=True):
    """What the planner thinks of a source of drafts."""

    kind: Literal["lookup", "draft"]
    worth: float
    """Tokens a round that it brings more than it costs, of late; what is below 0 is left out."""
    step_ms: dict[int, float] = {}
    """A forward pass, by rows."""
    acceptance: list[list[float]] = []
    """For depths 1, 2, 3, 5 and 9: how likely its best, second best, ... candidate is right."""


class PlannerStatus(msgspec.Struct, kw_only=True, frozen=True):
    """What the planner of a mode has measured and chooses now."""

    plain_ms: float
    """A plain step of the target."""
    target_ms: dict[int, float]
    """Its forward pass, by rows."""
    tokens_per_second: float
    """Of late."""
    tokens_per_round: float
    """Of late."""
    speedup: float
    """Against plain decoding, of late, by the planner's own tables."""
    last_size: int
    """Tokens that the last round verified, the target's own included."""
    expected_gain: float
    """Tokens that the last tree was expected to bring more than it cost."""
    rounds: dict[str, int]
    """By kind: "plain", "speculative", "probe"."""
    sources: dict[str, SourceStatus] = {}


class SpeculationStatus(msgspec.Struct, kw_only=True, frozen=True):
    """What there is for speculation, and what it has done since the daemon started."""

    mode: Speculation
    """What a request gets that asks for "auto"."""
    drafts: list[DraftStatus] = []
    message: str = ""
    """One sentence for people: why a draft model that was asked for is not used."""
    tuned: str = ""
    """When `swiftspec tune` measured what is used; empty if it did not."""
    totals: dict[str, SpeculationCounts] = {}
    """By mode."""
    planners: dict[str, PlannerStatus] = {}
    """By mode, since the model was loaded; brought up to date at most once a second."""
