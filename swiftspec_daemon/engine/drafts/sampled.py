"""Drafts of requests that are decided by multi-step sampling: SpecInfer's other acceptance rule.

In the target's process, one draft model, a fixed expansion <k, 1, 1, ...> of independent samples
(SpecInfer, arXiv 2305.09781, section 4.3), of which none may be left out. So there is no planner
here: it would choose among them. Knows no other request.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from swiftspec_daemon.engine.backend import Backend
from swiftspec_daemon.engine.slots import common_prefix
from swiftspec_daemon.errors import SwiftSpecError
from swiftspec_daemon.speculation.counters import SpeculationCounters
from swiftspec_daemon.speculation.decoding import DecodeState, Row
from swiftspec_daemon.speculation.multi_step import SampledTree, Streams, sample_tree
from swiftspec_daemon.speculation.tree import TokenTree

log = logging.getLogger(__name__)

_SOURCE, _NAMES = 1, {1: "draft"}
_CHILDREN, _DEPTH = 3, 4
"""The expansion <3, 1, 1, 1>: 13 rows of the target at most, with the root."""
_BLOCK = 64
"""Tokens of a prompt that are run at a time."""


class SampledDraft:
    """A draft model with a KV cache of its own, of one text at a time."""

    def __init__(self, backend: Backend, ids: npt.NDArray[np.intp] | None) -> None:
        """`ids`: token ids of the columns of its logits, where its head is trimmed."""
        self.forwards = 0
        self._backend = backend
        self._cache = backend.new_cache(backend.context)
        self._ids = ids
        self._held: list[int] = []

    def holds(self, tokens: Sequence[int]) -> bool:
        """Whether a tree behind these fits into its context, and it knows them all."""
        room = len(tokens) + _CHILDREN * _DEPTH <= self._cache.capacity
        return room and max(tokens) < self._backend.vocab

    def read(self, tokens: Sequence[int]) -> bool:
        """Run a block of what is missing of `tokens`; whether that was all of it."""
        backend, cache = self._backend, self._cache
        common = min(common_prefix(self._held, tokens), len(tokens))
        backend.truncate(cache, common)
        del self._held[common:]
        block = list(tokens[common : common + _BLOCK])
        if block:
            backend.append(cache, block, logits=False)
            self.forwards += 1
            self._held += block
        return len(self._held) == len(tokens)

    def sample(
        self,
        tokens: Sequence[int],
        state: DecodeState,
        streams: Streams,
        configuration: Sequence[int],
    ) -> SampledTree:
        """A tree behind `tokens`, the last of which is its root. Raises EngineError."""
        while not self.read(tokens[:-1]):
            pass
        slots: dict[int, int] = {}

        def forward(tree: SampledTree, nodes: Sequence[int]) -> Sequence[Row]:
            rows = [tree.tokens[node] for node in nodes]
            parents = [slots.get(tree.parents[node], -1) for node in nodes]
            slots.update({node: len(slots) + i for i, node in enumerate(nodes)})
            self.forwards += 1
            return list(self._backend.grow(self._cache, rows, parents))

        return sample_tree(tokens[-1], state, streams, configuration, forward, self._ids)


class MultiStepSession:
    """The draft of one request; used as `DraftSession` is."""

    def __init__(self, draft: SampledDraft, seed: int, clock: Callable[[], float]) -> None:
        self.counters = SpeculationCounters()
        self._draft = draft
        self._seed = seed
        self._clock = clock
        self._tokens: list[int] = []
        self._state: DecodeState | None = None
        self._failed = False
        self._proposed_at = 0.0

    def begin(self, tokens: Sequence[int], prompt: int, state: DecodeState) -> None:
        """Start behind all decided `tokens`."""
        self._tokens, self._state = list(tokens), state

    def prefilled(self) -> None:
        """The target has run a block of its prompt: the draft does so too."""
        if not self._failed and self._draft.holds(self._tokens):
            with self._guarded():
                self._draft.read(self._tokens[:-1])

    def propose(self, pending: int, most: int) -> TokenTree | SampledTree:
        """A tree of samples; a plain one of the root alone where there can be none. Whether there
        are samples must not depend on what they are, so all are verified, whatever they are."""
        started, before = self._clock(), self._draft.forwards
        tree: TokenTree | SampledTree = TokenTree(self._tokens[-1])
        state, configuration = self._state, _configuration(most)
        drafts = configuration and not self._failed and self._draft.holds(self._tokens)
        if state is not None and drafts:
            streams = Streams(self._seed, state.position)
            with self._guarded():
                tree = self._draft.sample(self._tokens, state, streams, configuration)
        self._proposed_at = self._clock()
        self.counters.draft_steps += self._draft.forwards - before
        self.counters.draft_s += self._proposed_at - started
        self.counters.target_idle_s += self._proposed_at - started
        return tree

    def verified(
        self,
        proposed: TokenTree | SampledTree | None,
        decided: Sequence[int],
        accepted: int,
        state: DecodeState | None,
    ) -> None:
        """What was decided."""
        self._tokens += decided
        self._state = state
        if proposed is None:
            return
        tree = proposed
        if isinstance(proposed, SampledTree):
            tree = TokenTree(proposed.tokens[0])
            for token, parent in zip(proposed.tokens[1:], proposed.parents[1:], strict=True):
                tree.add(parent, token, 0.0, _SOURCE)
        assert isinstance(tree, TokenTree)
        self.counters.record(tree, decided[:accepted], len(decided), _NAMES)
        self.counters.target_s += self._clock() - self._proposed_at

    def close(self) -> None:
        """The request is over or suspended."""

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """A draft that fails is left out for the rest of the request, which goes on without."""
        try:
            yield
        except SwiftSpecError as error:
            log.warning("the draft is left out of a request: %s", error)
            self._failed = True


def _configuration(most: int) -> tuple[int, ...]:
    """The expansion whose tree has at most `most` nodes, the root counted; chosen before anything
    is drawn, since no sample may be left out afterwards."""
    children = min(_CHILDREN, most - 1)
    if children < 1:
        return ()
    return (children, *[1] * (min(_DEPTH, (most - 1) // children) - 1))


__all__ = ["MultiStepSession", "SampledDraft"]
