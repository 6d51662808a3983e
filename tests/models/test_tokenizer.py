"""Tokenizers of each kind, small ones trained here, against transformers' on the same files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from swiftspec_daemon.errors import ModelError, ModelNotFound, UnsupportedModel
from swiftspec_daemon.models.gguf_format import GGUFFile
from swiftspec_daemon.models.tokenizer import Tokenizer
from swiftspec_daemon.models.tokenizer_gguf import tokenizer_from_gguf
from swiftspec_daemon.models.tokenizer_hub import tokenizer_from_folder

TEXTS = [
    "", "a", " ", "\n", "\r\n", "\t\t", "    return x\n", "def fibonacci(n):\n    if n < 2:\n",
    "for (int i = 0; i < 100; ++i) { sum += a[i] * 2.5e-3; }\r\n\r\n",
    "fn main() -> Result<(), Box<dyn Error>> {\n\tprintln!(\"{}\", 12345);\n}",
    "SELECT * FROM users WHERE id=1234567 AND name LIKE '%o''brien%';",
    "x  1", "x   123   456", "a\n\n\n  b", "trailing   ", "   leading", "I'll can't WE'RE",
    "größe = 'äöü' # naïve café", "你好，世界！ import 数据", "こんにちは 한국어 мир",
    "🎉🧑‍💻 emoji 👍🏽", "e\u0301 decomposed", "\u200b\ufeff\u00a0", "１２３ ①②③ ¼½ ٣٤",
    "_x__y___z", "a.b.c->d::e", "...!!!???", "'''\"\"\"```", "\x00\x01\x7f",
]  # fmt: skip
CORPUS = [text for text in TEXTS for _ in range(3)] + [
    "the quick brown fox returns self and prints 1 2 3 12 123", "def return self import print",
]  # fmt: skip
SPECIALS = ["<|endoftext|>", "<|fim_prefix|>", "<|im_end|>"]

GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def split(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(pattern), "isolated")


# As the models' own tokenizer.json files have them.
PRE_TOKENIZERS: dict[str, pre_tokenizers.PreTokenizer] = {
    "gpt-2": GPT2,
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), GPT2]),
    "llama-bpe": pre_tokenizers.Sequence([split(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), BYTES]),
    "qwen2": pre_tokenizers.Sequence([split(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"), BYTES]),
    "deepseek-coder": pre_tokenizers.Sequence([
        split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split("[一-龥ࠀ-一가-퟿]+"),
        pre_tokenizers.Digits(individual_digits=True), BYTES]),
}  # fmt: skip

Folder = Callable[..., Path]


def byte_level(name: str) -> tokenizers.Tokenizer:
    """A small byte-level BPE with the pre-tokenizer of that name."""
    tokenizer = tokenizers.Tokenizer(models.BPE(ignore_merges=name == "llama-bpe"))
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[name]
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def sentencepiece(*, legacy: bool) -> tokenizers.Tokenizer:
    """A small SentencePiece-style BPE with byte pieces, its space put as old or new files do."""
    base = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=base, show_progress=False)
    tokenizer.train_from_iterator(["def return self import print the quick fox"] * 9, trainer)
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = [t for t in content["added_tokens"] if t["id"] < 3]
    content["model"]["byte_fallback"] = True
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(content))
    if legacy:
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
        tokenizer.pre_tokenizer = None
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Saves a tokenizer as transformers does and returns the folder."""

    def make(tokenizer: tokenizers.Tokenizer, **options: Any) -> Path:
        path = tmp_path_factory.mktemp("tokenizer")
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, **options).save_pretrained(path)
        return path

    return make


def oracle(path: Path) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast.from_pretrained(path)


def ids_by_transformers(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
    return ids


def joined(tokenizer: Tokenizer, text: str) -> bytes:
    return b"".join(tokenizer.token_bytes(i) for i in tokenizer.encode(text))


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_byte_level_as_transformers(name: str, folder: Folder) -> None:
    path = folder(byte_level(name))
    ours, theirs = tokenizer_from_folder(path), oracle(path)
    assert ours.kind == "byte-level"
    assert ours.vocab_size == len(theirs)
    assert not ours.adds_space
    for text in TEXTS:
        assert ours.encode(text) == ids_by_transformers(theirs, text), repr(text)
        assert joined(ours, text) == text.encode()
        assert ours.decode(ours.encode(text)) == text


@pytest.mark.parametrize("legacy", [True, False])
def test_sentencepiece_as_transformers(legacy: bool, folder: Folder) -> None:
    path = folder(sentencepiece(legacy=legacy), bos_token="<s>", eos_token="</s>")
    ours, theirs = tokenizer_from_folder(path), oracle(path)
    assert ours.kind == "sentencepiece"
    assert ours.adds_space
    assert (ours.bos_id, ours.add_bos, ours.eos_ids) == (1, True, (2,))
    for text in TEXTS:
        assert ours.encode(text) == ids_by_transformers(theirs, text), repr(text)
        later = ours.encode(text, space=False)
        assert b"".join(map(ours.token_bytes, later)) == text.encode()
    assert joined(ours, "return x") == b" return x"
    assert ours.token_bytes(3 + 0xC3) == b"\xc3"
    assert ours.token_bytes(1) == b""


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_gguf_gives_the_same_ids(name: str, folder: Folder, tmp_path: Path) -> None:
    trained = byte_level(name)
    model = json.loads(trained.to_str())["model"]
    vocab = sorted(model["vocab"], key=model["vocab"].get)

    def vocabulary(writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(name)
        writer.add_token_list(vocab)
        writer.add_token_types([3 if token in SPECIALS else 1 for token in vocab])
        writer.add_token_merges([" ".join(merge) for merge in model["merges"]])
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(2)

    ours = tokenizer_from_gguf(write(tmp_path, vocabulary))
    theirs = oracle(folder(trained))
    for text in TEXTS:
        assert ours.encode(text) == ids_by_transformers(theirs, text), repr(text)
    assert ours.eos_ids == (2, 0)
    assert ours.add_bos == (name == "llama-bpe")
    assert ours.special_tokens == {token: i for i, token in enumerate(SPECIALS)}


def test_sentencepiece_gguf_by_scores(folder: Folder, tmp_path: Path) -> None:
    """Scores in the order of the merges, as SentencePiece's BPE trainer writes them."""
    trained = sentencepiece(legacy=True)
    model = json.loads(trained.to_str())["model"]
    vocab = sorted(model["vocab"], key=model["vocab"].get)
    rank = {"".join(merge): index for index, merge in reversed([*enumerate(model["merges"])])}

    def vocabulary(writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model("llama")
        writer.add_token_list(vocab)
        writer.add_token_scores([-float(rank.get(token, 10_000)) for token in vocab])
        writer.add_token_types([2, 3, 3, *[6] * 256, *[1] * (len(vocab) - 259)])
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)

    ours = tokenizer_from_gguf(write(tmp_path, vocabulary))
    theirs = oracle(folder(trained))
    for text in TEXTS:
        assert ours.encode(text) == ids_by_transformers(theirs, text), repr(text)
    assert (ours.bos_id, ours.add_bos, ours.eos_ids, ours.adds_space) == (1, True, (2,), True)


def write(folder: Path, vocabulary: Callable[[gguf.GGUFWriter], None]) -> GGUFFile:
    writer = gguf.GGUFWriter(folder / "x.gguf", "llama")
    vocabulary(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return GGUFFile(folder / "x.gguf")


@pytest.fixture(scope="module")
def smollm(folder: Folder) -> Tokenizer:
    return tokenizer_from_folder(folder(byte_level("smollm"), eos_token="<|im_end|>"))


@settings(max_examples=300, deadline=None)
@given(text=st.text())
def test_bytes_come_back(text: str, smollm: Tokenizer) -> None:
    clean = text.encode("utf-8", "replace").decode("utf-8")
    assert joined(smollm, clean) == clean.encode()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(parts=st.lists(st.sampled_from([*SPECIALS, "<|", "|>", " ", "a", "fim_prefix", "\n"])))
def test_special_tokens_are_never_made_of_text(parts: list[str], smollm: Tokenizer) -> None:
    text = "".join(parts)
    ids = smollm.encode(text)
    assert not any(smollm.is_special(i) for i in ids)
    assert b"".join(map(smollm.token_bytes, ids)) == text.encode()


def test_special_tokens_are_found_by_name(smollm: Tokenizer) -> None:
    assert smollm.special_id("<|fim_prefix|>") == 1
    assert smollm.special_id("return") is None
    assert smollm.token_bytes(1) == b""
    assert smollm.decode([1, *smollm.encode("x"), 0]) == "x"
    assert smollm.eos_ids == (2, 0)
    assert smollm.bos_id is None
    assert not smollm.add_bos
    assert smollm.token_bytes(-1) == smollm.token_bytes(10**6) == b""


def test_a_special_token_in_the_vocabulary_of_a_sentencepiece_model(folder: Folder) -> None:
    tokenizer = tokenizer_from_folder(folder(sentencepiece(legacy=True), bos_token="<s>"))
    for text in ("<s>", "</s>", "a<s>b", "<unk>"):
        ids = tokenizer.encode(text, space=False)
        assert not {0, 1, 2} & set(ids)
        assert tokenizer.decode(ids) == text


def test_markers_that_are_declared_as_ordinary_tokens(folder: Folder) -> None:
    """DeepSeek's and Qwen's fill-in markers are; runs of spaces stay ordinary text."""
    trained = byte_level("smollm")
    trained.add_tokens(["<｜fim▁hole｜>", "<think>", "        "])
    path = folder(trained)
    ours, theirs = tokenizer_from_folder(path), oracle(path)
    hole, spaces = len(theirs) - 3, len(theirs) - 1
    assert ours.special_id("<｜fim▁hole｜>") == hole
    assert ours.is_special(hole)
    text = "if x:\n        y"
    assert spaces in ours.encode(text)
    assert ours.encode(text) == ids_by_transformers(theirs, text)
    assert joined(ours, text) == text.encode()
    marker = "a <｜fim▁hole｜> <think>"
    assert ours.decode(ours.encode(marker)) == marker
    assert not any(map(ours.is_special, ours.encode(marker)))


def test_lone_surrogates_become_replacement_characters(smollm: Tokenizer) -> None:
    assert smollm.decode(smollm.encode("a\ud800b\udfff")) == "a\ufffdb\ufffd"


def test_half_characters_decode_to_replacement_characters(smollm: Tokenizer) -> None:
    ids = smollm.encode("\U0001f9ff")
    assert len(ids) > 1
    assert "\ufffd" in smollm.decode(ids[:1])


def test_text_stays_in_the_form_it_has(folder: Folder) -> None:
    """Qwen's tokenizers normalise to NFC; bytes must come back as they went in."""
    trained = byte_level("qwen2")
    trained.normalizer = normalizers.NFC()
    tokenizer = tokenizer_from_folder(folder(trained))
    assert joined(tokenizer, "e\u0301") == "e\u0301".encode()


@pytest.mark.parametrize("unit", ["a", " ", "x = 1; ", "\n", "é你"])
def test_long_text(unit: str, smollm: Tokenizer) -> None:
    text = unit * (200_000 // len(unit))
    assert joined(smollm, text) == text.encode()


def test_missing_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"tokenizer\.json"):
        tokenizer_from_folder(tmp_path)
    file = tmp_path / "tokenizer.json"
    for content in ("{", "[]", "{}", '{"model": {"type": "BPE", "vocab": 3}}'):
        file.write_text(content)
        with pytest.raises(ModelError):
            tokenizer_from_folder(tmp_path)
    file.write_text('{"model": {"type": "WordPiece", "vocab": {"a": 0}}}')
    with pytest.raises(UnsupportedModel, match="WordPiece"):
        tokenizer_from_folder(tmp_path)
    file.write_text('{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}')
    with pytest.raises(UnsupportedModel, match="neither byte-level"):
        tokenizer_from_folder(tmp_path)
    merges = '[["a", "b"]]'
    file.write_text(
        '{"pre_tokenizer": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": {"a": 0}, '
        f'"merges": {merges}}}}}'
    )
    with pytest.raises(ModelError):
        tokenizer_from_folder(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "bert"}, "type bert"),
        ({"pre": "martian"}, "pre-tokenizer martian"),
        ({"merges": None}, "no list of merges"),
        ({"tokens": None}, "no vocabulary"),
    ],
)
def test_gguf_vocabularies_that_cannot_be_used(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    values = {"model": "gpt2", "pre": "gpt-2", "merges": ["a b"], "tokens": ["a", "b", "ab"]}
    values |= change

    def vocabulary(writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model(values["model"])
        writer.add_tokenizer_pre(values["pre"])
        if values["tokens"]:
            writer.add_token_list(values["tokens"])
        if values["merges"]:
            writer.add_token_merges(values["merges"])

    with pytest.raises(ModelError, match=message):
        tokenizer_from_gguf(write(tmp_path, vocabulary))
