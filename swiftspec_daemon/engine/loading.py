"""From a worker's configuration to a loaded model: which backend, and whether it fits in memory.

The only module of the engine that knows all backends; each is imported only when it is chosen.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from swiftspec_daemon.engine import memory, toy
from swiftspec_daemon.engine.backend import Backend, Progress
from swiftspec_daemon.engine.config import DEFAULT_CONTEXT, WorkerConfig
from swiftspec_daemon.errors import SettingsError, UnsupportedModel
from swiftspec_daemon.models import catalog, packed
from swiftspec_daemon.models.catalog import ResolvedModel

log = logging.getLogger(__name__)

_MAX_DEFAULT_THREADS = 8


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """What a worker serves."""

    name: str
    backend: Backend
    token_bytes: Sequence[bytes]
    """The bytes of each of the tokenizer's ids; b"" for special tokens. The model's head may have
    fewer or more rows."""
    eos_ids: Sequence[int]


def open_model(config: WorkerConfig, progress: Progress) -> LoadedModel:
    """Load the model of `config`, converting it first where that has not been done.

    Raises ModelError, EngineError where it does not fit in memory, UsageError.
    """
    if config.model.startswith(toy.PREFIX):
        options = toy.parse(config.model)
        backend = toy.load(options, progress)
        return LoadedModel("toy", backend, toy.token_bytes(options.vocab), [toy.EOS])
    model = catalog.resolve(config.model)
    if config.backend == "native":
        return _open_native(model, config, progress)
    if config.backend == "transformers":
        return _open_transformers(model, config, progress)
    try:
        return _open_native(model, config, progress)
    except UnsupportedModel as error:
        if not _transformers_installed():
            raise
        log.info("using the transformers backend: %s", error.message)
        return _open_transformers(model, config, progress)


def choose_context(wanted: int | None, made_for: int, window: int | None = None) -> int:
    """Positions to make room for. Raises SettingsError for more than the model was made for.

    `window` is the sliding window of a model that has one: the default stays inside it.
    """
    if wanted is None:
        return min(made_for, window or made_for, DEFAULT_CONTEXT)
    if wanted > made_for:
        raise SettingsError(
            f"model.context is {wanted}, but the model was made for {made_for} positions.",
            "Lower it, or leave it out.",
        )
    return wanted


def choose_threads(wanted: int) -> int:
    """Compute threads: `wanted`, or for 0 the physical cores this process may use, at most 8."""
    if wanted > 0:
        return wanted
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    cores = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    return max(1, min(cores, usable or cores, _MAX_DEFAULT_THREADS))


def _open_native(model: ResolvedModel, config: WorkerConfig, progress: Progress) -> LoadedModel:
    from swiftspec_daemon.engine.backends import native

    spec = model.require_spec()
    context = choose_context(config.context, spec.context, spec.sliding_window)
    # Before the conversion, which may take minutes: a byte for each weight is the least.
    memory.require(model.name, weight_bytes=spec.parameters, kv_bytes=0)
    file = catalog.ensure_packed(model, native.LAYOUT, native.convert, progress)
    progress("reading weights", 0.0)
    meta, arrays = packed.open_packed(file)
    backend = native.NativeBackend(
        catalog.spec_of(meta), arrays, threads=choose_threads(config.threads), context=context
    )
    _require(model, backend, config)
    return LoadedModel(model.name, backend, packed.token_table(arrays), meta["eos_ids"])


def _open_transformers(
    model: ResolvedModel, config: WorkerConfig, progress: Progress
) -> LoadedModel:
    from swiftspec_daemon.engine.backends.transformers import TransformersBackend

    files = sum(file.stat().st_size for file in catalog.source_files(model))
    memory.require(model.name, weight_bytes=files, kv_bytes=0)
    backend = TransformersBackend.load(
        model,
        threads=choose_threads(config.threads),
        context=config.context,
        default_context=DEFAULT_CONTEXT,
        progress=progress,
    )
    choose_context(config.context, backend.context)
    loaded = int(psutil.virtual_memory().available) + backend.weight_bytes
    _require(model, backend, config, available=loaded)
    tokenizer = catalog.open_tokenizer(model)
    table = [tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)]
    return LoadedModel(model.name, backend, table, tokenizer.eos_ids)


def _require(
    model: ResolvedModel, backend: Backend, config: WorkerConfig, available: int | None = None
) -> None:
    memory.require(
        model.name,
        weight_bytes=backend.weight_bytes,
        kv_bytes=backend.kv_bytes(backend.context) * config.kv_slots,
        available=available,
    )


def _transformers_installed() -> bool:
    return all(importlib.util.find_spec(name) for name in ("torch", "transformers"))
