"""What `swiftspec models inspect` and `verify` tell: facts about a model, and checks of its files.

Gathers plain data (dataclasses) from the other modules of this package; shows nothing itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from swiftspec_daemon.errors import ModelError
from swiftspec_daemon.models import Progress, catalog, default, fill_in, no_progress, packed
from swiftspec_daemon.models.gguf_format import GGUFFile
from swiftspec_daemon.models.spec import ModelSpec
from swiftspec_daemon.models.tokenizer import Tokenizer
from swiftspec_daemon.models.weights import SafetensorsWeights

_SAMPLE = "def f(x):\n\treturn [x, 'é', \"🎉\"]  # 12345\r\n"


@dataclass(frozen=True, slots=True)
class Facts:
    """What a model is, in numbers and names."""

    name: str
    path: str
    format: str
    native: bool
    """Runs on our own backends."""
    reason: str
    """Why not, where it does not."""
    spec: ModelSpec | None
    parameters: int | None
    file_bytes: int
    tensor_types: dict[str, int]
    """How many tensors are packed in each type."""
    tokenizer: str
    """Kind, or why it cannot be read."""
    vocab_size: int | None
    bos: str | None
    """The token that comes first, if the model wants one."""
    ends: dict[str, int]
    """Tokens that end a text."""
    fill_in: dict[str, int]
    """Special tokens for fill-in-the-middle prompts; none where the set is not whole."""
    repository: dict[str, int]
    """Special tokens for prompts of several files."""
    int8_bytes: int | None
    """Estimate: the weights at one byte each."""
    kv_bytes_per_position: int | None
    """Estimate: keys and values of one position in float32."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked."""

    name: str
    passed: bool
    detail: str = ""


def inspect(model: catalog.ResolvedModel) -> Facts:
    """The facts of a model. Raises ModelNotFound, ModelError."""
    spec = model.spec
    try:
        tokenizer, kind = catalog.open_tokenizer(model), ""
    except ModelError as error:
        tokenizer, kind = None, error.message
    return Facts(
        name=model.name,
        path=str(model.path),
        format=model.format,
        native=spec is not None,
        reason=model.reason,
        spec=spec,
        parameters=spec.parameters if spec else None,
        file_bytes=sum(file.stat().st_size for file in catalog.source_files(model)),
        tensor_types=_tensor_types(model),
        tokenizer=tokenizer.kind if tokenizer else kind,
        vocab_size=tokenizer.vocab_size if tokenizer else None,
        bos=_bos(tokenizer) if tokenizer else None,
        ends=_named(tokenizer, tokenizer.eos_ids) if tokenizer else {},
        fill_in=fill_in.fill_in_tokens(tokenizer.special_tokens) if tokenizer else {},
        repository=fill_in.repository_tokens(tokenizer.special_tokens) if tokenizer else {},
        int8_bytes=spec.parameters if spec else None,
        kv_bytes_per_position=8 * spec.layers * spec.kv_heads * spec.head_dim if spec else None,
    )


def verify(model: catalog.ResolvedModel, progress: Progress = no_progress) -> list[Check]:
    """Check the files: checksum (default model), all weights, tokenizer, converted copies."""
    checks: list[Callable[[], Check]] = [
        lambda: _check_weights(model, progress),
        lambda: _check_tokenizer(model),
    ]
    if model.path.name == default.GGUF:
        checks.insert(0, lambda: _check_sum(model, progress))
    found = [check() for check in checks]
    return [*found, *(_check_copy(copy, progress) for copy in catalog.packed_copies(model))]


def _check_copy(copy: Path, progress: Progress) -> Check:
    """A damaged converted copy is removed: it can be made again, and would give wrong text."""
    progress("checking the converted model", 0.0)
    try:
        right = packed.contents_are_right(copy)
    except ModelError:
        right = False
    if right:
        return Check("converted copy", True, copy.name)
    copy.unlink(missing_ok=True)
    return Check("converted copy", False, "it was damaged and is removed; the next start makes it")


def _check_sum(model: catalog.ResolvedModel, progress: Progress) -> Check:
    right = default.verify(model.path, progress)
    return Check("sha256", right, "" if right else f"{model.path} is not the published file")


def _check_weights(model: catalog.ResolvedModel, progress: Progress) -> Check:
    if model.spec is None:
        return Check("weights", True, "not read: only the transformers backend knows them")
    try:
        source = catalog.open_weights(model)
        names = list(model.spec.tensor_shapes())
        for index, name in enumerate(names):
            total = float(source.tensor(name).sum(dtype="float64"))
            if not math.isfinite(total):
                return Check("weights", False, f"tensor {name} holds values that are no numbers")
            progress("reading weights", (index + 1) / len(names))
    except ModelError as error:
        return Check("weights", False, error.message)
    return Check("weights", True, f"{len(names)} tensors of the right shapes")


def _check_tokenizer(model: catalog.ResolvedModel) -> Check:
    try:
        tokenizer = catalog.open_tokenizer(model)
    except ModelError as error:
        return Check("tokenizer", False, error.message)
    if model.spec and tokenizer.vocab_size > model.spec.vocab:
        return Check(
            "tokenizer", False,
            f"it has {tokenizer.vocab_size} tokens, the model {model.spec.vocab}",
        )  # fmt: skip
    back = tokenizer.decode(tokenizer.encode(_SAMPLE, space=False))
    if back != _SAMPLE:
        return Check("tokenizer", False, f"a sample comes back as {back!r}")
    return Check("tokenizer", True, f"{tokenizer.kind}, {tokenizer.vocab_size} tokens")


def _tensor_types(model: catalog.ResolvedModel) -> dict[str, int]:
    if model.format == "gguf":
        kinds = [info.type for info in GGUFFile(model.path).tensors.values()]
        return {kind: kinds.count(kind) for kind in sorted(set(kinds))}
    try:
        return SafetensorsWeights(model.path).types()
    except ModelError:  # weights of another kind, which only transformers reads
        return {}


def _bos(tokenizer: Tokenizer) -> str | None:
    if not tokenizer.add_bos or tokenizer.bos_id is None:
        return None
    return next(iter(_named(tokenizer, (tokenizer.bos_id,))), None)


def _named(tokenizer: Tokenizer, ids: tuple[int, ...]) -> dict[str, int]:
    texts = {token_id: text for text, token_id in tokenizer.special_tokens.items()}
    return {texts.get(token_id, f"(token {token_id})"): token_id for token_id in ids}
