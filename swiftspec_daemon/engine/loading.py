"""From a worker's configuration to a loaded model: which backend, and whether it fits in memory.

The only module of the engine that knows all backends; each is imported only when it is chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from swiftspec_daemon.engine import toy
from swiftspec_daemon.engine.backend import Backend, Progress
from swiftspec_daemon.engine.config import WorkerConfig
from swiftspec_daemon.errors import UnsupportedModel


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """What a worker serves."""

    name: str
    backend: Backend
    token_bytes: Sequence[bytes]
    """The bytes of each token id; b"" for special tokens."""
    eos_ids: Sequence[int]


def open_model(config: WorkerConfig, progress: Progress) -> LoadedModel:
    """Load the model. Raises ModelError or EngineError."""
    if config.model.startswith(toy.PREFIX):
        options = toy.parse(config.model)
        backend = toy.load(options, progress)
        return LoadedModel("toy", backend, toy.token_bytes(options.vocab), [toy.EOS])
    raise UnsupportedModel("Only the toy model can be run yet.")
