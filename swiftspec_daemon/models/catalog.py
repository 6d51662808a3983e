"""Which models there are, by name: "default", a folder, a GGUF file, or a fetched ORG/NAME.

Resolves a name to files and a spec, opens weights and tokenizer, and keeps converted copies
(`packed`) beside them. Knows where models live; fetching is done by `default` and `hub`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy.typing as npt

from swiftspec_daemon import paths
from swiftspec_daemon.errors import ModelError, ModelNotFound, UnsupportedModel
from swiftspec_daemon.models import Progress, config, default, gguf, no_progress, packed
from swiftspec_daemon.models.gguf_format import GGUFFile
from swiftspec_daemon.models.locking import locked
from swiftspec_daemon.models.spec import ModelSpec
from swiftspec_daemon.models.tokenizer import Tokenizer
from swiftspec_daemon.models.weights import SafetensorsWeights, WeightSource, check_shapes

Format = Literal["gguf", "safetensors"]
_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model whose files are there."""

    name: str
    """As the user named it."""
    path: Path
    """The GGUF file or the folder."""
    format: Format
    spec: ModelSpec | None
    """None: only the transformers backend can run it; `reason` says why."""
    reason: str = ""

    def require_spec(self) -> ModelSpec:
        """The spec. Raises UnsupportedModel where there is none."""
        if self.spec is None:
            raise UnsupportedModel(
                f"The model {self.name} cannot run here: {self.reason}", config.USE_TRANSFORMERS
            )
        return self.spec


Conversion = tuple[dict[str, Any], Iterator[tuple[str, npt.NDArray[Any]]]]
Convert = Callable[[ModelSpec, WeightSource, Progress], Conversion]
"""A backend's conversion: its meta (JSON data) and its arrays, made one by one."""


def hub_dir() -> Path:
    """Where fetched models of the hub live, as ORG/NAME."""
    return paths.models_dir() / "hub"


def resolve(name: str) -> ResolvedModel:
    """The model of that name. Raises ModelNotFound naming what is missing, ModelError."""
    if name == default.NAME:
        return _gguf(name, default.find())
    path = _existing(name)
    if path is not None and path.suffix == ".gguf" and not path.is_dir():
        return _gguf(name, path)
    return _folder(name, folder_of(name))


def folder_of(name: str) -> Path:
    """The folder of that name: a path, or a fetched ORG/NAME. Raises ModelNotFound."""
    path = _existing(name)
    if path is not None and path.is_dir():
        return path
    if path is None and is_hub_name(name) and (hub_dir() / name).is_dir():
        return hub_dir() / name
    raise _not_found(name, path)


def is_hub_name(name: str) -> bool:
    """Whether it is spelt as a name on the hub, ORG/NAME."""
    return _HUB_NAME.fullmatch(name) is not None


def list_models() -> list[str]:
    """Names of the models that were fetched, complete or not."""
    names = [default.NAME] if default.is_there() else []
    folders = (path for path in sorted(hub_dir().glob("*/*")) if path.is_dir())
    return [*names, *(f"{path.parent.name}/{path.name}" for path in folders)]


def open_weights(model: ResolvedModel) -> WeightSource:
    """The model's weights, all shapes checked. Raises ModelNotFound, ModelError."""
    spec = model.require_spec()
    source: WeightSource = (
        gguf.GGUFWeights(GGUFFile(model.path), spec)
        if model.format == "gguf"
        else SafetensorsWeights(model.path)
    )
    check_shapes(spec, source)
    return source


def open_tokenizer(model: ResolvedModel) -> Tokenizer:
    """The model's tokenizer. Raises ModelNotFound, ModelError, UnsupportedModel."""
    from swiftspec_daemon.models.tokenizer_gguf import tokenizer_from_gguf
    from swiftspec_daemon.models.tokenizer_hub import tokenizer_from_folder

    if model.format == "gguf":
        return tokenizer_from_gguf(GGUFFile(model.path))
    return tokenizer_from_folder(model.path)


def source_files(model: ResolvedModel) -> list[Path]:
    """The files that a conversion depends on."""
    if model.format == "gguf":
        return [model.path]
    patterns = ("*.safetensors", "*.safetensors.index.json", "*config.json", "tokenizer.json")
    return sorted({path for pattern in patterns for path in model.path.glob(pattern)})


def packed_file(model: ResolvedModel, layout: str, target: ResolvedModel | None = None) -> Path:
    """Where the converted copy belongs: keyed by the source files' names, sizes and times, by
    those of a draft's `target`, and by `layout`, a backend's name and version of its array layout.
    """
    digest = hashlib.sha256(layout.encode())
    for file in [*source_files(model), *(source_files(target) if target else [])]:
        stat = file.stat()
        digest.update(f"\n{file.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode())
    return _packed_dir() / f"{_slug(model, layout)}-{digest.hexdigest()[:16]}.packed"


def ensure_packed(
    model: ResolvedModel, layout: str, convert: Convert, progress: Progress = no_progress
) -> Path:
    """The converted copy, made now if it is not there, is damaged or out of date.

    `meta` of the file gets `spec` (see `spec_of`), `name`, `bos_id` and `eos_ids` beside what
    `convert` gives; the token byte table is added to the arrays. One process converts at a time.
    """
    file = packed_file(model, layout)
    ensure_file(model, layout, file, lambda: _convert(model, file, convert, progress), progress)
    return file


def ensure_file(
    model: ResolvedModel, layout: str, file: Path, write: Callable[[], None], progress: Progress
) -> None:
    """Call `write`, which makes the converted copy `file`, unless it is there and whole.

    One process converts at a time; older copies of the model are removed. Raises ModelError.
    """
    if _usable(file, progress):
        return
    slug = _slug(model, layout)
    try:
        with locked(file.parent / f"{slug}.lock", progress):
            if not _usable(file, progress):
                _remove_unfinished(file, slug)
                write()
                _note_checked(file)
                _remove_older(file, slug)
    except OSError as error:
        raise ModelError(f"{model.name} cannot be converted: {error.strerror}.") from None


def spec_of(meta: dict[str, Any]) -> ModelSpec:
    """The spec in the meta of a converted file."""
    return msgspec.convert(meta["spec"], ModelSpec)


def _convert(model: ResolvedModel, file: Path, convert: Convert, progress: Progress) -> None:
    spec = model.require_spec()
    weights, tokenizer = open_weights(model), open_tokenizer(model)
    meta, arrays = convert(spec, weights, progress)
    common = {
        "name": model.name,
        "spec": msgspec.to_builtins(spec),
        "bos_id": tokenizer.bos_id,
        "eos_ids": list(tokenizer.eos_ids),
    }

    def everything() -> Iterator[tuple[str, npt.NDArray[Any]]]:
        yield from arrays
        yield from packed.token_arrays(tokenizer, spec.vocab)

    packed.write(file, {**meta, **common}, everything())


def packed_copies(model: ResolvedModel) -> list[Path]:
    """The converted copies of a model that are there, of whatever layout."""
    return sorted(_packed_dir().glob(f"*-{_place(model)}-*.packed"))


def _usable(file: Path, progress: Progress) -> bool:
    """Whether a converted copy is there and whole.

    Its contents are read through only if the file is not the one that was last found right (by
    inode, size and time), so that a start stays quick.
    """
    try:
        packed.open_packed(file)
        if _read_note(file) == _identity(file):
            return True
        progress("checking the converted model", 0.0)
        if not packed.contents_are_right(file):
            return False
    except (ModelError, OSError):
        return False
    _note_checked(file)
    return True


def _identity(file: Path) -> str:
    stat = file.stat()
    return f"{stat.st_ino} {stat.st_size} {stat.st_mtime_ns}"


def _note(file: Path) -> Path:
    return file.with_suffix(".checked")


def _read_note(file: Path) -> str:
    try:
        return _note(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _note_checked(file: Path) -> None:
    with contextlib.suppress(OSError):  # then it is checked again at the next start
        _note(file).write_text(_identity(file), "utf-8")


def _remove_unfinished(file: Path, slug: str) -> None:
    """What conversions have left that were killed; nobody else converts now."""
    for other in file.parent.glob(f".{slug}-*"):
        with contextlib.suppress(OSError):
            other.unlink()


def _remove_older(file: Path, slug: str) -> None:
    for other in file.parent.glob(f"{slug}-*.packed"):
        if other != file:
            with contextlib.suppress(OSError):  # Windows keeps files that are mapped
                other.unlink()
                _note(other).unlink(missing_ok=True)


def _packed_dir() -> Path:
    folder = paths.models_dir() / "packed"
    folder.mkdir(exist_ok=True)
    return folder


def _slug(model: ResolvedModel, layout: str) -> str:
    readable = re.sub(r"[^\w.]+", "-", f"{model.path.stem[:40]}-{layout}")
    return f"{readable}-{_place(model)}"


def _place(model: ResolvedModel) -> str:
    """Tells models of the same name in different folders apart."""
    return hashlib.sha256(str(model.path.resolve()).encode()).hexdigest()[:8]


def _existing(name: str) -> Path | None:
    """The file or folder of that name, None if there is none or it cannot be one."""
    try:
        path = Path(name).expanduser()
        return path if name and path.exists() else None
    except (OSError, RuntimeError, ValueError):  # too long, an unknown ~user, a NUL
        return None


def _not_found(name: str, path: Path | None) -> ModelNotFound:
    """What to do next depends on whether a path was meant, or a name on the hub."""
    if path is not None:
        return ModelNotFound(
            f"{name} is neither a folder nor a GGUF file.",
            "Name a folder of the hub's format, or a file that ends in .gguf.",
        )
    there = ", ".join(list_models()) or "none yet"
    if is_hub_name(name) and not name.endswith(".gguf"):
        return ModelNotFound(
            f"There is no model {name} (models that are there: {there}).",
            f"Fetch it: `swiftspec models fetch {name}`; or name a folder or a GGUF file.",
        )
    if name.startswith(("~", ".")) or name.endswith(".gguf") or "/" in name or os.sep in name:
        return ModelNotFound(
            f"There is no file or folder {name}.",
            f"Check the path, or name a model that is there ({there}).",
        )
    return ModelNotFound(
        f"There is no model {name} (models that are there: {there}).",
        "Name one of them, a folder or a GGUF file, or fetch one: `swiftspec models fetch`.",
    )


def _gguf(name: str, path: Path) -> ResolvedModel:
    file = GGUFFile(path)
    try:
        return ResolvedModel(name, path, "gguf", gguf.spec_from_gguf(file))
    except UnsupportedModel as error:
        return ResolvedModel(name, path, "gguf", None, error.message)


def _folder(name: str, path: Path) -> ResolvedModel:
    files = sorted(path.glob("*.gguf"))
    if len(files) == 1 and not (path / "config.json").exists():
        return _gguf(name, files[0])
    try:
        spec = config.read_spec(path)
    except UnsupportedModel as error:
        return ResolvedModel(name, path, "safetensors", None, error.message)
    if not (path / "tokenizer.json").exists():
        open_tokenizer(ResolvedModel(name, path, "safetensors", spec))  # raises, says what to do
    if not any(path.glob("*.safetensors*")) and any(path.glob("pytorch_model*.bin*")):
        reason = "Its weights are pickled (pytorch_model.bin), not safetensors."
        return ResolvedModel(name, path, "safetensors", None, reason)
    SafetensorsWeights(path)  # raises where a file is missing
    return ResolvedModel(name, path, "safetensors", spec)
