"""Draft models that borrow from their target: a hub-format folder without all tensors.

Its `config.json` is that of a usual model and may have `draft_vocab_size`: the rows of its output
head, fewer than its target's vocabulary (FR-Spec, arXiv 2502.14856). `d2t` then tells the ids they
stand for, by EAGLE-3's convention (arXiv 2503.01840): target id = row + d2t[row]. Absent
`model.embed_tokens.weight` is the target's embedding, an absent `lm_head.weight` the rows of the
target's head. It speaks its target's ids; where it has a tokenizer of its own, that must be the
same. Knows files and shapes, not how a backend converts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from swiftspec_daemon.errors import ModelError
from swiftspec_daemon.models import Progress, catalog, config, no_progress, packed
from swiftspec_daemon.models.catalog import ResolvedModel
from swiftspec_daemon.models.spec import ModelSpec
from swiftspec_daemon.models.tokenizer import Tokenizer
from swiftspec_daemon.models.weights import SafetensorsWeights, WeightSource, check_shapes

EMBEDDING, HEAD, IDS = "model.embed_tokens.weight", "lm_head.weight", "d2t"

DraftIds = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DraftModel:
    """A draft whose files are there."""

    model: ResolvedModel
    head_rows: int
    """Rows of its output head."""


@dataclass(frozen=True, slots=True)
class DraftSource:
    """What a backend's conversion gets of a draft and its target."""

    spec: ModelSpec
    weights: WeightSource
    ids: DraftIds | None
    """Token id of each row of the output head; None where row and id are the same."""
    target_spec: ModelSpec
    target_weights: WeightSource


ConvertDraft = Callable[
    [DraftSource, Progress], tuple[dict[str, Any], Iterator[tuple[str, npt.NDArray[Any]]]]
]
"""A backend's conversion: its meta (JSON data) and its arrays, made one by one."""


def default_folder() -> Path | None:
    """The project's own draft for the default model; None if this build has none."""
    folder = Path(__file__).resolve().parent.parent / "data" / "draft"
    return folder if (folder / "config.json").is_file() else None


def resolve(name: str) -> DraftModel:
    """The draft of that name, a folder or a fetched ORG/NAME.

    Raises ModelNotFound, ModelError, UnsupportedModel.
    """
    path = catalog.folder_of(name)
    spec = config.read_spec(path)
    rows = config.read_json(path / "config.json").get("draft_vocab_size")
    if rows is None:
        rows = spec.vocab
    if isinstance(rows, bool) or not isinstance(rows, int) or not 1 <= rows <= spec.vocab:
        raise ModelError(
            f"The draft's configuration gives draft_vocab_size = {rows!r}, not an integer from 1"
            f" to its vocabulary of {spec.vocab}.",
            "The draft's configuration is damaged; fetch it again.",
        )
    return DraftModel(ResolvedModel(name, path, "safetensors", spec), rows)


def open_source(draft: DraftModel, target: ResolvedModel) -> DraftSource:
    """Weights of both, the draft's shapes checked. Raises ModelNotFound, ModelError."""
    spec, target_spec = draft.model.require_spec(), target.require_spec()
    weights = SafetensorsWeights(draft.model.path)
    borrows = [name for name in (EMBEDDING, HEAD) if not weights.has(name)]
    if spec.tied and EMBEDDING not in borrows and HEAD in borrows:
        borrows.remove(HEAD)
    _check_pair(draft, spec, target, target_spec, borrows)
    if EMBEDDING in borrows and spec.tied and not target_spec.tied:
        spec = replace(spec, tied=False)  # the embedding is the target's, the head is not
    check_shapes(spec, weights, {HEAD: (draft.head_rows, spec.hidden)}, absent=(EMBEDDING, HEAD))
    ids = _ids(draft, spec, weights)
    return DraftSource(spec, weights, ids, target_spec, catalog.open_weights(target))


def ensure_packed(
    draft: DraftModel,
    target: ResolvedModel,
    layout: str,
    convert: ConvertDraft,
    progress: Progress = no_progress,
) -> Path:
    """The converted copy of a draft for this target, made now if needed.

    `meta` of the file gets `spec` (see `catalog.spec_of`) and `name` beside what `convert` gives.
    Raises ModelNotFound, ModelError, UnsupportedModel.
    """
    model = draft.model
    file = catalog.packed_file(model, layout, target)

    def write() -> None:
        source = open_source(draft, target)
        meta, arrays = convert(source, progress)
        common = {"name": model.name, "spec": msgspec.to_builtins(source.spec)}
        packed.write(file, {**meta, **common}, arrays)

    catalog.ensure_file(model, layout, file, write, progress)
    return file


def _check_pair(
    draft: DraftModel,
    spec: ModelSpec,
    target: ResolvedModel,
    target_spec: ModelSpec,
    borrows: list[str],
) -> None:
    """Raise ModelError unless the draft can use the target's ids and what it borrows."""
    if borrows and spec.vocab != target_spec.vocab:
        raise _too_few_tokens(draft, spec.vocab, target, target_spec.vocab)
    own_tokenizer = (draft.model.path / "tokenizer.json").is_file()
    if own_tokenizer or spec.vocab < target_spec.vocab:
        tokens = catalog.open_tokenizer(target)
        # Rows beyond the tokenizer's ids are padding: models of a family differ in it.
        if spec.vocab < tokens.vocab_size:
            raise _too_few_tokens(draft, spec.vocab, target, tokens.vocab_size)
        if own_tokenizer:
            _check_tokenizer(draft, catalog.open_tokenizer(draft.model), target, tokens)
    if borrows and spec.hidden != target_spec.hidden:
        raise ModelError(
            f"The draft {draft.model.name} lacks {borrows[0]} and cannot use that of"
            f" {target.name}: its width is {spec.hidden}, the model's {target_spec.hidden}.",
            "Name the draft that was made for this model.",
        )


def _too_few_tokens(
    draft: DraftModel, known: int, target: ResolvedModel, needed: int
) -> ModelError:
    return ModelError(
        f"The draft {draft.model.name} knows {known} tokens, its target {target.name} {needed}.",
        "Name the draft that was made for this model.",
    )


def _check_tokenizer(
    draft: DraftModel, own: Tokenizer, target: ResolvedModel, theirs: Tokenizer
) -> None:
    """Raise ModelError where an id stands for other bytes than the target's.

    Ids without bytes are special tokens, which tokenizers of one family may mark differently.
    """
    for token in range(theirs.vocab_size):
        wanted = theirs.token_bytes(token)
        known = token < own.vocab_size
        found = own.token_bytes(token) if known else b""
        if wanted and found != wanted and (found or not known):
            raise ModelError(
                f"The draft {draft.model.name} has another tokenizer than {target.name}: token"
                f" {token} is {found!r} there, not {wanted!r}.",
                "Name a draft with the target's tokenizer.",
            )


def _ids(draft: DraftModel, spec: ModelSpec, weights: SafetensorsWeights) -> DraftIds | None:
    if not weights.has(IDS):
        if draft.head_rows < spec.vocab:
            raise ModelError(
                f"The draft {draft.model.name} has no tensor {IDS}, which tells the tokens of its"
                f" {draft.head_rows} output rows.",
                "Fetch it again.",
            )
        return None
    offsets = weights.integers(IDS)
    if offsets.shape != (draft.head_rows,):
        raise ModelError(
            f"Tensor {IDS} has shape {list(offsets.shape)}, but the draft's configuration asks for"
            f" {[draft.head_rows]}.",
            "The files do not belong together; fetch the draft again.",
        )
    ids = np.arange(draft.head_rows, dtype=np.int64) + offsets
    if ids.min() < 0 or ids.max() >= spec.vocab or len(np.unique(ids)) != len(ids):
        raise ModelError(
            f"Tensor {IDS} of {draft.model.name} names tokens twice, or tokens that do not exist.",
            "Fetch the draft again.",
        )
    return ids
