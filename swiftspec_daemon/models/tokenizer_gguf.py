"""Tokenizers rebuilt from GGUF metadata (`tokenizer.ggml.*`).

A GGUF file names its pre-tokenizer (how text is cut into words before merging) by a short name,
`tokenizer.ggml.pre`; the patterns here are those that the models' own tokenizers state. Byte-level
BPE ("gpt2") and SentencePiece BPE with scores ("llama"); others are refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from swiftspec_daemon.errors import ModelError, UnsupportedModel
from swiftspec_daemon.models.gguf_format import GGUFFile
from swiftspec_daemon.models.tokenizer import Tokenizer, Vocabulary, is_marker

_UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 2, 3, 4, 5, 6
_SPACE = "\u2581"

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_TAIL}"
_QWEN2 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_TAIL}"
_SEED_CODER = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}")
# The model lists its cased letters one range after the other; the Unicode classes name the same
# letters but for those that Unicode added since.
_DEEPSEEK_LLM = (
    r"[\r\n]",
    r"\s?[\p{Lu}\p{Ll}\p{Lt}]+",
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
    r"\s+$",
    _CJK,
    r"\p{N}+",
)
_UNNAMED = (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")

PATTERNS: Mapping[str, tuple[str, ...]] = {
    "default": _UNNAMED,
    **dict.fromkeys(("gpt-2", "gpt2", "olmo", "mpt", "jais", "phi-2"), (_GPT2,)),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "mellum2"),
        (r"\p{N}", _GPT2),
    ),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "smaug-bpe", "dbrx"), (_LLAMA3,)),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2"), (_QWEN2,)),
    "seed-coder": (_SEED_CODER,),
    "tekken": (_TEKKEN,),
    "deepseek-coder": _DEEPSEEK_CODER,
    "deepseek-llm": _DEEPSEEK_LLM,
}
"""Patterns of each pre-tokenizer, applied one after the other; a match stands alone."""

# Words that are in the vocabulary are taken whole, without merging; and BOS comes first.
_WHOLE_WORDS = frozenset({"llama-bpe", "llama3", "llama-v3", "tekken"})


def tokenizer_from_gguf(file: GGUFFile) -> Tokenizer:
    """The tokenizer of a GGUF file. Raises ModelError, UnsupportedModel."""
    model = file.metadata.get("tokenizer.ggml.model")
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise ModelError(f"{file.path.name} has no vocabulary.", "Use a complete GGUF file.")
    types = _types(file, len(tokens))
    if model == "gpt2":
        definition, pre = _byte_level(file, tokens)
        add_bos = pre in _WHOLE_WORDS
    elif model == "llama":
        definition, add_bos = _sentencepiece(file, tokens, types), True
    else:
        raise UnsupportedModel(
            f"{file.path.name} has a tokenizer of type {model}, which is not supported.",
            "Use the model's hub-format folder.",
        )
    special = _of_types(tokens, types, (_CONTROL, _UNKNOWN, _UNUSED))
    added = _of_types(tokens, types, (_USER_DEFINED,))
    special |= {text: i for text, i in added.items() if is_marker(text)}
    stated = file.metadata.get("tokenizer.ggml.add_bos_token")
    return Tokenizer(
        Vocabulary(
            definition=definition,
            special=special,
            literal=[_added(text, i) for text, i in added.items() if text not in special],
            bos_id=_id(file, "bos", len(tokens)),
            add_bos=add_bos if stated is None else bool(stated),
            eos_ids=tuple(
                found
                for kind in ("eos", "eot", "eom")
                if (found := _id(file, kind, len(tokens))) is not None
            ),
        )
    )


def _types(file: GGUFFile, count: int) -> list[int]:
    types = file.metadata.get("tokenizer.ggml.token_type")
    if types is None:
        return [1] * count
    if not isinstance(types, np.ndarray) or len(types) != count:
        raise ModelError(f"{file.path.name}: token_type does not fit the vocabulary.")
    result: list[int] = types.tolist()
    return result


def _of_types(tokens: list[str], types: list[int], wanted: tuple[int, ...]) -> dict[str, int]:
    return {
        token: index
        for index, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind in wanted
    }


def _added(text: str, token_id: int) -> dict[str, Any]:
    return {
        "id": token_id, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
        "normalized": False, "special": False,
    }  # fmt: skip


def _id(file: GGUFFile, kind: str, count: int) -> int | None:
    value = file.metadata.get(f"tokenizer.ggml.{kind}_token_id")
    return value if isinstance(value, int) and 0 <= value < count else None


def _byte_level(file: GGUFFile, tokens: list[str]) -> tuple[dict[str, Any], str]:
    pre = file.metadata.get("tokenizer.ggml.pre", "default")
    if pre not in PATTERNS:
        raise UnsupportedModel(
            f"{file.path.name} names the pre-tokenizer {pre}, which is not known.",
            "Use the model's hub-format folder.",
        )
    merges = file.metadata.get("tokenizer.ggml.merges")
    if not isinstance(merges, list) or not all(
        isinstance(merge, str) and " " in merge for merge in merges
    ):
        raise ModelError(f"{file.path.name} has no list of merges.", "Use a complete GGUF file.")
    splits = [
        {"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated", "invert": False}
        for p in PATTERNS[pre]
    ]
    byte_level = {
        "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False,
    }  # fmt: skip
    definition = {
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*splits, byte_level]},
        "decoder": byte_level,
        "model": _bpe(tokens, merges, ignore_merges=pre in _WHOLE_WORDS),
    }
    return definition, pre


def _sentencepiece(file: GGUFFile, tokens: list[str], types: list[int]) -> dict[str, Any]:
    """BPE whose merges follow from the scores: of two neighbours that make a piece, the pair that
    makes the piece of the highest score is merged first (SentencePiece's BPE)."""
    scores = file.metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, np.ndarray) or len(scores) != len(tokens):
        raise ModelError(f"{file.path.name} has no scores for its vocabulary.")
    merges = file.metadata.get("tokenizer.ggml.merges")
    if not isinstance(merges, list):
        plain = _of_types(tokens, types, (1, _USER_DEFINED))
        merges = _merges_from_scores(plain, scores.tolist())
    normalizers: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    ]
    if file.metadata.get("tokenizer.ggml.add_space_prefix", True):
        normalizers.insert(0, {"type": "Prepend", "prepend": _SPACE})
    unknown = next((t for t, kind in zip(tokens, types, strict=True) if kind == _UNKNOWN), None)
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": None,
        "decoder": {"type": "ByteFallback"},
        "model": _bpe(tokens, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True),
    }


def _merges_from_scores(plain: Mapping[str, int], scores: list[float]) -> list[list[str]]:
    found = [
        (-scores[index], plain[left], plain[right], left, right)
        for piece, index in plain.items()
        for left, right in _splits(piece)
        if left in plain and right in plain
    ]
    return [[left, right] for *_, left, right in sorted(found)]


def _splits(piece: str) -> Iterable[tuple[str, str]]:
    return ((piece[:cut], piece[cut:]) for cut in range(1, len(piece)))


def _bpe(tokens: list[str], merges: list[Any], **options: Any) -> dict[str, Any]:
    return {
        "type": "BPE",
        "vocab": {token: index for index, token in enumerate(tokens)},
        "merges": merges,
        **options,
    }
