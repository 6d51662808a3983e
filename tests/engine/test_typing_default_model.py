"""The default model while a user types what it suggests: prompts healed, suggestions recalled."""

import pytest

from swiftspec_daemon.completion.prompt import PromptBuilder
from swiftspec_daemon.completion.snapshot import Snapshot
from swiftspec_daemon.documents import Document
from swiftspec_daemon.engine.config import WorkerConfig
from swiftspec_daemon.engine.core import EngineCore
from swiftspec_daemon.engine.drafts.speculator import DraftSupply, Speculator
from swiftspec_daemon.engine.generation import Vocabulary
from swiftspec_daemon.engine.loading import open_model
from swiftspec_daemon.engine.messages import Finished, Generate, Tokens
from swiftspec_daemon.kernels.native.library import LibraryUnavailable, load
from swiftspec_daemon.models import catalog, no_progress
from swiftspec_daemon.settings import SpeculationSettings

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

TEXT = '''import json
from pathlib import Path


def load_settings(path):
    """Read the settings file, and give defaults where it has none."""
    settings = {"host": "localhost", "port": 8080}
    if path.exists():
'''
NEW = 32
COSTS = {1: 10.1e-3, 2: 11e-3, 4: 12.5e-3, 8: 16.4e-3, 16: 26e-3}
"""Seconds by rows, as on a processor, so that the machine at hand does not decide."""


class Engine:
    """A core on the default model, and the time by `COSTS`."""

    def __init__(self, loaded, vocabulary, mode):
        self._events = []
        self._now = 0.0
        self._vocabulary = vocabulary
        self._core = EngineCore(
            self._timed(loaded.backend),
            vocabulary,
            slots=1,
            queue_limit=4,
            step_budget_ms=1e6,
            clock=lambda: self._now,
            emit=self._events.append,
            speculator=Speculator(
                SpeculationSettings(mode=mode), COSTS, DraftSupply(), lambda: self._now, max_rows=16
            ),
        )

    def _timed(self, backend):
        engine = self

        class Timed(type(backend)):
            def append(self, cache, tokens, *, logits):
                engine._now += COSTS[1] if len(tokens) == 1 else 1e-3 * len(tokens)
                return super().append(cache, tokens, logits=logits)

            def speculate(self, cache, tokens, parents):
                engine._now += next(s for rows, s in COSTS.items() if rows >= len(tokens))
                return super().speculate(cache, tokens, parents)

        timed = object.__new__(Timed)
        timed.__dict__.update(backend.__dict__)
        return timed

    def run(self, prompt, number):
        """New tokens, and how many rounds they took."""
        self._core.receive(
            Generate(
                id=number,
                prompt=prompt.ids,
                required=prompt.required,
                max_tokens=NEW + prompt.healing_tokens,
                sequence="s",
                text_id="a",
            )
        )
        while self._core.busy:
            self._core.step()
        ids = [t for event in self._events if isinstance(event, Tokens) for t in event.ids]
        finished = self._events[-1]
        assert isinstance(finished, Finished)
        assert finished.reason in ("stop", "length"), finished.message
        self._events.clear()
        counted = finished.usage.speculation
        return ids, counted.counters.rounds if counted else len(ids)


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
        loaded = open_model(WorkerConfig(context=512, threads=1), no_progress)
        tokenizer = catalog.open_tokenizer(catalog.resolve("default"))
    vocabulary = Vocabulary.build(loaded.token_bytes, loaded.eos_ids, loaded.backend.vocab)
    return loaded, vocabulary, tokenizer


def test_typing_along_takes_few_rounds_and_changes_nothing(model):
    loaded, vocabulary, tokenizer = model
    builder = PromptBuilder(tokenizer)
    drafting, plain = (Engine(loaded, vocabulary, mode) for mode in ("ngram", "off"))
    text, suggestion, by_key = TEXT, "", []
    for number in range(1, 9):
        snapshot = Snapshot.take(Document(text, uri="file:///settings.py"), len(text), 10_000)
        prompt = builder.build(snapshot, 400)
        ids, rounds = drafting.run(prompt, number)
        assert ids == plain.run(prompt, number)[0]
        by_key.append((rounds, len(ids)))
        said = b"".join(map(tokenizer.token_bytes, ids)).decode("utf-8", "replace")
        suggestion = said.removeprefix(prompt.required.decode())
        text += suggestion[0]
    later = by_key[1:]
    assert sum(rounds for rounds, _ in later) * 4 < sum(tokens for _, tokens in later)
