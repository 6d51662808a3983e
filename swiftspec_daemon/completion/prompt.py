"""From the text before the cursor to the token ids that a model continues, with token healing.

The layout is the prefix alone: right for every model, and all there is for models without
fill-in-the-middle tokens. Where the vocabulary has StarCoder's `<file_sep>` the file's name goes
before it, as in that model's data: without it a model of the SmolLM2 family often takes the first
lines of a new file for prose. Knows no engine and no document beyond its snapshot.

Token healing: a prompt that ends inside a word or in white space ends at a token border that the
model has rarely seen, and is continued badly. So white space at the end, and the last token where
it may be a part of one, are cut off; the engine makes the new text start with their bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from swiftspec_daemon.completion.snapshot import Snapshot, plain
from swiftspec_daemon.completion.tokenizer import CachedEncoder, Tokenizer

CHARACTERS_PER_TOKEN = 2
"""At least, in most source code; denser text gets smaller windows."""
_SMALLEST_WINDOW = 16
_LONGEST_BLANK = 128
"""White space, in characters, that is left to the model to write again."""
_BLANKS = " \t\n"


@dataclass(frozen=True, slots=True)
class Prompt:
    """What an engine is asked to continue."""

    ids: list[int]
    required: bytes
    """What the new text must start with, up to the cursor."""
    healing_tokens: int
    """New tokens that `required` may take."""


class PromptBuilder:
    """Makes prompts for one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._encoder = CachedEncoder(tokenizer)
        self._start = (
            [tokenizer.bos_id] if tokenizer.add_bos and tokenizer.bos_id is not None else []
        )

    def build(self, snapshot: Snapshot, budget: int) -> Prompt:
        """A prompt of at most `budget` tokens (at least 2).

        The window of text has the largest of some fixed sizes that the text's density allows, so
        that its start stays the same from key to key.
        """
        room = budget - 1
        size = CHARACTERS_PER_TOKEN * room
        window = snapshot.window(size)
        head = self._head(snapshot.name)
        prompt = self._prompt(window, head)
        density = len(prompt.ids) / max(1, len(window))
        if len(prompt.ids) <= budget and (snapshot.cursor <= size or size * density <= room):
            return prompt
        # By density, not by what fits: a window that fits by chance would move at the next key.
        while size * density > room and size > _SMALLEST_WINDOW:
            size //= 2
        prompt = self._prompt(snapshot.window(size), head)
        while len(prompt.ids) > budget and size > _SMALLEST_WINDOW:
            size //= 2
            prompt = self._prompt(snapshot.window(size), head)
        return Prompt(prompt.ids[-budget:], prompt.required, prompt.healing_tokens)

    def cheap(self, snapshot: Snapshot, budget: int) -> bool:
        """Whether `build` is quick enough for an event loop."""
        window = snapshot.window(CHARACTERS_PER_TOKEN * (budget - 1))
        return self._encoder.cheap(_kept(window))

    def _head(self, name: str) -> list[int]:
        """What stands before the text: BOS where the model wants it, and the file's name."""
        separator = self._tokenizer.special_id("<file_sep>")
        if separator is None or not name:
            return self._start
        return [*self._start, separator, *self._tokenizer.encode(plain(name) + "\n", space=False)]

    def _prompt(self, window: str, head: list[int]) -> Prompt:
        kept = _kept(window)
        blanks = window[len(kept) :]
        ids = self._encoder.encode(kept)
        required = blanks.encode()
        if ids and self._may_be_part(kept, blanks):
            last = self._tokenizer.token_bytes(ids[-1])
            # Not so where a tokenizer changes the text.
            if last and kept.encode().endswith(last):
                del ids[-1]
                required = last + required
        healing_tokens = 0
        if required:
            healing_tokens = 2 + len(self._tokenizer.encode(blanks, space=False))
        return Prompt(self._started(ids, head), required, healing_tokens)

    def _may_be_part(self, kept: str, blanks: str) -> bool:
        """The last token of `kept` may be the beginning of a longer one."""
        if not blanks:
            return True
        return self._encoder.joins_line_ends and not kept[-1].isalnum()

    def _started(self, ids: list[int], head: list[int]) -> list[int]:
        if ids or head:
            return head + ids
        tokenizer = self._tokenizer
        border = tokenizer.special_id("<|endoftext|>")
        if border is None:
            border = tokenizer.bos_id
        if border is None and tokenizer.eos_ids:
            border = tokenizer.eos_ids[0]
        return [border] if border is not None else tokenizer.encode("\n")


def _kept(window: str) -> str:
    """`window` without the white space at its end, of which at most `_LONGEST_BLANK` is cut."""
    return window[: max(len(window.rstrip(_BLANKS)), len(window) - _LONGEST_BLANK)]
