"""Tokenizers of hub-format folders: `tokenizer.json` and what `tokenizer_config.json` adds.

Sorts added tokens into control markers and ordinary text, and finds whether the model wants a BOS
first. Reads files only; the work is `tokenizer.Tokenizer`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from swiftspec_daemon.errors import ModelError, ModelNotFound
from swiftspec_daemon.models.config import end_ids, read_json
from swiftspec_daemon.models.tokenizer import Tokenizer, Vocabulary, flatten, is_marker


def tokenizer_from_folder(folder: Path) -> Tokenizer:
    """The tokenizer of a hub-format folder. Raises ModelNotFound, ModelError, UnsupportedModel."""
    if not (folder / "tokenizer.json").exists():
        raise ModelNotFound(
            f"The model folder {folder} has no tokenizer.json.",
            "Fetch the model again; for a model with another tokenizer file, load it with "
            "transformers' AutoTokenizer and save_pretrained it there.",
        )
    definition = read_json(folder / "tokenizer.json")
    added = definition.pop("added_tokens", None) or []
    try:
        contents = {str(token["content"]): int(token["id"]) for token in added}
        marked = {str(token["content"]) for token in added if token.get("special")}
    except (KeyError, TypeError, ValueError):
        raise ModelError(
            f"{folder / 'tokenizer.json'} has a broken list of added tokens.",
            "Fetch the model again.",
        ) from None
    special = {text: i for text, i in contents.items() if text in marked or is_marker(text)}
    config = _optional(folder / "tokenizer_config.json")
    model_config = _optional(folder / "config.json")
    bos_text = _token_text(config.get("bos_token"))
    template_bos = _template_bos(definition)
    bos = contents.get(bos_text or template_bos or "")
    add_bos = config.get("add_bos_token")
    ends = end_ids(model_config, _optional(folder / "generation_config.json"))
    eos_text = _token_text(config.get("eos_token"))
    if eos_text in special:
        ends = (*ends, special[eos_text])
    return Tokenizer(
        Vocabulary(
            definition=definition,
            special=special,
            literal=[token for token in added if token["content"] not in special],
            bos_id=bos,
            add_bos=bool(add_bos) if add_bos is not None else template_bos is not None,
            eos_ids=ends,
        )
    )


def _optional(file: Path) -> dict[str, Any]:
    return read_json(file) if file.exists() else {}


def _token_text(value: Any) -> str | None:
    """A token of tokenizer_config.json: a string, or an object with its `content`."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _template_bos(definition: Mapping[str, Any]) -> str | None:
    """The special token that the post-processor puts before a text, if it does."""
    for part in flatten(definition.get("post_processor")):
        if part.get("type") == "TemplateProcessing" and part.get("single"):
            first = part["single"][0]
            if "SpecialToken" in first:
                return str(first["SpecialToken"]["id"])
    return None
