"""A trimmed LM head: the logits of its rows have the bits that the whole head gives them."""

import dataclasses

import numpy as np
import pytest

from swiftspec_daemon.kernels.native import packing
from swiftspec_daemon.kernels.native.choose import open_model
from swiftspec_daemon.models import rope

ROWS = [7, 99, 100, 3, *range(40, 75)]


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_rows_of_a_trimmed_head(tiny, any_isa, name):
    model = tiny.model(name)
    head = model.weights["model.embed_tokens.weight" if model.spec.tied else "lm_head.weight"]
    arrays = {**model.arrays, **dict(packing.pack_linear("head", head[ROWS]))}
    whole = model.open(any_isa)
    shape = dataclasses.replace(whole.shape, tied=False, head_rows=len(ROWS))
    tables = rope.cos_sin(model.spec.rope, model.spec.head_dim, np.arange(200))
    trimmed = open_model(shape, arrays, *tables, threads=2, isa=any_isa)
    tokens = model.tokens(20)  # ids of the whole vocabulary
    caches = trimmed.new_cache(40), whole.new_cache(40)
    got = trimmed.append(caches[0], tokens, logits="all")
    wanted = whole.append(caches[1], tokens, logits="all")
    assert got.shape == (20, len(ROWS))
    np.testing.assert_array_equal(got, wanted[:, ROWS])
    got = trimmed.grow(caches[0], [1, 2], [-1, 0])
    np.testing.assert_array_equal(got, whole.grow(caches[1], [1, 2], [-1, 0])[:, ROWS])


@pytest.mark.parametrize(("tied", "rows"), [(True, 50), (False, 102), (False, -1)])
def test_heads_that_cannot_be(tiny, tied, rows):
    shape = tiny.model("llama").open("numpy").shape
    with pytest.raises(ValueError, match="LM head"):
        dataclasses.replace(shape, tied=tied, head_rows=rows)
