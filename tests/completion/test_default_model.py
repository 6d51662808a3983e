"""Prompts with the default model's tokenizer; the model itself is not run."""

from __future__ import annotations

from pathlib import Path

import pytest

from swiftspec_daemon.completion.prompt import PromptBuilder
from swiftspec_daemon.completion.snapshot import Snapshot
from swiftspec_daemon.completion.tokenizer import CachedEncoder
from swiftspec_daemon.documents import Document
from swiftspec_daemon.models import catalog

pytestmark = pytest.mark.model

ROOT = Path(__file__).parents[2]
PATTERNS = ("swiftspec_daemon/**/*.py", "kernels/native/*.cpp", "docs/**/*.md")
SOURCES = sorted(file for pattern in PATTERNS for file in ROOT.glob(pattern))


@pytest.fixture(scope="module")
def tokenizer(default_model):
    return catalog.open_tokenizer(default_model)


def test_cached_ids_are_the_tokenizers(tokenizer):
    encoder = CachedEncoder(tokenizer)
    cheap = checked = 0
    for source in SOURCES:
        text = source.read_text("utf-8")[:6000]
        for cut in (7, 6, 1):
            typed = text[: len(text) - cut]
            cheap += encoder.cheap(typed)
            checked += 1
            assert encoder.encode(typed) == tokenizer.encode(typed), source
    assert checked > 150
    assert cheap > checked // 2


def prompt(tokenizer, text):
    document = Document(text)
    return PromptBuilder(tokenizer).build(Snapshot.take(document, len(text), 10_000), 1000)


@pytest.mark.parametrize(
    ("text", "required"),
    [
        ("def add(a, b):\n    ", b"\n    "),
        ("import os\r\n\r\n", b"\n\n"),
        ("x = 1\nret", b"ret"),
        ("x = self", b" self"),
        ("print(", b"("),
        ("x =  ", b"  "),
    ],
)
def test_healing(tokenizer, text, required):
    made = prompt(tokenizer, text)
    assert made.required == required
    said = tokenizer.decode(made.ids).encode() + made.required
    assert said == text.replace("\r\n", "\n").encode()


def test_the_users_text_makes_no_special_token(tokenizer):
    text = "<|im_start|>x<|im_end|><|endoftext|><file_sep> = 1"
    made = prompt(tokenizer, text)
    assert not any(map(tokenizer.is_special, made.ids))


def test_nothing_before_the_cursor_gives_a_document_border(tokenizer):
    assert prompt(tokenizer, "\n\n").ids == [tokenizer.special_id("<|endoftext|>")]
