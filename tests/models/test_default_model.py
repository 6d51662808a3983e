"""The default model: our tokenizer, weights and reference forward against transformers'."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import pre_tokenizers

from swiftspec_daemon.models import catalog, default, inspection
from swiftspec_daemon.models.reference import ReferenceModel
from swiftspec_daemon.models.tokenizer import Tokenizer

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

TOLERANCE = 5e-4
"""Largest difference of a logit; they reach about 30."""
SNIPPET = 'def mean(values: list[float]) -> float:\n    """The arithmetic mean."""\n    return'
CONTINUED = 32
TEXTS = [
    "", "a", " ", "\n\n", "\r\n", "\t", "    return x\n", "x = [1, 22, 333]  # 4444\r\n",
    "for (int i = 0; i < 100; ++i) { sum += a[i] * 2.5e-3; }", "a  1", "a   12 b", "\n  7",
    "fn main() -> Result<(), Box<dyn Error>> {\n\tprintln!(\"{}\", 12345);\n}",
    "größe = 'äöü' # naïve café", "你好，世界！ import 数据", "こんにちは 한국어 мир", "e\u0301",
    "🎉🧑‍💻 emoji 👍🏽", "\u200b\ufeff\u00a0", "１２３ ①②③ ¼½ ٣٤", "_x__y___z", "...!!!???",
    "I'll can't WE'RE", "SELECT * FROM t WHERE id=1234567;", "<div class=\"a\">&nbsp;</div>",
    "   leading", "trailing   ", "\x00\x01\x7f", "-" * 80, " " * 37 + "x", "=" * 3 + "\n" * 9,
    inspection.__doc__ or "", __doc__ or "",
]  # fmt: skip


@pytest.fixture(scope="module")
def oracle(default_model: catalog.ResolvedModel) -> Any:
    """The model as transformers reads it from the same file, in float32."""
    torch.set_num_threads(1)
    folder, name = default_model.path.parent, default_model.path.name
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype=torch.float32
    ).eval()


@pytest.fixture(scope="module")
def tokenizer(default_model: catalog.ResolvedModel) -> Tokenizer:
    return catalog.open_tokenizer(default_model)


@pytest.fixture(scope="module")
def their_tokenizer(default_model: catalog.ResolvedModel) -> Any:
    """transformers' tokenizer of the same file.

    It passes over the pre-tokenizer that the file names ("smollm": digits stand alone, then GPT-2's
    pattern), so that is put right here; it shows where spaces stand before a number.
    """
    folder, name = default_model.path.parent, default_model.path.name
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    return tokenizer


def test_the_file_is_the_published_one(default_model: catalog.ResolvedModel) -> None:
    assert default_model.path.stat().st_size == default.GGUF_BYTES
    assert default.verify(default_model.path)
    assert default_model.spec is not None
    assert default_model.spec.parameters == 134_515_008
    licence = (default_model.path.parent / default.LICENSE).read_text()
    assert "Apache License" in licence


def test_ids_as_transformers(tokenizer: Tokenizer, their_tokenizer: Any) -> None:
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert ids == their_tokenizer.encode(text, add_special_tokens=False), repr(text)
        assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()
    assert tokenizer.vocab_size == len(their_tokenizer) == 49152
    assert tokenizer.special_id("<|im_end|>") == 2
    assert tokenizer.special_id("<file_sep>") == 5
    assert tokenizer.special_id("<fim_prefix>") is None
    assert tokenizer.eos_ids == (2, 0)
    assert not tokenizer.add_bos


def test_token_bytes_as_transformers(tokenizer: Tokenizer, their_tokenizer: Any) -> None:
    for token_id in range(17, 49152, 7):
        text = their_tokenizer.decode([token_id], clean_up_tokenization_spaces=False)
        found = tokenizer.token_bytes(token_id)
        assert found.decode("utf-8", "replace") == text


def test_weights_as_transformers(default_model: catalog.ResolvedModel, oracle: Any) -> None:
    weights = catalog.open_weights(default_model)
    parameters = dict(oracle.named_parameters())
    names = set(weights.names())
    assert names == set(parameters) - {"lm_head.weight"}
    for name in names:
        expected = parameters[name].detach().numpy()
        np.testing.assert_array_equal(weights.tensor(name), expected)


def test_logits_and_greedy_ids_as_transformers(
    default_model: catalog.ResolvedModel, oracle: Any, tokenizer: Tokenizer
) -> None:
    """One pass over the prompt and transformers' continuation: where each id is the most likely
    after those before it, plain greedy decoding gives the same ids."""
    prompt = tokenizer.encode(SNIPPET)
    with torch.inference_mode():
        generated = oracle.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=CONTINUED,
            min_new_tokens=CONTINUED,
            do_sample=False,
            eos_token_id=None,
        )
        text = generated[0].tolist()
        expected = oracle(generated).logits[0].numpy()
    assert default_model.spec is not None
    reference = ReferenceModel(default_model.spec, catalog.open_weights(default_model))
    logits = reference.forward(text)
    assert np.abs(logits - expected).max() < TOLERANCE
    assert len(text) == len(prompt) + CONTINUED
    assert logits[len(prompt) - 1 : -1].argmax(axis=1).tolist() == text[len(prompt) :]
    assert tokenizer.decode(text).startswith(SNIPPET + " sum(values)")


def test_everything_is_right_with_it(default_model: catalog.ResolvedModel) -> None:
    checks = inspection.verify(default_model)
    assert [(check.name, check.passed) for check in checks] == [
        ("sha256", True), ("weights", True), ("tokenizer", True),
    ]  # fmt: skip
    facts = inspection.inspect(default_model)
    assert facts.tensor_types == {"F32": 61, "Q4_1": 210, "Q8_0": 1}
    assert facts.fill_in == {}
    assert facts.repository == {"<repo_name>": 3, "<reponame>": 4, "<file_sep>": 5}
    assert facts.bos is None
