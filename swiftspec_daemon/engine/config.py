"""What an engine worker is told when it is started: which model, and how to run it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from swiftspec_daemon.settings import ModelSettings, SpeculationSettings


class Measured(msgspec.Struct, kw_only=True, frozen=True):
    """Durations of forward passes, in milliseconds, by threads and rows."""

    made: str
    """When (ISO 8601)."""
    target_ms: dict[int, dict[int, float]]
    draft: str = ""
    """Which draft was measured, as in the settings' list; empty for none."""
    draft_ms: dict[int, dict[int, float]] = {}


class WorkerConfig(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Passed as JSON on the worker's command line: no secrets, no text of the user's."""

    model: str = "default"
    """As `ModelSettings.target`; "toy:" and options select the toy model of the tests."""
    backend: Literal["auto", "native", "transformers"] = "auto"
    context: Annotated[int, Meta(ge=1)] | None = None
    """Positions to make room for; the model's own, at most `DEFAULT_CONTEXT`, if absent."""
    threads: Annotated[int, Meta(ge=0)] = 0
    """Compute threads; 0 lets the backend choose."""
    kv_slots: Annotated[int, Meta(ge=1)] = 4
    """Documents whose KV is kept."""
    queue_limit: Annotated[int, Meta(ge=1)] = 32
    """Requests of one priority that may wait."""
    step_budget_ms: Annotated[float, Meta(gt=0)] = 25.0
    """A prefill block is sized to take about this long, so that a cancel is heard soon."""

    speculation: SpeculationSettings = SpeculationSettings()
    measured: Measured | None = None
    """What the long measurement found; None lets the worker look for it and else measure."""

    @classmethod
    def from_settings(
        cls, settings: ModelSettings, speculation: SpeculationSettings | None = None
    ) -> WorkerConfig:
        return cls(
            model=settings.target,
            backend=settings.backend,
            context=settings.context,
            threads=settings.threads,
            kv_slots=settings.kv_slots,
            speculation=speculation or SpeculationSettings(),
        )


DEFAULT_CONTEXT = 4096
"""Positions, where the model was made for more and nothing is set."""
