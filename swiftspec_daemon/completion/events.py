"""What a completion is asked with, and what it says while it runs. Knows no sockets and no ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

from swiftspec_daemon.engine.messages import Priority
from swiftspec_daemon.errors import UsageError
from swiftspec_daemon.protocol.messages import DoneReason, Timings
from swiftspec_daemon.protocol.speculation import Speculation, SpeculationReport
from swiftspec_daemon.settings import LEAST_SEED, MOST_SEED, CompletionSettings

_Value = TypeVar("_Value")

MOST_TOKENS, MOST_LINES = 4096, 1000
_MOST_TOP_K = 2**31 - 1


@dataclass(frozen=True, slots=True)
class CompletionOptions:
    """What the client asks for; None takes the setting."""

    trigger: Literal["invoked", "automatic"] = "automatic"
    max_tokens: int | None = None
    max_lines: int | None = None
    temperature: float | None = None
    seed: int | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    speculation: Speculation | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Options and settings put together."""

    priority: Priority
    max_tokens: int
    max_lines: int
    prompt_tokens: int
    temperature: float
    seed: int
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    speculation: Speculation = "auto"

    @classmethod
    def of(cls, options: CompletionOptions, settings: CompletionSettings) -> Limits:
        """Raises UsageError for values that make no sense; very large ones are cut down."""
        max_tokens = _chosen(options.max_tokens, settings.max_tokens)
        max_lines = _chosen(options.max_lines, settings.max_lines)
        temperature = _chosen(options.temperature, settings.temperature)
        if max_tokens < 1 or max_lines < 1:
            raise UsageError("max_tokens and max_lines must be at least 1.")
        if not 0 <= temperature <= 10:
            raise UsageError("temperature must be between 0 and 10.")
        _check_filters(options)
        seed = _chosen(options.seed, settings.seed)
        if not LEAST_SEED <= seed <= MOST_SEED:
            raise UsageError("seed must fit into 64 bits, with a sign.")
        return cls(
            priority=Priority.INVOKED if options.trigger == "invoked" else Priority.AUTOMATIC,
            max_tokens=min(max_tokens, MOST_TOKENS),
            max_lines=min(max_lines, MOST_LINES),
            prompt_tokens=settings.prompt_tokens,
            temperature=temperature,
            seed=seed,
            top_k=_chosen(options.top_k, 0),
            top_p=_chosen(options.top_p, 1.0),
            min_p=_chosen(options.min_p, 0.0),
            repetition_penalty=_chosen(options.repetition_penalty, 1.0),
            speculation=_chosen(options.speculation, "auto"),
        )


@dataclass(frozen=True, slots=True)
class TextAdded:
    """More text, final."""

    text: str


@dataclass(frozen=True, slots=True)
class FirstLineKnown:
    """The first line that is not blank is whole; all of `text` has been in `TextAdded` events."""

    text: str


@dataclass(frozen=True, slots=True)
class Completed:
    """The last event."""

    reason: DoneReason
    text: str
    timings: Timings
    speculation: SpeculationReport | None = None
    code: str = ""
    message: str = ""
    hint: str = ""


CompletionEvent = TextAdded | FirstLineKnown | Completed


def _check_filters(options: CompletionOptions) -> None:
    if not 0 <= _chosen(options.top_k, 0) <= _MOST_TOP_K:
        raise UsageError(f"top_k must be between 0 and {_MOST_TOP_K}.")
    if not 0 < _chosen(options.top_p, 1.0) <= 1:
        raise UsageError("top_p must be above 0 and at most 1.")
    if not 0 <= _chosen(options.min_p, 0.0) <= 1:
        raise UsageError("min_p must be between 0 and 1.")
    if not 0 < _chosen(options.repetition_penalty, 1.0) <= 10:
        raise UsageError("repetition_penalty must be above 0 and at most 10.")


def _chosen(value: _Value | None, default: _Value) -> _Value:
    return default if value is None else value
