"""Text to token ids and back, for byte-level BPE and SentencePiece-style BPE.

Encodes the user's text as text: what looks like a special token in it ("<|fim_middle|>") is split
into ordinary pieces, and no BOS is added; prompts splice special ids in themselves. Built from a
definition of the `tokenizers` library (`tokenizer_hub`, `tokenizer_gguf`). Knows no prompt format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import tokenizers

from swiftspec_daemon.errors import ModelError, UnsupportedModel

Kind = Literal["byte-level", "sentencepiece"]

_SURROGATE = re.compile("[\ud800-\udfff]")
_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE = "\u2581"
_MARKER = re.compile(r"<[|｜].*[|｜]>|▁?<[^\s<>]+>|<\[.*\]>|\[[A-Z_]+\]")
_END_TEXTS = (
    "<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>",
    "<|EOT|>", "<EOT>", "▁<EOT>", "</s>", "<eos>", "<end_of_turn>", "<｜end▁of▁sentence｜>",
    "<[end▁of▁sentence]>",
)  # fmt: skip
"""Special tokens that end a text in every family that has them."""


def is_marker(text: str) -> bool:
    """Whether an added token is a control marker by its spelling ("<think>", "<｜fim▁hole｜>").

    Several vocabularies declare their markers as ordinary added tokens.
    """
    return _MARKER.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What a tokenizer is built from."""

    definition: dict[str, Any]
    """As in `tokenizer.json`, its `added_tokens` left out."""
    special: Mapping[str, int]
    """Control tokens by text; never made from the user's text."""
    literal: Sequence[Mapping[str, Any]]
    """Added tokens that stand for their own text, such as runs of spaces, as in `added_tokens`."""
    bos_id: int | None = None
    add_bos: bool = False
    eos_ids: tuple[int, ...] = ()


class Tokenizer:
    """One model's tokenizer. Safe to use from several threads.

    Byte-level: `b"".join(token_bytes(i) for i in encode(s)) == s.encode()` for every text without
    lone surrogates. SentencePiece-style ones may put a space before the text (`adds_space`).
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._special = dict(vocabulary.special)
        self._special_ids = frozenset(self._special.values())
        pieces = _pieces(vocabulary.definition)
        self.kind: Kind = _kind(vocabulary.definition)
        self._bytes = self._byte_table(pieces, vocabulary.literal)
        self.vocab_size = len(self._bytes)
        self.bos_id = vocabulary.bos_id
        self.add_bos = vocabulary.add_bos and vocabulary.bos_id is not None
        ends = (self._special[text] for text in _END_TEXTS if text in self._special)
        self.eos_ids = tuple(dict.fromkeys((*vocabulary.eos_ids, *ends)))
        definition = _without_special(vocabulary, pieces)
        self._encoder = _build(definition, vocabulary.literal)
        continuing = _without_space(definition)
        self.adds_space = definition != continuing
        # Definitions are tens of megabytes as Python objects, so they are not kept.
        self._continuing_encoder = (
            _build(continuing, vocabulary.literal) if self.adds_space else self._encoder
        )

    def encode(self, text: str, *, space: bool = True) -> list[int]:
        """Token ids of a text; no BOS, no special tokens, lone surrogates as U+FFFD.

        `space=False` leaves out the space that SentencePiece-style tokenizers put before a text:
        for the later parts of a prompt.
        """
        clean = _SURROGATE.sub("\ufffd", text)
        encoder = self._encoder if space else self._continuing_encoder
        ids: list[int] = encoder.encode(clean, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, special tokens left out, broken UTF-8 as U+FFFD."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for; b"" for special tokens and ids beyond the vocabulary.

        They may be part of a character.
        """
        return self._bytes[token_id] if 0 <= token_id < len(self._bytes) else b""

    def is_special(self, token_id: int) -> bool:
        """Whether the id is a control token."""
        return token_id in self._special_ids

    def special_id(self, text: str) -> int | None:
        """The id of the control token that is spelt so, None if there is none."""
        return self._special.get(text)

    @property
    def special_tokens(self) -> Mapping[str, int]:
        """All control tokens by their text."""
        return self._special

    def _byte_table(
        self, pieces: Mapping[str, int], added: Sequence[Mapping[str, Any]]
    ) -> list[bytes]:
        literal = {str(token["content"]): int(token["id"]) for token in added}
        size = 1 + max([*pieces.values(), *literal.values(), *self._special_ids], default=-1)
        table = [b""] * size
        convert = _byte_level_bytes if self.kind == "byte-level" else _sentencepiece_bytes
        for piece, token_id in pieces.items():
            table[token_id] = convert(piece)
        for text, token_id in literal.items():
            table[token_id] = text.encode("utf-8", errors="replace")
        for token_id in self._special_ids:
            table[token_id] = b""
        return table


def _pieces(definition: Mapping[str, Any]) -> dict[str, int]:
    model = definition.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict | list):
        raise ModelError("The tokenizer's definition has no vocabulary.", "Fetch the model again.")
    # Definitions of old versions of the library leave the type out where it is BPE.
    kind = model.get("type", "BPE")
    if kind != "BPE" or not isinstance(model["vocab"], dict):
        raise UnsupportedModel(f"Tokenizers of type {kind} are not supported, only BPE.")
    return dict(model["vocab"])


def _kind(definition: Mapping[str, Any]) -> Kind:
    parts = [
        part.get("type")
        for key in ("normalizer", "pre_tokenizer", "decoder")
        for part in flatten(definition.get(key))
    ]
    if "ByteLevel" in parts:
        return "byte-level"
    if definition["model"].get("byte_fallback") or "Metaspace" in parts:
        return "sentencepiece"
    raise UnsupportedModel("The tokenizer is neither byte-level nor SentencePiece-style BPE.")


def flatten(part: Any) -> list[dict[str, Any]]:
    """The members of a (possibly nested) Sequence of normalizers, pre-tokenizers or decoders."""
    if not isinstance(part, dict):
        return []
    for key in ("normalizers", "pretokenizers", "decoders", "processors"):
        if isinstance(part.get(key), list):
            return [member for child in part[key] for member in flatten(child)]
    return [part]


def _without_special(vocabulary: Vocabulary, pieces: Mapping[str, int]) -> dict[str, Any]:
    """The definition with nothing in it that could make a control token out of text.

    Byte-level definitions lose their Unicode normalizer too: bytes must come back as they went in
    (a document in decomposed form stays so).
    """
    definition = dict(vocabulary.definition)
    model = dict(definition["model"])
    unknown = model.get("unk_token")
    hidden = {text for text in vocabulary.special if text in pieces}
    model["merges"] = [
        merge for merge in model.get("merges", ()) if hidden.isdisjoint(_merge_texts(merge))
    ]
    model["vocab"] = {
        text: token_id for text, token_id in pieces.items() if text not in hidden or text == unknown
    }
    # The library numbers added tokens anew unless the model knows them.
    model["vocab"] |= {token["content"]: token["id"] for token in vocabulary.literal}
    definition["model"] = model
    definition["post_processor"] = None
    definition["truncation"] = definition["padding"] = None
    if _kind(vocabulary.definition) == "byte-level":
        kept = [p for p in flatten(definition.get("normalizer")) if p["type"] == "ByteLevel"]
        definition["normalizer"] = kept[0] if kept else None
    return definition


def _merge_texts(merge: Any) -> tuple[str, str, str]:
    """The two parts of a merge and what they make."""
    left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
    return left, right, left + right


def _without_space(definition: dict[str, Any]) -> dict[str, Any]:
    """The definition without the space that is put before a text."""
    changed = dict(definition)
    normalizers = [p for p in flatten(definition.get("normalizer")) if p["type"] != "Prepend"]
    if len(normalizers) != len(flatten(definition.get("normalizer"))):
        changed["normalizer"] = {"type": "Sequence", "normalizers": normalizers}
    members = flatten(definition.get("pre_tokenizer"))
    if any(p["type"] == "Metaspace" and p.get("prepend_scheme") != "never" for p in members):
        changed["pre_tokenizer"] = {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Metaspace",
                    "replacement": p.get("replacement", _SPACE),
                    "prepend_scheme": "never",
                    "split": p.get("split", True),
                }
                if p["type"] == "Metaspace"
                else p
                for p in members
            ],
        }
    return changed


def _build(
    definition: dict[str, Any], literal: Sequence[Mapping[str, Any]]
) -> tokenizers.Tokenizer:
    text = json.dumps({"version": "1.0", **definition, "added_tokens": list(literal)})
    try:
        return tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the library raises bare Exception
        raise ModelError(
            f"The tokenizer's definition cannot be used: {error}.", "Fetch the model again."
        ) from None


def _byte_alphabet() -> dict[int, int]:
    """GPT-2's spelling of bytes as printable characters, character to byte; others to U+FFFF."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in plain]
    table = dict.fromkeys(range(256), 0xFFFF)
    table.update({byte: byte for byte in plain})
    table.update({256 + index: byte for index, byte in enumerate(rest)})
    return table


_ALPHABET = _byte_alphabet()


def _byte_level_bytes(piece: str) -> bytes:
    try:
        return piece.translate(_ALPHABET).encode("latin-1")
    except UnicodeEncodeError:  # not spelt in the byte alphabet: stands for itself
        return piece.encode("utf-8", errors="replace")


def _sentencepiece_bytes(piece: str) -> bytes:
    match = _BYTE_PIECE.fullmatch(piece)
    if match:
        return bytes([int(match[1], 16)])
    return piece.replace(_SPACE, " ").encode("utf-8", errors="replace")
