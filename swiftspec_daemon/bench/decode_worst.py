"""Drafts that always fail and are sure of themselves: the worst case of speculation (synthetic).

They are told the target's text and propose other tokens. Their passes are real: a draft model's
forward pass is run and its proposals are then replaced. Knows token ids only.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log

from swiftspec_daemon.engine import loading
from swiftspec_daemon.engine.backend import Backend, Progress
from swiftspec_daemon.engine.config import WorkerConfig
from swiftspec_daemon.engine.drafts import loading as drafts
from swiftspec_daemon.engine.drafts.model import BackendDraft
from swiftspec_daemon.engine.drafts.pool import DraftPool
from swiftspec_daemon.engine.drafts.session import NGRAM, Sources
from swiftspec_daemon.engine.drafts.speculator import DraftSupply, OpenDraft, Speculator
from swiftspec_daemon.engine.messages import Generate, Speculation
from swiftspec_daemon.settings import SpeculationSettings
from swiftspec_daemon.speculation.decoding import DecodeState, Ranked
from swiftspec_daemon.speculation.drafter import DraftModel, TreeDrafter
from swiftspec_daemon.speculation.suffix import MAX_MATCH, SuffixSource, confidence
from swiftspec_daemon.speculation.tree import ROOT, TokenTree

_SURE = 0.9
_VOCAB = 256
"""Wrong tokens are below it; every model has so many."""


@dataclass
class Record:
    """The text that the target is going to write: prompt and new tokens."""

    tokens: list[int] = field(default_factory=list)

    def wrong(self, position: int, wished: int, taken: Sequence[int] = ()) -> int:
        """`wished`, or another token if that would be right at `position` or is `taken`."""
        right = self.tokens[position] if position < len(self.tokens) else -1
        while wished == right or wished in taken:
            wished = (wished + 1) % _VOCAB
        return wished


class WrongLookup(SuffixSource):
    """Claims to have found a long match at every place."""

    def __init__(self, record: Record, mark: int) -> None:
        super().__init__(None, mark)
        self._record = record

    def propose(self, limit: int) -> TokenTree:
        """A chain of `limit` wrong tokens, each as sure as a look-up can be."""
        held = self.tokens
        tree, node = TokenTree(held[-1], NGRAM), ROOT
        self.match = MAX_MATCH
        self.confidences = [0]
        for depth in range(limit):
            wished = held[-1 - depth % len(held)] % _VOCAB
            node = tree.add(node, self._record.wrong(len(held) + depth, wished), log(_SURE), NGRAM)
            self.confidences.append(confidence(MAX_MATCH, 4, 4))
        return tree

    def glance(self) -> int | None:
        """The wrong token that a proposal would begin with."""
        held = self.tokens
        return self._record.wrong(len(held), held[-1] % _VOCAB)


class WrongDraft:
    """A `DraftModel` whose passes are another one's and whose proposals are all wrong."""

    def __init__(self, model: DraftModel, record: Record) -> None:
        self.max_pending, self.max_rows = model.max_pending, model.max_rows
        self.max_depth, self.capacity = model.max_depth, model.capacity
        self._model = model
        self._record = record
        self._depths: list[int] = []
        """Of the pending rows; 1 is behind the prefix."""

    def held(self) -> list[int]:
        """The tokens of the committed prefix."""
        return self._model.held()

    def extend(self, tokens: Sequence[int], state: DecodeState | None) -> Ranked | None:
        """Commit tokens, and propose behind the last one."""
        self._depths.clear()
        ranked = self._model.extend(tokens, state)
        return None if ranked is None else self._replaced(ranked, len(self.held()))

    def grow(
        self, tokens: Sequence[int], parents: Sequence[int], states: Sequence[DecodeState]
    ) -> list[Ranked]:
        """Add pending rows, and propose behind each."""
        ranked = self._model.grow(tokens, parents, states)
        first, held = len(self._depths), len(self.held())
        for parent in parents:
            self._depths.append(1 + (self._depths[parent] if parent >= 0 else 0))
        return [
            self._replaced(row, held + depth)
            for row, depth in zip(ranked, self._depths[first:], strict=True)
        ]

    def reroot(self, path: Sequence[int], keep: Sequence[int]) -> None:
        """Move `path` into the prefix; `keep` stay pending."""
        self._model.reroot(path, keep)
        self._depths = [self._depths[slot] - len(path) for slot in keep]

    def rewind(self, length: int) -> None:
        """Forget all positions from `length` on, and pending rows."""
        self._depths.clear()
        self._model.rewind(length)

    def _replaced(self, ranked: Ranked, position: int) -> Ranked:
        """Wrong tokens for `position`, as many as there were."""
        tokens: list[int] = []
        for token in ranked[0]:
            tokens.append(self._record.wrong(position, token, tokens))
        rest = log((1 - _SURE) / max(1, len(tokens)))
        return tokens, [log(_SURE) if rank == 0 else rest for rank in range(len(tokens))]


class WorstSpeculator(Speculator):
    """With a look-up that is always wrong; the draft models come wrong out of `worst_supply`."""

    def __init__(
        self,
        record: Record,
        settings: SpeculationSettings,
        target_s: Mapping[int, float],
        supply: DraftSupply,
        backend: Backend,
    ) -> None:
        super().__init__(settings, target_s, supply, time.perf_counter, max_rows=backend.max_rows)
        self._record = record

    def sources(self, mode: Speculation, request: Generate) -> Sources:
        found = super().sources(mode, request)
        found.lookup = WrongLookup(self._record, NGRAM)
        return found


def worst_supply(config: WorkerConfig, record: Record, progress: Progress) -> DraftSupply:
    """The draft model of `config` in this process, made wrong; nothing if it has none."""
    names = drafts.names(config)
    if not names:
        return DraftSupply()
    draft = drafts.draft_config(config, names[0], loading.choose_threads(config.threads))

    def local() -> list[OpenDraft]:
        loaded = drafts.load(draft, progress)
        backend = loaded.backend

        def new_model() -> DraftModel:
            cache = backend.new_cache(backend.context)
            own = BackendDraft(backend, cache, branching=draft.branching, ids=loaded.ids)
            return WrongDraft(own, record)

        def new_drafter(model: DraftModel) -> TreeDrafter:
            return TreeDrafter(
                model,
                width=draft.width,
                branching=draft.branching,
                max_depth=draft.depth,
                max_nodes=draft.nodes,
            )

        pool = DraftPool(new_model, new_drafter, 1)
        return [OpenDraft("synthetic", pool, loaded.step_s, backend.context)]

    return DraftSupply(local)
