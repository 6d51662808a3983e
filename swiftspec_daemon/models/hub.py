"""Models of the hub, ORG/NAME: fetches the few files that are needed into the models' folder.

By `huggingface_hub` (its settings apply: HF_ENDPOINT, HF_TOKEN, HTTPS_PROXY), which resumes
interrupted downloads. Knows which files a model needs, not what is in them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from swiftspec_daemon import paths
from swiftspec_daemon.errors import DownloadError, ModelNotFound, UnsupportedModel
from swiftspec_daemon.models import Progress, no_progress
from swiftspec_daemon.models.catalog import hub_dir, is_hub_name
from swiftspec_daemon.models.locking import locked

_NEEDED = (
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json", "LICENSE*", "NOTICE*", "README.md",
)  # fmt: skip
_SAFETENSORS = ("model*.safetensors", "model.safetensors.index.json")
_PICKLED = ("pytorch_model*.bin", "pytorch_model.bin.index.json")

T = TypeVar("T")


def fetch(
    repository: str,
    *,
    revision: str | None = None,
    file: str | None = None,
    progress: Progress = no_progress,
) -> Path:
    """Fetch a model; returns its folder. huggingface_hub shows its own progress bars; `progress`
    only hears of waiting for another process that fetches the same.

    `file` picks one GGUF file of a repository of such. Raises DownloadError, ModelNotFound,
    UnsupportedModel; what has arrived stays, and the next call goes on from there.
    """
    import huggingface_hub

    if not is_hub_name(repository):
        raise ModelNotFound(f"{repository} is no name of a model on the hub.", "It is ORG/NAME.")
    target = hub_dir() / repository
    # Read at each call; huggingface_hub itself reads it once, when it is imported.
    endpoint = os.environ.get("HF_ENDPOINT") or None
    api = huggingface_hub.HfApi(endpoint=endpoint)
    with locked(_lock_file(repository), progress):
        info = _ask(repository, lambda: api.model_info(repository, revision=revision))
        names = [sibling.rfilename for sibling in info.siblings or ()]
        patterns = _choose(repository, names, file)
        _ask(
            repository,
            lambda: api.snapshot_download(
                repository, revision=revision, local_dir=target, allow_patterns=patterns
            ),
        )
    return target


def _choose(repository: str, names: list[str], file: str | None) -> list[str]:
    """Patterns of the files to fetch: `file`, else safetensors, pickled weights, a lone GGUF."""
    ggufs = sorted(name for name in names if name.endswith(".gguf"))
    if file is not None:
        if file not in ggufs:
            raise ModelNotFound(f"{repository} has no file {file}.", _listing(ggufs))
        return [file, "LICENSE*", "README.md"]
    if any(name.endswith(".safetensors") and "/" not in name for name in names):
        return [*_NEEDED, *_SAFETENSORS]
    if any(name.startswith("pytorch_model") for name in names):
        return [*_NEEDED, *_PICKLED]
    if len(ggufs) == 1:
        return [ggufs[0], "LICENSE*", "README.md"]
    if ggufs:
        raise ModelNotFound(
            f"{repository} has several GGUF files; say which with --file.", _listing(ggufs)
        )
    raise UnsupportedModel(f"{repository} holds no weights that can be read here.")


def _listing(ggufs: list[str]) -> str:
    return f"It has: {', '.join(ggufs)}." if ggufs else "It has no GGUF files."


def _ask(repository: str, call: Callable[[], T]) -> T:
    """Call the hub; its errors as ours."""
    from huggingface_hub import errors

    # The base of the HTTP library's errors; which library that is depends on the version.
    transport_error: type[Exception] = errors.HfHubHTTPError.__bases__[0]
    page = "ask for access on the model's page, then set HF_TOKEN or run `hf auth login`"
    try:
        return call()
    except errors.GatedRepoError:
        raise DownloadError(
            f"{repository} is gated: its owner gives access on request.", f"To use it, {page}."
        ) from None
    except errors.RevisionNotFoundError:
        raise ModelNotFound(f"{repository} has no such revision.") from None
    except errors.RepositoryNotFoundError:
        raise ModelNotFound(
            f"The hub has no model {repository}, or it is private.",
            "Check the spelling (ORG/NAME); for a private model set HF_TOKEN.",
        ) from None
    except errors.HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        hint = "Try again later; what has arrived is kept."
        if status in (401, 403):
            hint = f"The model may be gated or private: {page}."
        raise DownloadError(
            f"The hub answered with status {status} for {repository}.", hint
        ) from None
    except (transport_error, OSError) as error:
        if _is_of_files(error):
            raise DownloadError(
                f"The files of {repository} cannot be written: {error}.",
                f"Make room in {hub_dir()}, or set SWIFTSPEC_HOME to a folder with room.",
            ) from None
        raise DownloadError(
            f"The hub cannot be reached for {repository}.",
            "Check the network (HF_ENDPOINT, HTTPS_PROXY, HF_HUB_OFFLINE) and run the command "
            "again; what has arrived is kept.",
        ) from None


def _is_of_files(error: Exception) -> bool:
    """Whether the system refused a file, not a connection."""
    if not isinstance(error, OSError) or isinstance(error, ConnectionError | TimeoutError):
        return False
    return (error.errno is not None and error.filename is not None) or error.errno == errno.ENOSPC


def _lock_file(repository: str) -> Path:
    return paths.models_dir() / f"hub-{repository.replace('/', '--')}.lock"
