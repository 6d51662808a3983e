"""Finds the model in the settings and the tokenizer that belongs to it. Knows no prompt."""

from __future__ import annotations

from swiftspec_daemon.completion.tokenizer import Tokenizer
from swiftspec_daemon.engine import toy
from swiftspec_daemon.models import catalog, default


def load_tokenizer(target: str) -> Tokenizer:
    """Blocking, up to a second. Raises ModelError, or UsageError for a toy model's options."""
    if target.startswith(toy.PREFIX):
        return ToyTokenizer(toy.parse(target).vocab)
    return catalog.open_tokenizer(catalog.resolve(target))


def check_model(target: str) -> None:
    """See that the model's files are there, or are the default one's, which are fetched.

    Blocking, well below a second. Raises ModelError, or UsageError for a toy model's options.
    """
    if target.startswith(toy.PREFIX):
        toy.parse(target)
    elif target != default.NAME or default.is_there():
        catalog.resolve(target)


class ToyTokenizer:
    """Bytes to the ids of the engine's toy model and back."""

    add_bos = True
    bos_id = toy.BOS
    eos_ids = (toy.EOS,)

    def __init__(self, vocab: int) -> None:
        self._bytes = toy.token_bytes(vocab)

    def encode(self, text: str, *, space: bool = True) -> list[int]:
        return [toy.FIRST_BYTE + byte for byte in text.encode("utf-8", "replace")]

    def token_bytes(self, token_id: int) -> bytes:
        return self._bytes[token_id]

    def is_special(self, token_id: int) -> bool:
        return token_id in (toy.BOS, toy.EOS)

    def special_id(self, text: str) -> int | None:
        return None
