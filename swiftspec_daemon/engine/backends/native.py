"""The native CPU backend: int8 weights on our own kernels, no torch.

Knows the hub's tensor names and how they become packed arrays; the arithmetic and the packed form
are in `swiftspec_daemon.kernels.native`. Results have the same bits for a row whatever the other
rows of the call, the split of a prompt into calls and the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from swiftspec_daemon.engine.backend import KVCache, Logits, Progress
from swiftspec_daemon.errors import (
    ContextTooLong,
    EngineError,
    ModelError,
    UnsupportedModel,
    UsageError,
)
from swiftspec_daemon.kernels.native import library, packing
from swiftspec_daemon.kernels.native.choose import open_model
from swiftspec_daemon.kernels.native.model import CacheFull
from swiftspec_daemon.kernels.native.shape import (
    MAX_DEPTH,
    MAX_PENDING,
    MAX_TREE_ROWS,
    NativeShape,
)
from swiftspec_daemon.models import rope
from swiftspec_daemon.models.draft import EMBEDDING, HEAD, DraftIds, DraftSource
from swiftspec_daemon.models.spec import ModelSpec
from swiftspec_daemon.models.weights import WeightSource

LAYOUT = packing.LAYOUT
"""Part of the packed file's name; changes whenever the packed form does."""

DRAFT_IDS = "draft_ids"
"""Packed array int64 [head_rows]: the token id of each logit of a draft with a trimmed head."""

Floats = npt.NDArray[np.float32]
Named = tuple[str, npt.NDArray[np.generic]]


def kernels_build() -> str:
    """Which kernels a model runs on: instruction set, compiler and a digest of their source."""
    try:
        digest = library.load().functions.swiftspec_source_digest().decode()[:16]
    except library.LibraryUnavailable:
        digest = "none"
    return f"{library.describe()}, {digest}"


def native_shape(spec: ModelSpec, head_rows: int = 0) -> NativeShape:
    """The kernels' view of a model; `head_rows` of a draft's trimmed head. Raises UnsupportedModel.

    A trimmed head has rows of its own, whatever the spec says of the embedding.
    """
    try:
        return NativeShape(
            hidden=spec.hidden,
            layers=spec.layers,
            heads=spec.heads,
            kv_heads=spec.kv_heads,
            head_dim=spec.head_dim,
            ff=spec.ff,
            vocab=spec.vocab,
            norm_eps=spec.norm_eps,
            tied=spec.tied and not head_rows,
            qkv_bias=spec.qkv_bias,
            qk_norm=spec.qk_norm,
            head_rows=head_rows,
        )
    except ValueError as error:
        raise UnsupportedModel(
            f"The native backend cannot run this model: {error}.",
            'Set model.backend to "transformers".',
        ) from error


def convert(
    spec: ModelSpec, weights: WeightSource, progress: Progress
) -> tuple[dict[str, str], Iterator[Named]]:
    """Meta data, and packed arrays one by one; only one layer is in memory at a time.

    Raises UnsupportedModel at once; ModelError while iterating, for weights that do not fit.
    """
    shape = native_shape(spec)

    def head() -> Floats:
        return _tensor(weights, HEAD, (shape.vocab, shape.hidden))

    return {"layout": LAYOUT}, _arrays(shape, weights, progress, head)


def convert_draft(
    source: DraftSource, progress: Progress
) -> tuple[dict[str, str], Iterator[Named]]:
    """Meta data and packed arrays of a draft model, which may lack what its target has.

    An absent embedding stays absent: the backend gets the target's. An absent head becomes the
    rows `source.ids` of the draft's own embedding where the two are tied, else of the target's
    head. `source.ids` are kept as the array "draft_ids". Raises as `convert`.
    """
    shape = native_shape(source.spec, 0 if source.ids is None else len(source.ids))
    return {"layout": LAYOUT}, _draft_arrays(shape, source, progress)


def _draft_arrays(shape: NativeShape, source: DraftSource, progress: Progress) -> Iterator[Named]:
    if source.ids is not None:
        yield DRAFT_IDS, source.ids
    own = source.weights.has(EMBEDDING)
    yield from _arrays(
        shape, source.weights, progress, lambda: _draft_head(shape, source), embedding=own
    )


def _draft_head(shape: NativeShape, source: DraftSource) -> Floats:
    """The output head's rows [head_rows, hidden]."""
    if source.weights.has(HEAD):
        return _tensor(source.weights, HEAD, (shape.head_rows, shape.hidden))
    if source.spec.tied and source.weights.has(EMBEDDING):
        whole = _tensor(source.weights, EMBEDDING, (shape.vocab, shape.hidden))
    else:
        name = EMBEDDING if source.target_spec.tied else HEAD
        whole = _tensor(source.target_weights, name, (shape.vocab, shape.hidden))
    return whole if source.ids is None else whole[source.ids]


def _arrays(
    shape: NativeShape,
    weights: WeightSource,
    progress: Progress,
    head: Callable[[], Floats],
    *,
    embedding: bool = True,
) -> Iterator[Named]:
    steps = shape.layers + 2
    if embedding:
        yield from _packed("embedding", _tensor(weights, EMBEDDING, (shape.vocab, shape.hidden)))
    progress("packing weights", 1 / steps)
    for i in range(shape.layers):
        yield from _layer(shape, weights, i)
        progress("packing weights", (i + 2) / steps)
    yield "final_norm", _tensor(weights, "model.norm.weight", (shape.hidden,))
    if not shape.tied:
        yield from _packed("head", head())
    progress("packing weights", 1.0)


def _layer(shape: NativeShape, weights: WeightSource, i: int) -> Iterator[Named]:
    source, name = f"model.layers.{i}", f"layers.{i}"
    hidden, ff = shape.hidden, shape.ff
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim

    def get(part: str, *form: int) -> Floats:
        return _tensor(weights, f"{source}.{part}", form)

    joined = packing.join_qkv(
        shape,
        get("self_attn.q_proj.weight", q, hidden),
        get("self_attn.k_proj.weight", kv, hidden),
        get("self_attn.v_proj.weight", kv, hidden),
    )
    yield from _packed(f"{name}.qkv", joined)
    output = packing.pad_output(shape, get("self_attn.o_proj.weight", hidden, q))
    yield from _packed(f"{name}.output", output)
    gate, up = get("mlp.gate_proj.weight", ff, hidden), get("mlp.up_proj.weight", ff, hidden)
    yield from _packed(f"{name}.gate_up", packing.join_gate_up(gate, up))
    yield from _packed(f"{name}.down", get("mlp.down_proj.weight", hidden, ff))
    yield f"{name}.attention_norm", get("input_layernorm.weight", hidden)
    yield f"{name}.ff_norm", get("post_attention_layernorm.weight", hidden)
    if shape.qkv_bias:
        biases = (("q", q), ("k", kv), ("v", kv))
        parts = [get(f"self_attn.{part}_proj.bias", size) for part, size in biases]
        yield f"{name}.qkv_bias", packing.join_qkv(shape, *parts)
    if shape.qk_norm:
        yield f"{name}.q_norm", get("self_attn.q_norm.weight", shape.head_dim)
        yield f"{name}.k_norm", get("self_attn.k_norm.weight", shape.head_dim)


def _packed(name: str, weight: Floats) -> Iterator[Named]:
    try:
        yield from packing.pack_linear(name, weight)
    except ValueError as error:
        raise ModelError(
            f"Weights for {name} are damaged: {error}.", "Fetch the model again."
        ) from error


def _tensor(weights: WeightSource, name: str, form: tuple[int, ...]) -> Floats:
    if not weights.has(name):
        raise ModelError(f"The model's files lack the tensor {name}.", "Fetch the model again.")
    tensor = np.ascontiguousarray(weights.tensor(name), np.float32)
    if tensor.shape != form:
        raise ModelError(
            f"Tensor {name} has shape {list(tensor.shape)}, but the config says {list(form)}.",
            "Fetch the model again.",
        )
    return tensor


class NativeBackend:
    """`swiftspec_daemon.engine.backend.Backend` over packed arrays."""

    name = "native"
    max_pending = MAX_PENDING
    max_rows = MAX_TREE_ROWS
    max_depth = MAX_DEPTH

    def __init__(
        self,
        spec: ModelSpec,
        arrays: Mapping[str, npt.NDArray[np.generic]],
        threads: int,
        context: int,
        target: Mapping[str, npt.NDArray[np.generic]] | None = None,
    ) -> None:
        """`arrays` as `convert` or `convert_draft` gives them, memory maps at best.

        `context` is in positions; `target` are the packed arrays of a draft's target, whose
        embedding serves a draft that has none. Raises UnsupportedModel, ModelError.
        """
        if spec.sliding_window is not None and context > spec.sliding_window:
            raise UnsupportedModel(
                f"The model attends to a window of {spec.sliding_window} positions, which the"
                f" native backend does not do for a context of {context}.",
                f"Set model.context to {spec.sliding_window} or less.",
            )
        self.draft_ids: DraftIds | None = None
        """Token id of each column of the logits; None where they are the same."""
        if DRAFT_IDS in arrays:
            self.draft_ids = np.asarray(arrays[DRAFT_IDS], np.int64)
        shape = native_shape(spec, 0 if self.draft_ids is None else len(self.draft_ids))
        borrowed = _borrowed(arrays, target or {})
        cosines, sines = rope.cos_sin(spec.rope, spec.head_dim, np.arange(context))
        try:
            self._model = open_model(shape, {**borrowed, **arrays}, cosines, sines, threads=threads)
        except ValueError as error:
            raise ModelError(
                f"The native backend cannot run this model: {error}.",
                "Convert the model again, or unset SWIFTSPEC_NATIVE_ISA.",
            ) from error
        self.kernels = f"{self._model.isa}, {self._model.compiler}"
        self.vocab = spec.vocab
        self.context = context
        self.weight_bytes = sum(
            array.nbytes for name, array in arrays.items() if not name.startswith("tokenizer.")
        )

    def kv_bytes(self, capacity: int) -> int:
        """Bytes that a cache of `capacity` positions takes."""
        return self._model.cache_bytes(capacity)

    def new_cache(self, capacity: int) -> KVCache:
        """An empty cache. Raises EngineError where there is no memory for it."""
        with _translated():
            return self._model.new_cache(capacity)

    def append(self, cache: KVCache, tokens: Sequence[int], *, logits: bool) -> Logits | None:
        """Commit `tokens`; with `logits`, those of the last token, [vocab].

        Raises ContextTooLong, UsageError for token ids that do not exist.
        """
        with _translated():
            out = self._model.append(cache, tokens, logits="last" if logits else "none")
        return None if out is None else out[0]

    def speculate(self, cache: KVCache, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        """Logits [rows, vocab] of up to 64 tree rows; fastest up to 16.

        Raises ContextTooLong, UsageError.
        """
        with _translated():
            return self._model.speculate(cache, tokens, parents)

    def grow(self, cache: KVCache, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        """Logits [rows, vocab] of up to 64 rows added to the pending tree; fastest up to 16.

        Raises ContextTooLong, UsageError; the tree is as before then.
        """
        with _translated():
            return self._model.grow(cache, tokens, parents)

    def reroot(self, cache: KVCache, path: Sequence[int], keep: Sequence[int]) -> None:
        """Move a path of pending rows into the prefix, keep the rows `keep` as the pending tree.

        Raises UsageError; nothing has changed then.
        """
        with _translated():
            self._model.reroot(cache, path, keep)

    def commit(self, cache: KVCache, path: Sequence[int]) -> None:
        """Move a root-to-node path of pending rows into the prefix. Raises UsageError."""
        with _translated():
            self._model.commit(cache, path)

    def truncate(self, cache: KVCache, length: int) -> None:
        """Forget positions from `length` on, and a pending tree. Raises UsageError."""
        with _translated():
            self._model.truncate(cache, length)


def _borrowed(
    arrays: Mapping[str, npt.NDArray[np.generic]], target: Mapping[str, npt.NDArray[np.generic]]
) -> dict[str, npt.NDArray[np.generic]]:
    """The target's embedding, if a draft has none. Raises ModelError."""
    if "embedding.panels" in arrays:
        return {}
    if "embedding.panels" not in target:
        raise ModelError(
            "The model has no embedding: it is a draft that uses its target's.",
            "Run it as the draft of the model that it was made for.",
        )
    return {name: array for name, array in target.items() if name.startswith("embedding.")}


@contextmanager
def _translated() -> Iterator[None]:
    """The kernels' exceptions as the project's."""
    try:
        yield
    except MemoryError as error:
        raise EngineError(
            f"The native backend cannot go on: {error}.",
            "Lower model.context or model.kv_slots, or close other programs.",
        ) from error
    except CacheFull as error:
        raise ContextTooLong(
            "The text needs more tokens than the context holds.",
            "Raise model.context, or complete in a shorter file.",
        ) from error
    except ValueError as error:
        raise UsageError(f"The model cannot do that: {error}.") from error
