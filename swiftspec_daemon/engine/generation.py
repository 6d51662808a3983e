"""One request's life, a step at a time: prefill blocks, then one round a step, until it ends.

A step is one forward pass. Between steps everything about the request lies here and in its KV
slot, so it can be suspended, moved to another slot or ended at any step, and the tokens are the
same. Knows no other request, no queue and no clock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from swiftspec_daemon.engine.backend import Backend, KVCache
from swiftspec_daemon.engine.messages import FinishReason, Generate
from swiftspec_daemon.engine.round import verify
from swiftspec_daemon.errors import ContextTooLong, UsageError
from swiftspec_daemon.speculation.constraint import TokenTable
from swiftspec_daemon.speculation.decoding import DecodeRules, DecodeState
from swiftspec_daemon.speculation.multi_step import SampledTree
from swiftspec_daemon.speculation.sampling import LogProbs, SamplingParameters
from swiftspec_daemon.speculation.tree import TokenTree
from swiftspec_daemon.speculation.verification import Walk, walk

_MOST_LOGPROBS = 100


_CHAIN = 8
"""Tokens without KV that a round may take along: a keystroke's few need no pass of their own."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What generation must know of a model besides its logits."""

    table: TokenTable
    eos_ids: frozenset[int]
    size: int
    """Ids are below it."""
    tokens: int
    """Ids that the tokenizer has are below it; the others are padding of the model's head."""

    @classmethod
    def build(cls, token_bytes: Sequence[bytes], eos_ids: Sequence[int], size: int) -> Vocabulary:
        """`token_bytes` has an entry for each id of the tokenizer; `size` is that of the model's
        head, which may be padded, or smaller. Ids that end a text count as the tokenizer's."""
        padded = [*token_bytes[:size], *([b""] * (size - len(token_bytes)))]
        tokens = min(max(len(token_bytes), *(token + 1 for token in eos_ids), 1), size)
        return cls(TokenTable(padded, eos_ids), frozenset(eos_ids), size, tokens)

    def rules(self, request: Generate) -> DecodeRules:
        """What decides the tokens of a request, on the target's side and on a draft's."""
        return DecodeRules(
            table=self.table,
            limit=self.tokens,
            ends=self.eos_ids | set(request.stop_ids),
            sampling=SamplingParameters(
                temperature=request.temperature,
                top_k=request.top_k,
                top_p=request.top_p,
                min_p=request.min_p,
                repetition_penalty=request.repetition_penalty,
                logit_bias=request.logit_bias,
                seed=request.seed,
            ),
            required=request.required,
            stops=tuple(filter(None, request.stop)),
            logprobs=request.logprobs,
        )


class DraftSession(Protocol):
    """One request's drafts (`swiftspec_daemon.engine.drafts.session`)."""

    def prefilled(self) -> None:
        """A block of the prompt was run, without a decision."""

    def propose(self, pending: int, most: int) -> TokenTree | SampledTree:
        """What to verify behind the last decided token, the root, of at most `most` nodes."""

    def verified(
        self,
        proposed: Any,
        decided: Sequence[int],
        accepted: int,
        state: DecodeState | None,
    ) -> object:
        """What was decided; `proposed` is what `propose` gave, None where it was not asked, and
        `state` is None where the text ends."""


class Generation:
    """The state of one request."""

    def __init__(self, request: Generate, vocabulary: Vocabulary, context: int) -> None:
        """Raises UsageError or ContextTooLong for a request that cannot be served."""
        _check(request, vocabulary, context)
        self.request = request
        self.tokens: list[int] = list(request.prompt)
        """Prompt and decided tokens."""
        self.finished: FinishReason | None = None
        self.log_probs: list[LogProbs] = []
        """Of the tokens that the last step decided, if the request asks for them."""
        room = min(request.max_tokens, context - len(request.prompt))
        self._state = vocabulary.rules(request).begin(request.prompt, room)

    @property
    def new_tokens(self) -> int:
        """Tokens decided so far, a stop id not counted."""
        return len(self.tokens) - len(self.request.prompt)

    @property
    def decoding(self) -> bool:
        """The first token is decided."""
        return self.new_tokens > 0

    @property
    def state(self) -> DecodeState:
        """The state behind the decided tokens."""
        return self._state

    def step(
        self,
        backend: Backend,
        cache: KVCache,
        held: list[int],
        block: int,
        drafts: DraftSession | None = None,
    ) -> list[int]:
        """One forward pass over at most `block` tokens; the newly decided tokens, if any.

        `held` are the tokens whose KV is in `cache`, a proper prefix of `self.tokens`; it grows
        with the cache. With `drafts`, begun behind `self.tokens`, a pass that decides a token
        verifies what they propose along with it. Sets `finished` when the text has ended. Raises
        EngineError.
        """
        missing = len(self.tokens) - len(held)
        if self._state.room > 0 and missing <= _CHAIN and drafts is not None:
            return self._round(backend, cache, held, drafts)
        pending = self.tokens[len(held) : len(held) + block]
        last = len(pending) == missing
        room = self._state.room > 0
        logits = backend.append(cache, pending, logits=last and room)
        held += pending
        if logits is None:
            if last:
                self.finished = "length"
            elif drafts is not None:
                drafts.prefilled()
            return []
        return self._take(walk([logits], _childless, self._state), drafts, None)

    def _round(
        self, backend: Backend, cache: KVCache, held: list[int], drafts: DraftSession
    ) -> list[int]:
        """Verify a tree of drafts; of the root alone it is a plain step."""
        pending = self.tokens[len(held) :]
        room = min(backend.max_rows, cache.capacity - len(held)) - len(pending)
        tree = drafts.propose(len(pending), 1 + max(0, room))
        if len(tree) == 1 and isinstance(tree, TokenTree):
            logits = backend.append(cache, pending, logits=True)
            assert logits is not None  # as asked for
            held += pending
            return self._take(walk([logits], _childless, self._state), drafts, tree)
        walked = verify(backend, cache, pending, tree, self._state)
        held += pending
        held += [tree.tokens[node] for node in walked.path[1:]]
        return self._take(walked, drafts, tree)

    def _take(self, walked: Walk, drafts: DraftSession | None, proposed: object) -> list[int]:
        """Make what was decided part of the text."""
        self.finished = walked.finish
        self.tokens += walked.tokens
        self.log_probs = walked.logprobs
        if walked.states:
            self._state = walked.states[-1]
        if drafts is not None:
            state = None if walked.finish is not None else self._state
            drafts.verified(proposed, walked.tokens, walked.accepted, state)
        return walked.tokens


def _childless(node: int, token: int) -> int | None:
    return None


def _check(request: Generate, vocabulary: Vocabulary, context: int) -> None:
    if not request.prompt:
        raise UsageError("The prompt is empty: at least one token is needed.")
    if min(request.prompt) < 0 or max(request.prompt) >= vocabulary.size:
        raise UsageError(f"A token id of the prompt is outside 0 to {vocabulary.size - 1}.")
    if request.max_tokens < 0:
        raise UsageError("max_tokens is negative.")
    _check_sampling(request, vocabulary)
    if len(request.prompt) > context:
        raise ContextTooLong(
            f"The prompt has {len(request.prompt)} tokens; the model's context holds {context}.",
            "Send a shorter prompt, or raise the setting model.context.",
        )


def _check_sampling(request: Generate, vocabulary: Vocabulary) -> None:
    if not (request.temperature >= 0 and request.top_k >= 0 and request.top_p > 0):
        raise UsageError("temperature and top_k must be 0 or more, and top_p more than 0.")
    if not 0 <= request.min_p <= 1:
        raise UsageError("min_p must be between 0 and 1.")
    if not 0 < request.repetition_penalty < math.inf:
        raise UsageError("repetition_penalty must be a number above 0; 1 is none.")
    for token, bias in request.logit_bias.items():
        if not 0 <= token < vocabulary.size:
            raise UsageError(f"A token id of logit_bias is outside 0 to {vocabulary.size - 1}.")
        if not math.isfinite(bias):
            raise UsageError("A value of logit_bias is not a finite number.")
    if not 0 <= request.logprobs <= _MOST_LOGPROBS:
        raise UsageError(f"logprobs must be between 0 and {_MOST_LOGPROBS}.")
