"""The special tokens by which families of models mark prompts: fill-in-the-middle, repositories.

One table for all who tell about it. Knows no prompt's layout.
"""

from __future__ import annotations

from collections.abc import Mapping

FILL_IN: dict[str, tuple[str, ...]] = {
    "Qwen": ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    "StarCoder": ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    "DeepSeek": ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
    "CodeLlama": ("▁<PRE>", "▁<SUF>", "▁<MID>"),
    "Mistral": ("[PREFIX]", "[SUFFIX]"),
    "Seed-Coder": ("<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>"),
}
"""What stands before the prefix, the suffix and the middle, by family."""

REPOSITORY = ("<|repo_name|>", "<|file_sep|>", "<repo_name>", "<reponame>", "<file_sep>")
"""What stands before a repository's or a file's name where several files make a prompt."""


def fill_in_family(special_tokens: Mapping[str, int]) -> str | None:
    """The family whose fill-in-the-middle tokens a vocabulary has, all of them; None if none."""
    for family, tokens in FILL_IN.items():
        if all(token in special_tokens for token in tokens):
            return family
    return None


def fill_in_tokens(special_tokens: Mapping[str, int]) -> dict[str, int]:
    """A vocabulary's fill-in-the-middle tokens and their ids, {} if it has no whole set."""
    family = fill_in_family(special_tokens)
    return {token: special_tokens[token] for token in FILL_IN[family]} if family else {}


def repository_tokens(special_tokens: Mapping[str, int]) -> dict[str, int]:
    """A vocabulary's tokens for repositories and their ids."""
    return {token: special_tokens[token] for token in REPOSITORY if token in special_tokens}
