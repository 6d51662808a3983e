"""Any causal language model of the hub's format, run by transformers: slow but right.

Implements `engine.backend.Backend` on torch tensors, on the processor or a CUDA device. Tree rows
go through in one pass with a 4-D attention mask and explicit positions; a model that does not
honour those (found by trying once, after loading) gets its rows path by path. Knows no formats of
weights: transformers reads safetensors, pickled weights and GGUF itself.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from swiftspec_daemon.engine.backend import KVCache, Logits
from swiftspec_daemon.engine.backends import hub_models
from swiftspec_daemon.errors import ContextTooLong, EngineError, UnsupportedModel
from swiftspec_daemon.models import Progress, no_progress
from swiftspec_daemon.models.catalog import ResolvedModel

if TYPE_CHECKING:
    import torch

_BLOCK = 256
"""Tokens of a prompt that go through the model at once."""


class TransformersCache:
    """Keys and values of one sequence, and the pending tree (see `backend.KVCache`)."""

    def __init__(self, capacity: int, store: Any) -> None:
        self.store = store
        """A transformers `DynamicCache`; beyond `length` it holds the pending rows, if any."""
        self.length = 0
        self.capacity = capacity
        self.pending: list[tuple[int, int]] = []
        """Token and parent of each pending row."""


class TransformersBackend:
    """A loaded model (see `backend.Backend`).

    Rows agree with plain decoding to float rounding, not to the bit.
    """

    name = "transformers"
    max_rows = 256
    max_pending = 1024
    max_depth = 1024

    def __init__(self, model: Any, device: torch.device, context: int | None = None) -> None:
        """`model` is a transformers causal language model on `device`, in evaluation mode.

        `context` is lowered to what the model was made for, where its configuration says that.
        """
        self._model = model
        self._device = device
        config = model.config.get_text_config()
        limit = hub_models.made_for(config)
        wanted = context or limit or hub_models.UNKNOWN_CONTEXT
        self.context = min(wanted, limit or wanted)
        self.vocab = int(config.vocab_size)
        self.weight_bytes = sum(p.numel() * p.element_size() for p in model.parameters())
        self.kernels = f"torch {importlib.metadata.version('torch')}, {device}, {model.dtype}"
        self._window, self._layer_kinds = _attention_kinds(config)
        parameters = inspect.signature(model.forward).parameters
        self._cache_argument = _cache_argument(parameters, type(model).__name__)
        self._takes_positions = "position_ids" in parameters
        self._takes_keep = "logits_to_keep" in parameters
        self._kv_bytes_per_position = self._measure_kv()
        self._masked = self._masks_work()

    @classmethod
    def load(
        cls,
        model: ResolvedModel,
        *,
        threads: int = 1,
        device: str = "auto",
        context: int | None = None,
        default_context: int | None = None,
        progress: Progress = no_progress,
    ) -> TransformersBackend:
        """Load a model. `threads` are torch's; `device` is "auto", "cpu" or "cuda[:n]".

        `default_context` is the most that is taken where `context` is None.
        float32 on the processor, the model's own type on a GPU. Raises ModelError,
        UnsupportedModel, EngineError.
        """
        # OpenMP threads that spin while they wait starve other processes; read at torch's import.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        progress("importing torch", 0.0)
        try:
            import torch
            import transformers
        except ImportError as error:
            raise UnsupportedModel(
                f"The transformers backend needs the package {error.name}.", hub_models.INSTALL
            ) from None
        torch.set_num_threads(max(1, threads))
        # Progress bars would go to the worker's log.
        transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        place = _device(device)
        progress("reading weights", 0.1)
        dtype = torch.float32 if place.type == "cpu" else "auto"
        with hub_models.load_errors(model):
            loaded = hub_models.read_model(model, dtype)
            progress("moving to the device", 0.9)
            backend = cls(loaded.to(place).eval(), place, context)
            if context is None:
                backend.context = min(backend.context, default_context or backend.context)
        progress("ready", 1.0)
        return backend

    def kv_bytes(self, capacity: int) -> int:
        """Bytes that a full cache of `capacity` positions takes; it grows as it fills."""
        return capacity * self._kv_bytes_per_position

    def new_cache(self, capacity: int) -> TransformersCache:
        """An empty cache."""
        from transformers import DynamicCache

        # Without the model's configuration all layers keep everything, so that sliding windows can
        # be rewound.
        return TransformersCache(capacity, DynamicCache())

    def append(self, cache: KVCache, tokens: Sequence[int], *, logits: bool) -> Logits | None:
        """Commit `tokens`; with `logits`, those of the last one, [vocab]. Raises ContextTooLong."""
        own = _own(cache)
        self._drop_pending(own)
        self._check_room(own, len(tokens))
        last = None
        for start in range(0, len(tokens), _BLOCK):
            block = tokens[start : start + _BLOCK]
            positions = list(range(own.length, own.length + len(block)))
            last = self._forward(own, block, positions, keep=1)
            own.length += len(block)
        return last[-1] if logits and last is not None else None

    def speculate(self, cache: KVCache, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        """Logits [rows, vocab] of tree rows on the committed prefix. Raises ContextTooLong."""
        own = _own(cache)
        self._check_room(own, len(tokens))
        self._drop_pending(own)
        return self.grow(own, tokens, parents)

    def grow(self, cache: KVCache, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        """Logits [rows, vocab] of rows added to the pending tree.

        Raises ContextTooLong, EngineError for parents that do not come before their rows.
        """
        own = _own(cache)
        first = len(own.pending)
        self._check_room(own, first + len(tokens))
        if first + len(tokens) > self.max_pending or not 0 < len(tokens) <= self.max_rows:
            raise EngineError(f"{len(tokens)} rows do not go into a pending tree of {first}.")
        pending = [*own.pending, *zip(tokens, parents, strict=True)]
        paths = _paths([parent for _, parent in pending])
        if self._masked:
            keys = [own.length + len(path) - 1 for path in paths]
            with hub_models.step_errors():
                mask = self._mask(own.length, keys, paths[first:])
            result = self._forward(own, tokens, keys[first:], mask=mask)
        else:
            result = self._rows_by_path(own, [token for token, _ in pending], paths[first:])
        own.pending = pending
        return result

    def commit(self, cache: KVCache, path: Sequence[int]) -> None:
        """Keep the KV of a root-to-node path of pending rows, drop the rest."""
        self.reroot(cache, path, [])

    def reroot(self, cache: KVCache, path: Sequence[int], keep: Sequence[int]) -> None:
        """Move a path of pending rows into the prefix; `keep` stays pending, behind it.

        One gather for keys and values of each layer. Raises EngineError for rows that are no such
        path or do not hang on it.
        """
        own = _own(cache)
        rows, pending = list(path), own.pending
        if [pending[row][1] for row in rows] != [-1, *rows][: len(rows)]:
            raise EngineError("Rows to commit are no path of the pending tree.")
        place = {rows[-1] if rows else -1: -1}
        for i, row in enumerate(keep):
            if pending[row][1] not in place or (i > 0 and row <= keep[i - 1]):
                raise EngineError("Rows to keep do not hang on the path's end, or do not ascend.")
            place[row] = i
        kept = [(pending[row][0], place[pending[row][1]]) for row in keep]
        if not self._masked:  # pending rows have no KV there
            self._drop_pending(own)
            self.append(own, [pending[row][0] for row in rows], logits=False)
        elif pending:
            chosen = [*range(own.length), *(own.length + row for row in (*rows, *keep))]
            try:
                with hub_models.step_errors():
                    self._select(own, chosen)
            except EngineError:  # some layers are moved, others not
                self.truncate(own, 0)
                raise
            own.length += len(rows)
        own.pending = kept

    def truncate(self, cache: KVCache, length: int) -> None:
        """Forget all positions from `length` on, and a pending tree."""
        own = _own(cache)
        own.length = min(length, own.length)
        self._cut(own)

    def _forward(
        self,
        cache: TransformersCache,
        tokens: Sequence[int],
        positions: Sequence[int],
        *,
        mask: Any = None,
        keep: int = 0,
    ) -> Logits:
        """One pass; logits of the last `keep` rows (0: of all), float32 [rows, vocab].

        Raises EngineError; only the committed prefix is left then.
        """
        import torch

        arguments: dict[str, Any] = {self._cache_argument: cache.store, "use_cache": True}
        if mask is not None:
            arguments["attention_mask"] = mask
        if self._takes_keep:
            arguments["logits_to_keep"] = keep
        try:
            with hub_models.step_errors(), torch.inference_mode():
                if self._takes_positions:
                    places = torch.tensor([list(positions)], device=self._device)
                    arguments["position_ids"] = places
                ids = torch.tensor([list(tokens)], device=self._device)
                logits = self._model(input_ids=ids, **arguments).logits[0, -keep:]
                result: Logits = logits.to(torch.float32).cpu().numpy()
        except EngineError:
            self._cut(cache)
            raise
        return result

    def _rows_by_path(
        self, cache: TransformersCache, tokens: Sequence[int], paths: Sequence[Sequence[int]]
    ) -> Logits:
        """Logits of tree rows, each path run from the prefix, which stays as it is."""
        rows: list[Logits] = []
        for path in paths:
            positions = range(cache.length, cache.length + len(path))
            rows.append(self._forward(cache, [tokens[row] for row in path], positions, keep=1)[-1])
            self._cut(cache)
        return np.stack(rows)

    def _mask(self, length: int, positions: Sequence[int], paths: Sequence[Sequence[int]]) -> Any:
        """Additive masks [1, 1, rows, length + pending], one for each kind of layer.

        `positions` are those of all pending rows, `paths` those of the last of them, which are
        run: the mask is not square where the tree grows (SwiftSpec, section 3.1).
        """
        import torch

        keys = np.array([*range(length), *positions])
        allowed = np.zeros((len(paths), len(keys)), dtype=bool)
        allowed[:, :length] = True
        for row, path in enumerate(paths):
            allowed[row, [length + node for node in path]] = True
        own = keys[len(keys) - len(paths) :]
        near = own[:, None] - keys[None, :] < (self._window or len(keys) + 1)
        floor = torch.finfo(self._model.dtype).min

        def additive(seen: Any) -> Any:
            zeros = torch.zeros(seen.shape, dtype=self._model.dtype)
            filled = zeros.masked_fill(~torch.from_numpy(seen), floor)
            return filled[None, None].to(self._device)

        masks = {
            "full_attention": additive(allowed),
            "sliding_attention": additive(allowed & near),
        }
        if self._layer_kinds is None:  # one kind for all layers, not named
            return masks["sliding_attention" if self._window else "full_attention"]
        return {kind: masks[kind] for kind in self._layer_kinds}

    def _masks_work(self) -> bool:
        """Whether a small tree gives the same in one pass as path by path."""
        import torch

        prefix, tokens, parents = [1, 2, 3], [4, 5, 6, 7], [-1, -1, 0, 1]
        paths = _paths(parents)
        cache = self.new_cache(len(prefix) + len(tokens))
        self.append(cache, [token % self.vocab for token in prefix], logits=False)
        rows = [token % self.vocab for token in tokens]
        expected = self._rows_by_path(cache, rows, paths)
        positions = [cache.length + len(path) - 1 for path in paths]
        try:
            mask = self._mask(cache.length, positions, paths)
            found = self._forward(cache, rows, positions, mask=mask)
        except (*hub_models.MODEL_ERRORS, EngineError):
            return False
        slack = 1e-3 if self._model.dtype == torch.float32 else 0.05
        return bool(np.abs(found - expected).max() <= slack * max(1.0, np.abs(expected).max()))

    def _measure_kv(self) -> int:
        cache = self.new_cache(1)
        self._forward(cache, [0], [0], keep=1)
        layers = [layer for layer in cache.store.layers if layer.is_initialized]
        return sum(
            tensor.numel() * tensor.element_size()
            for layer in layers
            for tensor in (layer.keys, layer.values)
        )

    def _check_room(self, cache: TransformersCache, count: int) -> None:
        room = min(cache.capacity, self.context)
        if cache.length + count > room:
            raise ContextTooLong(
                f"{cache.length + count} positions are needed, {room} are there.",
                "Shorten the text or raise model.context.",
            )

    def _drop_pending(self, cache: TransformersCache) -> None:
        if cache.pending:
            cache.pending = []
            self._cut(cache)

    def _cut(self, cache: TransformersCache) -> None:
        """Drop everything after the committed prefix."""
        cache.pending = []
        for layer in cache.store.layers:
            if layer.is_initialized:
                layer.keys = layer.keys[..., : cache.length, :]
                layer.values = layer.values[..., : cache.length, :]

    def _select(self, cache: TransformersCache, keep: Sequence[int]) -> None:
        import torch

        index = torch.tensor(keep, device=self._device)
        for layer in cache.store.layers:
            if layer.is_initialized:
                layer.keys = layer.keys.index_select(-2, index)
                layer.values = layer.values.index_select(-2, index)


def _own(cache: KVCache) -> TransformersCache:
    if not isinstance(cache, TransformersCache):
        raise EngineError("The cache belongs to another backend.")
    return cache


def _paths(parents: Sequence[int]) -> list[list[int]]:
    """For each row its ancestors and itself, from the root on."""
    paths: list[list[int]] = []
    for row, parent in enumerate(parents):
        if not -1 <= parent < row:
            raise EngineError(f"Row {row} of the tree has the parent {parent}.")
        paths.append([*(paths[parent] if parent >= 0 else []), row])
    return paths


def _device(wanted: str) -> torch.device:
    import torch

    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError:
        raise EngineError(f"There is no kind of device {wanted}.", "Use cpu or cuda.") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise EngineError(f"There is no GPU {wanted}.", "Use cpu.")
    return device


def _attention_kinds(config: Any) -> tuple[int | None, list[str] | None]:
    """Sliding window, and the kinds of layers where the configuration names them.

    Raises UnsupportedModel for layers whose state cannot be rewound.
    """
    kinds = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None)
    if kinds is None:
        return window, None
    strange = sorted(set(kinds) - {"full_attention", "sliding_attention"})
    if strange:
        raise UnsupportedModel(
            f"Layers of kind {', '.join(strange)} keep a state that cannot be rewound."
        )
    return window, sorted(set(kinds))


def _cache_argument(parameters: Any, model: str) -> str:
    for name in ("cache", "past_key_values"):
        if name in parameters:
            return name
    raise UnsupportedModel(f"{model} keeps no keys and values that can be rewound.")
