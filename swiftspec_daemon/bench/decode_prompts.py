"""The prompts of `swiftspec bench decode`, and where its texts are cut."""

from __future__ import annotations

import importlib.resources
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from swiftspec_daemon.engine import toy
from swiftspec_daemon.models import catalog
from swiftspec_daemon.models.tokenizer import Tokenizer

KINDS = ("code", "edit", "prose")
NEW_TOKENS = 64
GRAM, TIMES = 8, 3
"""A text ends where a sequence of `GRAM` tokens comes for the `TIMES`-th time: a model that goes
round in circles is easy to foresee, and nobody wants its text."""


class Prompt(NamedTuple):
    """A prompt in tokens."""

    kind: str
    name: str
    tokens: list[int]


class _Shipped(msgspec.Struct):
    id: str
    origin: str
    text: str


def load(model: str, kinds: Sequence[str], count: int) -> list[Prompt]:
    """The first `count` shipped prompts of each kind, in the tokens of `model`."""
    data = importlib.resources.files("swiftspec_daemon.bench").joinpath("data/prompts.json")
    shipped = msgspec.json.decode(data.read_bytes(), type=dict[str, list[_Shipped]])
    encode = _encoder(model)
    return [
        Prompt(kind, prompt.id, encode.encode(prompt.text))
        for kind in kinds
        for prompt in shipped[kind][:count]
    ]


class _ToyTokenizer:
    def encode(self, text: str) -> list[int]:
        return toy.encode(text.encode())


def _encoder(model: str) -> Tokenizer | _ToyTokenizer:
    if model.startswith(toy.PREFIX):
        return _ToyTokenizer()
    return catalog.open_tokenizer(catalog.resolve(model))


def cut(tokens: Sequence[int]) -> int:
    """How many of a text's tokens come before it repeats itself for the `TIMES`-th time."""
    seen: dict[tuple[int, ...], int] = {}
    for start in range(len(tokens) - GRAM + 1):
        gram = tuple(tokens[start : start + GRAM])
        seen[gram] = seen.get(gram, 0) + 1
        if seen[gram] == TIMES:
            return start
    return len(tokens)
