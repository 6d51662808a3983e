"""Draft models with trimmed heads and borrowed tensors, against torch; and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from swiftspec_daemon.engine.backends import native
from swiftspec_daemon.errors import ModelError, ModelNotFound
from swiftspec_daemon.models import catalog, config, draft, no_progress, packed

IDS = [3, 0, 95, 17, 18, 40, 41, 2, 77, 60]  # in no order
TOKENS = [5, 95, 0, 33, 17, 2]
Pair = Callable[..., tuple[Any, Any, catalog.ResolvedModel, draft.DraftModel]]


@pytest.fixture
def pair(tiny_model: Callable[..., Any], tmp_path: Path) -> Pair:
    """Makes a target and a draft of it, both as torch models and as files.

    `lacks` are the tensors that the draft's file leaves out, `offsets` its d2t.
    """
    from safetensors.torch import save_file

    def make(
        lacks: tuple[str, ...] = (draft.EMBEDDING, draft.HEAD),
        *,
        tied_target: bool = False,
        tied_draft: bool = False,
        rows: int | None = len(IDS),
        offsets: Any = None,
        **options: Any,
    ) -> Any:
        import torch

        target = tiny_model("llama", seed=0, tie_word_embeddings=tied_target)
        target.save_pretrained(tmp_path / "target")
        spec = config.read_spec(tmp_path / "target")
        resolved = catalog.ResolvedModel("target", tmp_path / "target", "safetensors", spec)
        small = tiny_model(
            "llama", seed=1, num_hidden_layers=1, tie_word_embeddings=tied_draft, **options
        )
        tensors = {name: tensor.contiguous() for name, tensor in small.state_dict().items()}
        if rows is not None:
            ids = torch.tensor(IDS) - torch.arange(len(IDS)) if offsets is None else offsets
            tensors[draft.IDS] = ids
            tensors[draft.HEAD] = tensors[draft.HEAD][IDS].contiguous()
        for name in lacks:
            tensors.pop(name, None)
        folder = tmp_path / "draft"
        folder.mkdir()
        save_file({k: v.clone() for k, v in tensors.items()}, folder / "model.safetensors")
        values = small.config.to_dict() | {"architectures": ["LlamaForCausalLM"]}
        if rows is not None:
            values["draft_vocab_size"] = rows
        (folder / "config.json").write_text(json.dumps(values))
        return target, small, resolved, draft.resolve(str(folder))

    return make


def run(
    model: draft.DraftModel, target: catalog.ResolvedModel, tokens: Sequence[int] = TOKENS
) -> tuple[Any, np.ndarray[Any, Any]]:
    """The draft's backend, and its logits of `tokens`."""
    path = model.model.path.parent / "target.packed"
    spec = target.require_spec()
    packed.write(path, *native.convert(spec, catalog.open_weights(target), no_progress))
    file = draft.ensure_packed(model, target, native.LAYOUT, native.convert_draft)
    meta, arrays = packed.open_packed(file)
    assert meta["name"] == model.model.name
    backend = native.NativeBackend(
        catalog.spec_of(meta), arrays, 1, 64, target=packed.open_packed(path)[1]
    )
    cache = backend.new_cache(32)
    rows = [backend.append(cache, [token], logits=True) for token in tokens]
    return backend, np.stack(rows)  # type: ignore[arg-type]


def expected(
    embedding: Any, body: Any, head: Any, tokens: Sequence[int] = TOKENS
) -> np.ndarray[Any, Any]:
    """Logits by torch: one model's layers between two models' tensors."""
    import torch

    with torch.no_grad():
        inputs = embedding.weight[torch.tensor([tokens])]
        hidden = body.model(inputs_embeds=inputs, use_cache=False).last_hidden_state[0]
        logits: np.ndarray[Any, Any] = (hidden @ head.weight.T).numpy()
    return logits


def error(got: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> float:
    return float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("tied_target", [False, True])
@pytest.mark.parametrize("tied_draft", [False, True])
@pytest.mark.parametrize(
    "lacks", [(), (draft.EMBEDDING,), (draft.HEAD,), (draft.EMBEDDING, draft.HEAD)]
)
def test_logits_are_torchs(
    pair: Pair, lacks: tuple[str, ...], tied_target: bool, tied_draft: bool
) -> None:
    target, small, resolved, model = pair(lacks, tied_target=tied_target, tied_draft=tied_draft)
    backend, got = run(model, resolved)
    own = draft.EMBEDDING not in lacks
    embedding = (small if own else target).get_input_embeddings()
    head_of = small if draft.HEAD not in lacks or (own and tied_draft) else target
    wanted = expected(embedding, small, head_of.get_output_embeddings())[:, IDS]
    assert got.shape == (len(TOKENS), len(IDS))
    assert error(got, wanted) < 0.04
    assert error(got[:, ::-1], wanted) > 0.5
    assert backend.draft_ids.tolist() == IDS
    assert backend.draft_ids.dtype == np.int64


@pytest.mark.parametrize("tied_target", [False, True])
@pytest.mark.parametrize("tied_draft", [False, True])
def test_a_whole_head_may_be_borrowed_too(pair: Pair, tied_target: bool, tied_draft: bool) -> None:
    target, small, resolved, model = pair(tied_target=tied_target, tied_draft=tied_draft, rows=None)
    backend, got = run(model, resolved)
    wanted = expected(target.get_input_embeddings(), small, target.get_output_embeddings())
    assert error(got, wanted) < 0.04
    assert backend.draft_ids is None


def test_the_borrowed_embedding_is_not_copied(pair: Pair) -> None:
    _, _, resolved, model = pair()
    backend, _ = run(model, resolved)
    file = draft.ensure_packed(model, resolved, native.LAYOUT, native.convert_draft)
    _, arrays = packed.open_packed(file)
    assert not [name for name in arrays if name.startswith("embedding.")]
    assert backend.weight_bytes == sum(array.nbytes for array in arrays.values())
    with pytest.raises(ModelError, match="no embedding"):
        native.NativeBackend(model.model.require_spec(), arrays, 1, 64)


def test_another_target_makes_another_copy(pair: Pair) -> None:
    _, _, resolved, model = pair()
    first = draft.ensure_packed(model, resolved, native.LAYOUT, native.convert_draft)
    (resolved.path / "generation_config.json").write_text("{}")
    second = draft.ensure_packed(model, resolved, native.LAYOUT, native.convert_draft)
    assert first != second
    assert (first.exists(), second.exists()) == (False, True)


@pytest.mark.parametrize("rows", [0, -1, 97, "many", True])
def test_heads_that_cannot_be(pair: Pair, rows: Any) -> None:
    with pytest.raises(ModelError, match="draft_vocab_size"):
        pair(rows=rows)


@pytest.mark.parametrize(
    ("offsets", "word"),
    [
        ([0] * 9, "shape"),
        ([0] * 9 + [87], "do not exist"),
        ([-1] + [0] * 9, "do not exist"),
        ([1] + [0] * 9, "twice"),
        ([0.5] * 10, "not as integers"),
    ],
)
def test_ids_that_cannot_be(pair: Pair, offsets: list[float], word: str) -> None:
    import torch

    _, _, resolved, model = pair(offsets=torch.tensor(offsets))
    with pytest.raises(ModelError, match=word):
        draft.open_source(model, resolved)


def test_a_trimmed_head_without_ids(pair: Pair) -> None:
    _, _, resolved, model = pair((draft.EMBEDDING, draft.HEAD, draft.IDS))
    with pytest.raises(ModelError, match="no tensor d2t"):
        draft.open_source(model, resolved)


def test_a_draft_of_another_width_cannot_borrow(pair: Pair) -> None:
    _, _, resolved, model = pair(hidden_size=32)
    with pytest.raises(ModelError, match="width is 32, the model's 64"):
        draft.open_source(model, resolved)


def write_tokenizer(folder: Path, tokens: int, *, swapped: bool = False) -> None:
    """A byte-level tokenizer of so many single bytes, two of them swapped."""
    pieces = [chr(code) for code in range(33, 33 + tokens)]
    if swapped:
        pieces[3], pieces[4] = pieces[4], pieces[3]
    vocab = {piece: token for token, piece in enumerate(pieces)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.mark.parametrize(("lacks", "vocab", "needed"), [((), 89, 90), ((draft.EMBEDDING,), 97, 96)])
def test_a_draft_of_another_vocabulary(
    pair: Pair, lacks: tuple[str, ...], vocab: int, needed: int
) -> None:
    _, _, resolved, model = pair(lacks, vocab_size=vocab, rows=None)
    write_tokenizer(resolved.path, 90)
    with pytest.raises(ModelError, match=rf"knows {vocab} tokens, its target target {needed}"):
        draft.open_source(model, resolved)


@pytest.mark.parametrize("rows", [90, 93, 96, 110])
@pytest.mark.parametrize("own_tokenizer", [False, True])
def test_vocabularies_may_differ_in_padding_both_ways(
    pair: Pair, rows: int, own_tokenizer: bool
) -> None:
    """90 tokens; the target's head has 96 rows, the draft's fewer or more."""
    _, small, resolved, model = pair((), vocab_size=rows, rows=None)
    write_tokenizer(resolved.path, 90)
    if own_tokenizer:
        write_tokenizer(model.model.path, 90)
    tokens = [5, 89, 0, 33, 17, 2]
    backend, got = run(model, resolved, tokens)
    assert backend.vocab == rows
    head = small.get_output_embeddings()
    wanted = expected(small.get_input_embeddings(), small, head, tokens)
    assert got.shape == (len(tokens), rows)
    assert error(got, wanted) < 0.04


@pytest.mark.parametrize(("tokens", "swapped"), [(90, True), (80, False)])
def test_another_tokenizer_is_refused(pair: Pair, tokens: int, swapped: bool) -> None:
    _, _, resolved, model = pair((), rows=None)
    write_tokenizer(resolved.path, 90)
    write_tokenizer(model.model.path, tokens, swapped=swapped)
    token, found = (3, "b'%'") if swapped else (80, "b''")
    wanted = bytes([33 + token])
    with pytest.raises(
        ModelError, match=re.escape(f"another tokenizer than target: token {token} is {found}")
    ) as caught:
        draft.open_source(model, resolved)
    assert f"not {wanted!r}" in caught.value.message
    assert "tokenizer" in caught.value.hint


def test_other_tensors_must_be_there(pair: Pair) -> None:
    _, _, resolved, model = pair((draft.EMBEDDING, "model.norm.weight"))
    with pytest.raises(ModelNotFound, match=r"no tensor model\.norm\.weight"):
        draft.open_source(model, resolved)
