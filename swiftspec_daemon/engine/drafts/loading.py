"""Opens draft models: which ones a target has, whether they fit to it, and how fast they are.

A draft speaks its target's token ids. Knows how models are found and opened; no trees and no
requests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from swiftspec_daemon.engine import loading, memory, toy
from swiftspec_daemon.engine.backend import Backend, Progress
from swiftspec_daemon.engine.config import WorkerConfig
from swiftspec_daemon.engine.drafts.config import DraftConfig
from swiftspec_daemon.engine.drafts.model import BackendDraft
from swiftspec_daemon.engine.drafts.pool import DraftPool
from swiftspec_daemon.engine.drafts.process import DraftProcess
from swiftspec_daemon.engine.drafts.sampled import SampledDraft
from swiftspec_daemon.engine.drafts.speculator import DraftSupply, OpenDraft
from swiftspec_daemon.engine.generation import Vocabulary
from swiftspec_daemon.errors import ModelError
from swiftspec_daemon.models import catalog, default, draft, packed
from swiftspec_daemon.speculation.drafter import TreeDrafter
from swiftspec_daemon.speculation.pairing_messages import DraftReady

DEFAULT, NONE = "default", "none"
_DRAFT_ROWS = (1, 2, 4, 8)
_TARGET_ROWS = (1, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class LoadedDraft:
    """A draft model and what its target's tokens are."""

    name: str
    backend: Backend
    ids: npt.NDArray[np.intp] | None
    """Token id of each column of its logits; None where they are the same."""
    vocabulary: Vocabulary
    """The target's."""
    step_s: Mapping[int, float]


def names(config: WorkerConfig) -> list[str]:
    """The draft models that are asked for, the first one being the main one."""
    asked = config.speculation
    first = asked.draft
    if first == DEFAULT:
        first = str(draft.default_folder() or "") if config.model == default.NAME else ""
    return [name for name in (first, *asked.more_drafts) if name not in ("", NONE)]


def supply(config: WorkerConfig, progress: Progress) -> DraftSupply:
    """Where this worker's drafts come from."""
    asked = names(config)
    if not asked:
        return DraftSupply()

    def local() -> list[OpenDraft]:
        threads = loading.choose_threads(config.threads)
        configs = [draft_config(config, name, threads) for name in asked]
        return [open_local(one, progress) for one in configs]

    def process() -> DraftProcess:
        return DraftProcess(draft_config(config, asked[0], config.speculation.draft_threads))

    return DraftSupply(local, process if DraftProcess.available else None)


def open_local(config: DraftConfig, progress: Progress) -> OpenDraft:
    """A draft for use in this process. Raises ModelError and its kinds."""
    loaded = load(config, progress)
    backend = loaded.backend
    return OpenDraft(
        loaded.name,
        new_pool(loaded, config),
        loaded.step_s,
        backend.context,
        sampled=lambda: SampledDraft(backend, loaded.ids),
        kernels=backend.kernels,
        weight_bytes=backend.weight_bytes,
        kv_bytes=backend.kv_bytes(backend.context) * config.target.kv_slots,
    )


def new_pool(loaded: LoadedDraft, config: DraftConfig) -> DraftPool:
    """KV and drafters for a handful of documents."""
    backend = loaded.backend

    def new_model() -> BackendDraft:
        cache = backend.new_cache(backend.context)
        return BackendDraft(backend, cache, branching=config.branching, ids=loaded.ids)

    def new_drafter(model: object) -> TreeDrafter:
        assert isinstance(model, BackendDraft)
        return TreeDrafter(
            model,
            width=config.width,
            branching=config.branching,
            max_depth=config.depth,
            max_nodes=config.nodes,
        )

    return DraftPool(new_model, new_drafter, config.target.kv_slots)


def load(config: DraftConfig, progress: Progress) -> LoadedDraft:
    """Load a draft, converting it first where that has not been done, and time it.

    Raises ModelError where it does not fit to its target, EngineError for lack of memory.
    """
    if config.target.model.startswith(toy.PREFIX):
        return _load_toy(config)
    target = catalog.resolve(config.target.model)
    spec = target.require_spec()
    found = draft.resolve(config.draft)
    from swiftspec_daemon.engine.backends import native

    made_for = found.model.require_spec().context
    context = loading.choose_context(config.target.context, spec.context, spec.sliding_window)
    target_file = catalog.ensure_packed(target, native.LAYOUT, native.convert, progress)
    file = draft.ensure_packed(found, target, native.LAYOUT, native.convert_draft, progress)
    target_meta, target_arrays = packed.open_packed(target_file)
    meta, arrays = packed.open_packed(file)
    backend = native.NativeBackend(
        catalog.spec_of(meta),
        arrays,
        threads=config.threads,
        context=min(context, made_for),
        target=target_arrays,
    )
    memory.require(
        found.model.name,
        weight_bytes=backend.weight_bytes,
        kv_bytes=backend.kv_bytes(backend.context) * config.target.kv_slots,
    )
    table = packed.token_table(target_arrays)
    _require_tokens(config.draft, backend.vocab, len(table))
    vocabulary = Vocabulary.build(table, target_meta["eos_ids"], spec.vocab)
    ids = None if backend.draft_ids is None else backend.draft_ids.astype(np.intp)
    return LoadedDraft(config.draft, backend, ids, vocabulary, _draft_times(backend, config))


def ready(loaded: LoadedDraft, slots: int) -> DraftReady:
    """What a draft's process says once it can work."""
    backend = loaded.backend
    return DraftReady(
        model=loaded.name,
        kernels=backend.kernels,
        vocab=backend.vocab,
        context=backend.context,
        weight_bytes=backend.weight_bytes,
        kv_bytes=backend.kv_bytes(backend.context) * slots,
        step_ms=[(rows, seconds * 1e3) for rows, seconds in loaded.step_s.items()],
    )


def target_times(backend: Backend, config: WorkerConfig) -> dict[int, float]:
    """Seconds of the target's passes by rows, for the planner to begin with: what the long
    measurement found, or measured now."""
    if config.measured is not None:
        known = config.measured.target_ms.get(loading.choose_threads(config.threads))
        if known:
            return {rows: ms / 1e3 for rows, ms in known.items()}
    return step_times(backend, _TARGET_ROWS)


def _draft_times(backend: Backend, config: DraftConfig) -> dict[int, float]:
    """The same of a draft."""
    measured = config.target.measured
    if measured is not None and measured.draft == config.draft:
        known = measured.draft_ms.get(config.threads)
        if known:
            return {rows: ms / 1e3 for rows, ms in known.items()}
    return step_times(backend, _DRAFT_ROWS)


def step_times(
    backend: Backend,
    rows: tuple[int, ...],
    clock: Callable[[], float] = time.perf_counter,
    repeats: int = 2,
) -> dict[int, float]:
    """Seconds of passes by rows behind a short prefix: the best of `repeats` each.

    Rows that the backend cannot run at once are left out.
    """
    cache = backend.new_cache(min(backend.context, max(rows) + 2))
    backend.append(cache, [0], logits=False)
    found: dict[int, float] = {}
    for count in rows:
        if count > min(backend.max_rows, cache.capacity - 1):
            continue
        times = []
        for _ in range(repeats):
            started = clock()
            backend.speculate(cache, [0] * count, range(-1, count - 1))
            times.append(max(clock() - started, 1e-9))
        found[count] = min(times)
    return found


def draft_config(config: WorkerConfig, name: str, threads: int) -> DraftConfig:
    """What a draft of this target is told."""
    asked = config.speculation
    return DraftConfig(
        draft=name,
        target=msgspec.structs.replace(config, speculation=type(asked)()),
        threads=threads,
        width=asked.width,
        branching=asked.branching,
        depth=asked.depth,
    )


def _require_tokens(name: str, known: int, needed: int) -> None:
    """Raise ModelError for a draft that does not have all of the target's tokens; more rows than
    those, on either side, are padding."""
    if known < needed:
        raise ModelError(
            f"The draft {name} knows {known} tokens; its target has {needed}.",
            "Name a draft with the target's tokenizer.",
        )


def _load_toy(config: DraftConfig) -> LoadedDraft:
    """A toy's draft is a toy: "toy:" and options, among them `wrong`."""
    if not config.draft.startswith(toy.PREFIX):
        raise ModelError(f"The toy model cannot use the draft {config.draft}.", 'Name "toy:".')
    options, target = toy.parse(config.draft), toy.parse(config.target.model)
    _require_tokens("toy", options.vocab, target.vocab)
    backend = toy.load(options, lambda phase, fraction: None)
    vocabulary = Vocabulary.build(toy.token_bytes(target.vocab), [toy.EOS], target.vocab)
    return LoadedDraft("toy", backend, None, vocabulary, _draft_times(backend, config))
