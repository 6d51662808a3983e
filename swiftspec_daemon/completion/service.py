"""Ties documents to the engine: a completion request in, a stream of events out.

One completion runs for each document; a newer one supersedes it, and its engine request is
cancelled within one step. Knows no sockets, no client ids and no model.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import aclosing

from swiftspec_daemon.completion.allowance import Allowance
from swiftspec_daemon.completion.events import (
    Completed,
    CompletionOptions,
    FirstLineKnown,
    Limits,
    TextAdded,
)
from swiftspec_daemon.completion.open_files import OpenFiles
from swiftspec_daemon.completion.prompt import CHARACTERS_PER_TOKEN, Prompt, PromptBuilder
from swiftspec_daemon.completion.running import Completion
from swiftspec_daemon.completion.snapshot import Snapshot
from swiftspec_daemon.completion.statistics import Statistics
from swiftspec_daemon.completion.stopping import Suggestion
from swiftspec_daemon.completion.tokenizer import Tokenizer
from swiftspec_daemon.documents import Document
from swiftspec_daemon.engine.interface import Engine
from swiftspec_daemon.engine.messages import Finished, Generate, Priority
from swiftspec_daemon.errors import EngineError, SwiftSpecError
from swiftspec_daemon.protocol.messages import DoneReason
from swiftspec_daemon.settings import Settings

_log = logging.getLogger(__name__)

_PROSE = {"markdown", "mdx", "quarto", "rmd", "restructuredtext", "asciidoc"}
"""Languages whose text may have code fences in it."""
_REASONS: dict[str, DoneReason] = {"stop": "stop", "length": "length", "cancelled": "cancelled"}


class CompletionService:
    """Completions by one engine.

    `load_tokenizer` is called once, in a thread, when the tokenizer is first needed; should it
    raise, completions end with its error and the next one tries again.
    """

    def __init__(
        self, engine: Engine, load_tokenizer: Callable[[], Tokenizer], settings: Settings
    ) -> None:
        self.statistics = Statistics()
        self._engine = engine
        self._load_tokenizer = load_tokenizer
        self._settings = settings.completion
        self._loading: asyncio.Task[_Texts] | None = None
        self._waking: asyncio.Task[None] | None = None
        self._current: dict[str, Completion] = {}
        self._quiet = asyncio.Event()
        self._quiet.set()
        self.open_files = OpenFiles(
            engine, self._tokenizer, self.idle, enabled=settings.speculation.mode != "off"
        )

    @property
    def running(self) -> int:
        """Completions that have not ended."""
        return len(self._current)

    async def idle(self) -> None:
        """Wait until no completion runs."""
        await self._quiet.wait()

    async def prepare(self) -> None:
        """Load the tokenizer. Raises what `load_tokenizer` raises."""
        await self._texts()

    def complete(
        self, document: Document, offset: int, options: CompletionOptions, *, sequence: str
    ) -> Completion:
        """Continue `document` at `offset` (code points), as it is now.

        `sequence` names the document among all clients'; the completion that runs under the same
        name is superseded. Raises UsageError for options that make no sense.
        """
        limits = Limits.of(options, self._settings)
        reach = CHARACTERS_PER_TOKEN * limits.prompt_tokens + 1
        snapshot = Snapshot.take(document, offset, reach)
        earlier = self._current.get(sequence)
        if earlier is not None:
            earlier.cancel("superseded")
        completion = Completion()
        self._current[sequence] = completion
        self._quiet.clear()
        self._wake_engine()
        completion.start(
            self._run(completion, snapshot, limits, sequence),
            lambda ended: self._ended(sequence, completion, ended),
        )
        return completion

    def _wake_engine(self) -> None:
        """Load an unloaded model, whatever becomes of the completion that needs it."""
        if self._engine.status.state == "unloaded" and self._waking is None:
            self._waking = asyncio.create_task(self._engine.start())
            self._waking.add_done_callback(self._woken)

    def _woken(self, task: asyncio.Task[None]) -> None:
        self._waking = None
        if not task.cancelled() and task.exception() is not None:
            _log.info("the engine does not start: %s", task.exception())

    def cancel(self, sequence: str) -> None:
        """Cancel the completion that runs under this name, if any."""
        if sequence in self._current:
            self._current[sequence].cancel()

    def _ended(self, sequence: str, completion: Completion, ended: Completed) -> None:
        if self._current.get(sequence) is completion:
            del self._current[sequence]
        if not self._current:
            self._quiet.set()
        self.statistics.count_completion(ended.reason, ended.timings.new_tokens)

    # --- one completion -------------------------------------------------------------------------

    async def _run(
        self, completion: Completion, snapshot: Snapshot, limits: Limits, sequence: str
    ) -> Completed:
        try:
            return await self._generate(completion, snapshot, limits, sequence)
        except SwiftSpecError as error:
            return completion.completed("error", error.code, error.message, error.hint)
        except Exception:  # the edge: one broken request must not end the daemon
            _log.exception("a completion failed")
            message = "The completion failed for a reason that is not known."
            return completion.completed("error", "internal", message, "See `swiftspec logs`.")

    async def _generate(
        self, completion: Completion, snapshot: Snapshot, limits: Limits, sequence: str
    ) -> Completed:
        if not snapshot.before.strip():
            message = "There is no text before the cursor to go on from."
            return completion.completed("empty", message=message)
        automatic = limits.priority == Priority.AUTOMATIC
        if snapshot.around.inside_word or (automatic and snapshot.around.before_code):
            message = "There is text to the right of the cursor, which the model does not see."
            return completion.completed("empty", message=message)
        # In this order: an engine that fetches its model first makes the tokenizer's files appear.
        context = (await self._engine.ready()).context
        texts = await self._texts()
        completion.model_loaded()
        max_tokens = min(limits.max_tokens, context // 2)
        prompt = await texts.prompt(snapshot, min(limits.prompt_tokens, context - max_tokens))
        # Healing takes tokens of its own, where the context has room for them.
        room = min(max_tokens + prompt.healing_tokens, context - len(prompt.ids))
        suggestion = _suggestion(snapshot, prompt, limits)
        request = Generate(
            id=0,
            prompt=prompt.ids,
            max_tokens=room,
            priority=limits.priority,
            sequence=sequence,
            text_id=snapshot.text_id,
            temperature=limits.temperature,
            seed=limits.seed,
            top_k=limits.top_k,
            top_p=limits.top_p,
            min_p=limits.min_p,
            repetition_penalty=limits.repetition_penalty,
            speculation=limits.speculation,
            required=prompt.required,
            stop_ids=list(texts.tokenizer.eos_ids),
            stop=_stops(snapshot, limits),
        )
        completion.tokens_in(len(prompt.ids))
        allowance = Allowance(texts.tokenizer, required=len(prompt.required), limit=max_tokens)
        async with aclosing(self._engine.generate(request)) as stream:
            async for event in stream:
                if isinstance(event, Finished):
                    completion.usage(event.usage)
                    return _finish(completion, suggestion, event)
                ids, counted = allowance.take(event.ids)
                completion.tokens_out(counted, event.usage)
                self._feed(completion, suggestion, texts.tokenizer, ids)
                if suggestion.end is not None:
                    return _conclude(completion, suggestion, suggestion.end)
                if allowance.used_up:
                    _emit(completion, suggestion, suggestion.finish())
                    return _conclude(completion, suggestion, "length")
        raise EngineError("The engine ended a request without a word.", "Try again.")

    @staticmethod
    def _feed(
        completion: Completion, suggestion: Suggestion, tokenizer: Tokenizer, ids: Sequence[int]
    ) -> None:
        data = b""
        special = False
        for token in ids:
            if tokenizer.is_special(token):
                special = True
                break
            data += tokenizer.token_bytes(token)
        _emit(completion, suggestion, suggestion.feed(data))
        if special:  # control tokens never show, whether or not the engine stops at them
            _emit(completion, suggestion, suggestion.finish())

    # --- tokenizer ------------------------------------------------------------------------------

    async def _texts(self) -> _Texts:
        """The tokenizer and what is made from it, loading on through cancelled requests."""
        if self._loading is None or (self._loading.done() and _failed(self._loading)):
            self._loading = asyncio.create_task(asyncio.to_thread(self._make_texts))
            self._loading.add_done_callback(_failed)
        return await asyncio.shield(self._loading)

    async def _tokenizer(self) -> Tokenizer:
        return (await self._texts()).tokenizer

    def _make_texts(self) -> _Texts:
        return _Texts(self._load_tokenizer())


class _Texts:
    """A tokenizer and its prompt builder."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._builder = PromptBuilder(tokenizer)

    async def prompt(self, snapshot: Snapshot, budget: int) -> Prompt:
        budget = max(2, budget)
        if self._builder.cheap(snapshot, budget):
            return self._builder.build(snapshot, budget)
        return await asyncio.to_thread(self._builder.build, snapshot, budget)


def _failed(task: asyncio.Task[_Texts]) -> bool:
    return task.cancelled() or task.exception() is not None


def _suggestion(snapshot: Snapshot, prompt: Prompt, limits: Limits) -> Suggestion:
    return Suggestion(
        snapshot.around,
        required=prompt.required,
        max_lines=limits.max_lines,
        eol=snapshot.eol,
        fences=snapshot.language not in _PROSE,
    )


def _stops(snapshot: Snapshot, limits: Limits) -> list[bytes]:
    """Strings at which the engine can end by itself, before we have seen them."""
    if snapshot.around.inside_line or limits.max_lines == 1:
        return [b"\n"]
    return [] if snapshot.language in _PROSE else [b"\n```"]


def _emit(completion: Completion, suggestion: Suggestion, text: str) -> None:
    if text:
        completion.say(TextAdded(text))
    if suggestion.first_line is not None and not completion.has_first_line:
        completion.say(FirstLineKnown(suggestion.first_line))


def _finish(completion: Completion, suggestion: Suggestion, event: Finished) -> Completed:
    _emit(completion, suggestion, suggestion.finish())
    if event.reason in _REASONS:
        return _conclude(completion, suggestion, _REASONS[event.reason])
    if event.reason == "error":
        return completion.completed("error", event.code or EngineError.code, event.message)
    return completion.completed("error", EngineError.code, "The engine dropped the request.")


def _conclude(completion: Completion, suggestion: Suggestion, reason: DoneReason) -> Completed:
    if not suggestion.text and reason != "cancelled":
        return completion.completed("empty", message=suggestion.why_empty)
    return completion.completed(reason)
