"""Reads a model of the hub's format with transformers, and translates what its code raises.

Every failure to load becomes a `ModelError` of one line, every failed step an `EngineError`. Knows
nothing of caches and of how steps are put together.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from swiftspec_daemon.errors import (
    EngineError,
    ModelError,
    SwiftSpecError,
    UnsupportedModel,
    in_one_line,
)
from swiftspec_daemon.models.catalog import ResolvedModel

log = logging.getLogger(__name__)

INSTALL = "Install it: pip install 'swiftspec-daemon[transformers]'."
MODEL_ERRORS = (
    ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError
)  # fmt: skip
"""What a model's own code and torch raise in a forward pass."""
UNKNOWN_CONTEXT = 2048
"""Positions for a model whose configuration names no limit, if the user names none."""
_CONTEXT_NAMES = (
    "max_position_embeddings", "n_positions", "max_seq_len", "max_seq_length",
    "max_sequence_length", "seq_length", "seq_len", "max_target_positions", "context_length",
    "n_ctx",
)  # fmt: skip
_OUT_OF_MEMORY = "Lower model.context or model.kv_slots, or end other programs that use the memory."


class StepFailed(EngineError):
    """The model's own code failed in a forward pass."""


def made_for(config: Any) -> int | None:
    """Positions that a text configuration says the model was made for, under any of its names."""
    for name in _CONTEXT_NAMES:
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return None


def read_model(model: ResolvedModel, dtype: Any) -> Any:
    """The causal language model, on the processor. Call it inside `load_errors`.

    Raises ModelError for tensors that are missing or have another shape than the configuration
    says: transformers would fill them with random numbers.
    """
    import transformers

    folder, options = str(model.path), {}
    if model.format == "gguf":
        folder, options = str(model.path.parent), {"gguf_file": model.path.name}
    # The declared result forgets the loading information.
    loader: Any = transformers.AutoModelForCausalLM
    loaded, found = loader.from_pretrained(
        folder,
        dtype=dtype,
        local_files_only=True,
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # we refuse them ourselves, by name
        **options,
    )
    _require_all_tensors(model, loaded, found)
    return loaded


def _require_all_tensors(model: ResolvedModel, loaded: Any, found: Any) -> None:
    hint = "The configuration may be another model's, or files are missing: fetch it again."
    for name, shape, wanted in sorted(found["mismatched_keys"]):
        raise ModelError(
            f"The tensor {name} of {model.name} has the shape {tuple(shape)}, but its "
            f"configuration says {tuple(wanted)}.",
            hint,
        )
    # Buffers are computed; tied parameters do not count as missing.
    parameters = {name for name, _ in loaded.named_parameters(remove_duplicate=False)}
    missing = sorted(parameters & set(found["missing_keys"]))
    if missing:
        more = f" and {len(missing) - 1} more" if missing[1:] else ""
        raise ModelError(f"{model.name} lacks the tensor {missing[0]}{more}.", hint)
    if found["unexpected_keys"]:
        name = min(found["unexpected_keys"])
        count = len(found["unexpected_keys"])
        log.warning("%s: %d tensors are not used, one is %s", model.name, count, name)


@contextlib.contextmanager
def load_errors(model: ResolvedModel) -> Iterator[None]:
    """What is raised inside, as ModelError, UnsupportedModel or EngineError of one line."""
    import torch

    try:
        yield
    except StepFailed as error:  # when it was tried
        raise ModelError(f"{model.name} does not run: {error.message}", error.hint) from None
    except SwiftSpecError:
        raise
    except ImportError as error:
        raise UnsupportedModel(
            f"{model.name} needs more packages: {in_one_line(error)}", INSTALL
        ) from None
    except torch.OutOfMemoryError as error:
        raise EngineError(
            f"{model.name} does not fit in the device's memory: {in_one_line(error)}",
            _OUT_OF_MEMORY,
        ) from None
    except Exception as error:  # the libraries' own kinds, and whatever a model's code raises
        log.info("loading failed", exc_info=error)
        plain = isinstance(error, (OSError, RuntimeError, ValueError)) and str(error)
        kind = "" if plain else f"{type(error).__name__}: "
        raise ModelError(
            f"transformers cannot load {model.name}: {kind}{in_one_line(error)}",
            "Its configuration or files may be damaged, or made for another version of "
            "transformers; `swiftspec logs` has more.",
        ) from None


@contextlib.contextmanager
def step_errors() -> Iterator[None]:
    """What a step raises, as EngineError: it concerns one request, others go on.

    Not so a GPU's own error, after which nothing runs in this process any more.
    """
    import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        raise EngineError(
            f"There is not enough memory for a step: {in_one_line(error)}", _OUT_OF_MEMORY
        ) from None
    except MODEL_ERRORS as error:
        lost = getattr(torch, "AcceleratorError", ())
        if isinstance(error, lost) or str(error).startswith("CUDA error"):
            raise
        log.exception("a step failed")
        raise StepFailed(
            f"A step of the model failed: {type(error).__name__}: {in_one_line(error)}",
            "`swiftspec logs` has more.",
        ) from None
