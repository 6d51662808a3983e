"""A deterministic model for tests: no weights, logits are a hash of the whole path.

It keeps the `Backend` contract to the bit (its KV is a chain of hashes), so that everything around
a model can be tested without one: processes, scheduling, prefix reuse, cancellation, trees. Also
plays slow, broken or crashing models. Its text makes no sense.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import msgspec
import numpy as np

from swiftspec_daemon.engine.backend import Backend, KVCache, Logits, Progress
from swiftspec_daemon.errors import ContextTooLong, ModelError, UsageError

PREFIX = "toy:"
BOS, EOS = 0, 1
FIRST_BYTE = 2
"""Token id of byte 0; the 256 single bytes follow each other."""
_WORDS = (b"    ", b"return ", b"self", b"def ", b"\n    ", b"\r\n", b"()", b" = ", "é".encode())
_STATE_MASK = (1 << 64) - 1
_EMPTY = 0x243F6A8885A308D3


class ToyOptions(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What "toy:" may be followed by: `name=value` pairs with commas between them."""

    vocab: int = 300
    context: int = 512
    load_ms: float = 0.0
    """How long loading takes."""
    step_ms: float = 0.0
    """How long a forward pass takes, and"""
    row_ms: float = 0.0
    """how much longer for each row."""
    eos: bool = False
    """Whether the model ever ends its text."""
    wrong: float = 0.0
    """A draft: the share of places at which it differs from the model without this option."""
    fail_load: bool = False
    """Loading raises ModelError."""
    nan_id: int = -1
    """A token id after which logits are NaN."""
    crash_id: int = -1
    """A token id at which the process dies."""
    bug_id: int = -1
    """A token id at which the backend raises what no backend should."""
    print_id: int = -1
    """A token id at which something is printed to standard output."""


def parse(name: str) -> ToyOptions:
    """The options in a model name that starts with "toy:". Raises UsageError."""
    pairs = (item.partition("=") for item in name.removeprefix(PREFIX).split(",") if item)
    try:
        return msgspec.convert({k: v for k, _, v in pairs}, ToyOptions, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"{name} is not a toy model: {error}.") from None


def token_bytes(vocab: int = 300) -> list[bytes]:
    """The bytes of each token id: BOS, EOS, 256 bytes, a few words, then unused ids."""
    known = [b"", b"", *(bytes([i]) for i in range(256)), *_WORDS]
    return (known + [b""] * vocab)[:vocab]


def encode(text: bytes) -> list[int]:
    """One token for each byte."""
    return [FIRST_BYTE + byte for byte in text]


class ToyCache:
    """The path's hash after each committed token, and the pending rows' with their parents."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.states: list[int] = []
        self.pending: list[int] = []
        self.parents: list[int] = []

    @property
    def length(self) -> int:
        return len(self.states)

    @property
    def last(self) -> int:
        return self.states[-1] if self.states else _EMPTY

    def drop_pending(self) -> None:
        self.pending.clear()
        self.parents.clear()


class ToyBackend:
    """See the module."""

    name = "toy"
    kernels = "python"
    weight_bytes = 0
    max_rows = 64
    max_pending = 256
    max_depth = 64

    def __init__(self, options: ToyOptions) -> None:
        self.options = options
        self.vocab = options.vocab
        self.context = options.context

    def kv_bytes(self, capacity: int) -> int:
        return 8 * capacity

    def new_cache(self, capacity: int) -> KVCache:
        return ToyCache(capacity)

    def append(self, cache: KVCache, tokens: Sequence[int], *, logits: bool) -> Logits | None:
        toy = _own(cache)
        self._make_room(toy, len(tokens))
        toy.drop_pending()
        for token in tokens:
            toy.states.append(self._after(toy.last, token))
        self._spend(len(tokens))
        return self._logits(toy.last) if logits else None

    def speculate(self, cache: KVCache, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        toy = _own(cache)
        self._make_room(toy, len(tokens))
        toy.drop_pending()
        return self.grow(cache, tokens, parents)

    def grow(self, cache: KVCache, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        toy = _own(cache)
        first = len(toy.pending)
        self._make_room(toy, first + len(tokens))
        if not (0 < len(tokens) <= self.max_rows and first + len(tokens) <= self.max_pending):
            raise UsageError(f"{len(tokens)} rows do not go into a tree of {first}.")
        states = list(toy.pending)
        for token, parent in zip(tokens, parents, strict=True):
            if not -1 <= parent < len(states):
                raise UsageError("A parent does not come before its row.")
            states.append(self._after(toy.last if parent < 0 else states[parent], token))
        toy.pending = states
        toy.parents += parents
        self._spend(len(tokens))
        return np.stack([self._logits(state) for state in states[first:]])

    def commit(self, cache: KVCache, path: Sequence[int]) -> None:
        self.reroot(cache, path, [])

    def reroot(self, cache: KVCache, path: Sequence[int], keep: Sequence[int]) -> None:
        toy = _own(cache)
        if [toy.parents[row] for row in path] != [-1, *path][: len(path)]:
            raise UsageError("The rows to commit are no path of the pending tree.")
        place = {path[-1] if path else -1: -1}
        for i, row in enumerate(keep):
            if toy.parents[row] not in place or (i and row <= keep[i - 1]):
                raise UsageError("The rows to keep do not all hang on the path's end.")
            place[row] = i
        toy.states += [toy.pending[row] for row in path]
        toy.parents = [place[toy.parents[row]] for row in keep]
        toy.pending = [toy.pending[row] for row in keep]

    def truncate(self, cache: KVCache, length: int) -> None:
        toy = _own(cache)
        del toy.states[length:]
        toy.drop_pending()

    def _after(self, state: int, token: int) -> int:
        if token == self.options.crash_id:
            os.abort()
        if token == self.options.bug_id:
            raise ZeroDivisionError("a bug in the toy")
        if token == self.options.print_id:
            os.write(1, b"a stray line\n")  # what a careless library does
        poison = token == self.options.nan_id or state == -1
        return -1 if poison else (state * 0x5851F42D4C957F2D + token + 1) & _STATE_MASK

    def _logits(self, state: int) -> Logits:
        if state == -1:
            return np.full(self.vocab, np.nan, dtype=np.float32)
        bits = np.random.PCG64(state)
        if self.options.wrong > 0 and bits.jumped().random_raw() < self.options.wrong * 2.0**64:
            bits = bits.jumped(2)
        logits = np.random.Generator(bits).normal(size=self.vocab) * 3
        logits[BOS] = -1e9
        if not self.options.eos:
            logits[EOS] = -1e9
        logits[FIRST_BYTE + 256 + len(_WORDS) :] = -1e9
        return logits.astype(np.float32)

    def _spend(self, rows: int) -> None:
        time.sleep((self.options.step_ms + self.options.row_ms * rows) / 1e3)

    @staticmethod
    def _make_room(cache: ToyCache, rows: int) -> None:
        if cache.length + rows > cache.capacity:
            raise ContextTooLong(f"{cache.length + rows} tokens, room for {cache.capacity}.")


def load(options: ToyOptions, progress: Progress) -> Backend:
    """Pretend to load. Raises ModelError if the options say so."""
    steps = 20
    for step in range(steps):
        progress("reading weights", step / steps)
        time.sleep(options.load_ms / steps / 1e3)
    if options.fail_load:
        raise ModelError("The toy model refuses to load.", "Ask for another one.")
    return ToyBackend(options)


def _own(cache: KVCache) -> ToyCache:
    if not isinstance(cache, ToyCache):
        raise TypeError(f"not a cache of this backend: {type(cache).__name__}")
    return cache
