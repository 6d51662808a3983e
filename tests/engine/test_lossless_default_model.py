"""On the default model and real code: speculative decoding says what plain decoding says."""

import pytest

from swiftspec_daemon.engine.config import WorkerConfig
from swiftspec_daemon.engine.generation import Generation, Vocabulary
from swiftspec_daemon.engine.loading import open_model
from swiftspec_daemon.engine.messages import Generate
from swiftspec_daemon.kernels.native.library import LibraryUnavailable, load
from swiftspec_daemon.models import catalog, no_progress

from .speculative import (
    Deceiving,
    MergedDraft,
    ModelDraft,
    NgramDraft,
    StaleDraft,
    TreeDraft,
    at_random,
    speculate_on,
)

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

PROMPTS = {
    "code": "class Circle:\n    def __init__(self, radius):\n        self.radius = ",
    "edit": "x = first(a, b)\ny = first(c, d)\n\n# with second for first:\nx = second(a, b)\ny =",
}
REQUESTS = {
    "greedy": {},
    "sampled": {"temperature": 0.8, "seed": 5},
    "all processors": {
        "temperature": 1.0,
        "seed": 2,
        "top_k": 60,
        "top_p": 0.95,
        "min_p": 0.01,
        "repetition_penalty": 1.1,
        "logprobs": 2,
        "stop": [b"\n\n"],
        "required": b" ",
    },
}


@pytest.fixture(scope="module")
def model(tmp_path_factory, share_models):
    try:
        load()
    except LibraryUnavailable as error:
        pytest.skip(f"takes minutes without the compiled kernels: {error}")
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("home")
        patch.setenv("SWIFTSPEC_HOME", str(home))
        share_models(home)
        loaded = open_model(WorkerConfig(context=256, threads=1), no_progress)
        tokenizer = catalog.open_tokenizer(catalog.resolve("default"))
    vocabulary = Vocabulary.build(loaded.token_bytes, loaded.eos_ids, loaded.backend.vocab)
    return loaded.backend, vocabulary, tokenizer


KINDS = {
    "good": ModelDraft,
    "stale": StaleDraft,
    "n-gram": lambda backend: NgramDraft(),
    "random": lambda backend: TreeDraft(at_random),
    "deceiving": Deceiving,
    "merged": lambda backend: MergedDraft(ModelDraft(backend), NgramDraft()),
}


@pytest.mark.parametrize(
    ("name", "prompt"), [("greedy", "code"), ("sampled", "edit"), ("all processors", "edit")]
)
def test_the_same_text_with_every_draft(model, name, prompt):
    backend, vocabulary, tokenizer = model
    ids = tokenizer.encode(PROMPTS[prompt])
    wanted = Generate(id=1, prompt=ids, max_tokens=12, **REQUESTS[name])
    generation = Generation(wanted, vocabulary, backend.context)
    cache, held, log_probs = backend.new_cache(backend.context), [], []
    while generation.finished is None:
        generation.step(backend, cache, held, 16)
        log_probs += generation.log_probs
        generation.log_probs = []
    expected = generation.tokens[len(ids) :]
    assert len(expected) > 3
    rounds = {}
    for kind, make in KINDS.items():
        found = speculate_on(backend, vocabulary, wanted, make(backend))
        assert found[:3] == (expected, generation.finished, log_probs), kind
        rounds[kind] = len(found[3])
    assert rounds["good"] <= len(expected) / 2
    assert rounds["deceiving"] >= len(expected)
