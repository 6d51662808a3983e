"""A draft on real caches: after any history its KV and its tree are those of a fresh prefill."""

import functools
import importlib.util
import sys
from pathlib import Path

import kv_checker
import numpy as np
import pytest
import torch
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swiftspec_daemon.engine import toy
from swiftspec_daemon.engine.backends.native import NativeBackend
from swiftspec_daemon.engine.backends.transformers import TransformersBackend
from swiftspec_daemon.engine.drafts.model import BackendDraft
from swiftspec_daemon.errors import EngineError
from swiftspec_daemon.kernels.native.library import load
from swiftspec_daemon.speculation.constraint import TokenTable
from swiftspec_daemon.speculation.decoding import DecodeRules
from swiftspec_daemon.speculation.drafter import TreeDrafter
from swiftspec_daemon.speculation.sampling import SamplingParameters

CAPACITY = 48
VOCAB = 33
"""Tokens that histories draw from; all the models know them."""


def toy_backend():
    return toy.ToyBackend(toy.ToyOptions(context=CAPACITY))


def native_backend(isa, monkeypatch):
    if isa != "numpy" and not load().has_isa(isa):
        pytest.skip(f"this machine does not run {isa}")
    monkeypatch.setenv("SWIFTSPEC_NATIVE_ISA", isa)
    tiny = _tiny().model("llama-head8")
    return NativeBackend(tiny.spec, tiny.arrays, threads=1, context=CAPACITY)


def _tiny():
    name = "swiftspec_tests_kernels_tiny"
    if name not in sys.modules:
        file = Path(__file__).parents[2] / "kernels" / "tiny.py"
        spec = importlib.util.spec_from_file_location(name, file)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@functools.cache
def transformers_backend():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    config = transformers.MistralConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=CAPACITY,
        sliding_window=6,
    )  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return TransformersBackend(model, torch.device("cpu"))


def rules(vocab, **sampling):
    table = TokenTable([b"%03d" % i for i in range(vocab)])
    return DecodeRules(table, vocab, sampling=SamplingParameters(**sampling))


class Text:
    """A drafter that drafts for one text after the other, checked after each thing that happens."""

    def __init__(self, backend, tolerance=0.0, branching=3, **sampling):
        self.backend, self.tolerance, self.branching = backend, tolerance, branching
        self.rules = rules(min(backend.vocab, VOCAB), **sampling)
        self.cache = backend.new_cache(CAPACITY)
        self.model = BackendDraft(backend, self.cache, branching=branching)
        self.drafter = TreeDrafter(
            self.model, width=3, branching=branching, max_depth=5, max_nodes=40, block=5
        )
        self.begin([1, 2, 3])

    def begin(self, tokens):
        self.tokens = list(tokens)
        self.drafter.begin(self.tokens, self.state())
        self.check()

    def state(self):
        return self.rules.begin(self.tokens, CAPACITY)

    def step(self):
        rows = self.drafter.step()
        self.check()
        return rows

    def accept(self, tokens):
        self.tokens += tokens
        matched = self.drafter.accept(tokens, self.state())
        self.check()
        return matched

    def check(self):
        ledger = self.drafter._ledger
        assert ledger.prefix == self.model.held() == self.tokens[: len(ledger.prefix)]
        assert {ledger.nodes[slot]: slot for slot in range(len(ledger.nodes))} == ledger.slots
        tree = self.drafter.tree
        for slot, node in enumerate(ledger.nodes):
            assert ledger.tokens[slot] == tree.tokens[node]
            above = ledger.parents[slot]
            assert tree.parents[node] == (0 if above < 0 else ledger.nodes[above])
        kv_checker.check(self.backend, self.cache, ledger, tolerance=self.tolerance)

    def check_ranks(self):
        """Every node's children are those that its own text, prefilled alone, has."""
        tree = self.drafter.tree
        for node in range(len(tree)):
            children = tree.children(node)
            if not children:
                continue
            text = [*self.tokens[:-1], *tree.sequence(node)]
            logits = self.backend.append(self.backend.new_cache(CAPACITY), text, logits=True)
            tokens, log_probs = self.rules.begin(text, 9).rank(logits, self.branching)
            assert [tree.tokens[child] for child in children] == tokens[: len(children)]
            found = [tree.log_probs[child] for child in children]
            assert found == pytest.approx(log_probs[: len(found)], abs=10 * self.tolerance)


histories = st.lists(
    st.tuples(
        st.sampled_from(["grow", "grow", "hit", "hit", "step", "miss", "reject", "edit", "other"]),
        st.integers(0, 2**32),
    ),
    min_size=3,
    max_size=14,
)


def play(text, history):
    """Each thing is chosen by its name and a number."""
    shelf = [7, 8, 9, 10, 11, 12, 13]
    for _ in range(4):
        text.step()
    for what, number in history:
        tree, own = text.drafter.tree, number // 11 % VOCAB
        if what in ("step", "grow"):
            text.drafter.width = 1 + number % 4
            for _ in range(4 if what == "grow" else 1):
                text.step()
        elif what == "hit":  # near the root, so that much survives
            text.accept(tree.sequence(number % min(len(tree), 5))[1:])
        elif what == "miss":  # a path of the tree, then a token of the target's own
            text.accept([*tree.sequence(number % len(tree))[1:], own])
        elif what == "reject":
            text.accept([own])
        elif what == "edit":  # the prompt is cut, maybe in the middle of a prefill, and goes on
            cut = 1 + number % len(text.tokens)
            text.begin([*text.tokens[:cut], *[own] * (number // 7 % 4)])
        else:  # another text takes the cache, and comes back later
            text.tokens, shelf = shelf, text.tokens
            text.begin(text.tokens[: CAPACITY // 2])
    for _ in range(3):
        text.step()


EXAMPLES = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
FEW = settings(EXAMPLES, max_examples=8)


@EXAMPLES
@given(history=histories, temperature=st.sampled_from([0.0, 1.0]))
def test_any_history_on_the_toy(history, temperature):
    text = Text(toy_backend(), temperature=temperature, seed=5)
    play(text, history)
    text.check_ranks()


@pytest.mark.parametrize("isa", ["portable", "avx512-vnni"])
@EXAMPLES
@given(history=histories)
def test_any_history_on_the_native_backend(isa, history, monkeypatch):
    text = Text(native_backend(isa, monkeypatch))
    play(text, history)
    text.check_ranks()


@FEW
@given(history=histories)
def test_any_history_on_the_numpy_form_of_the_kernels(history, monkeypatch):
    text = Text(native_backend("numpy", monkeypatch))
    play(text, history)
    text.check_ranks()


@FEW
@given(history=histories)
def test_any_history_on_transformers(history):
    text = Text(transformers_backend(), tolerance=2e-5)
    play(text, history)
    text.check_ranks()


def test_the_checker_notices_wrong_kv():
    text = Text(toy_backend())
    for _ in range(3):
        text.step()
    text.cache.pending[1] ^= 1
    with pytest.raises(AssertionError):
        text.check()
    text.cache.pending[1] ^= 1
    text.check()
    text.cache.states[0] ^= 1
    with pytest.raises(AssertionError):
        text.check()


def test_a_long_text_fills_the_context_and_ends_quietly():
    text = Text(toy_backend())
    while len(text.tokens) < CAPACITY + 2:
        while text.step():
            pass
        tree = text.drafter.tree
        text.accept([*tree.sequence(len(tree) - 1)[1:], 5])
    assert text.step() == 0
    assert not text.drafter.ready


def test_a_draft_whose_numbers_are_none_leaves_its_kv_as_it_was():
    backend = toy.ToyBackend(toy.ToyOptions(context=CAPACITY, nan_id=9))
    cache = backend.new_cache(CAPACITY)
    model = BackendDraft(backend, cache, branching=2)
    state = rules(VOCAB).begin([1], 10)
    model.extend([1, 2], None)
    with pytest.raises(EngineError):
        model.extend([3, 9], state)
    assert (model.held(), cache.length) == ([1, 2], 2)
    model.extend([3], state)
    model.grow([4], [-1], [state])
    with pytest.raises(EngineError):
        model.grow([5, 9], [0, 0], [state, state])
    assert (len(cache.pending), model.held()) == (1, [1, 2, 3])
    model.grow([5], [0], [state])
    model.reroot([0, 1], [])
    assert model.held() == [1, 2, 3, 4, 5]
    assert kv_checker.rows(cache)[0] == kv_checker.fresh(backend, [1, 2, 3, 4, 5], CAPACITY)


def test_columns_of_a_trimmed_head_have_ids_of_their_own():
    class Trimmed(toy.ToyBackend):
        def append(self, cache, tokens, *, logits):
            every = super().append(cache, tokens, logits=logits)
            return None if every is None else every[ids]

        def grow(self, cache, tokens, parents):
            return super().grow(cache, tokens, parents)[:, ids]

    ids = np.array([40, 7, 90, 13])
    options = toy.ToyOptions(context=CAPACITY)
    model = BackendDraft(Trimmed(options), toy.ToyCache(CAPACITY), branching=2, ids=ids)
    whole = BackendDraft(toy.ToyBackend(options), toy.ToyCache(CAPACITY), branching=300)
    state = rules(300).begin([1, 2], 10)
    found, expected = model.extend([1, 2], state), whole.extend([1, 2], state)
    assert found[0] == [token for token in expected[0] if token in ids][:2]
    rows = model.grow([3], [-1], [state])
    assert rows[0][0] == [t for t in whole.grow([3], [-1], [state])[0][0] if t in ids][:2]


def test_a_node_needs_a_candidate():
    with pytest.raises(ValueError, match="at least one candidate"):
        BackendDraft(toy_backend(), toy.ToyCache(8), branching=0)
