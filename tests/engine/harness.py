"""An engine core on the toy model, in this thread, with a clock that only steps move."""

from collections import defaultdict

from swiftspec_daemon.engine import toy
from swiftspec_daemon.engine.core import EngineCore
from swiftspec_daemon.engine.drafts.speculator import DraftSupply, Speculator
from swiftspec_daemon.engine.generation import Vocabulary
from swiftspec_daemon.engine.messages import Event, Finished, Generate, Tokens


class CountingBackend(toy.ToyBackend):
    """The toy, telling what it was asked to compute; a millisecond for each row."""

    def __init__(self, options):
        super().__init__(options)
        self.blocks: list[int] = []
        self.now = 0.0

    def append(self, cache, tokens, *, logits):
        self.blocks.append(len(tokens))
        self.now += 1e-3 * len(tokens)
        return super().append(cache, tokens, logits=logits)

    def speculate(self, cache, tokens, parents):
        self.now += 10e-3 + 1e-4 * len(tokens)
        return super().speculate(cache, tokens, parents)


class Harness:
    def __init__(
        self, options=None, *, slots=2, queue_limit=8, step_budget_ms=20.0, speculation=None
    ):
        self.options = options or toy.ToyOptions(context=256)
        self.backend = CountingBackend(self.options)
        self.speculator = self._speculator(speculation) if speculation is not None else None
        self.events: list[Event] = []
        self.core = EngineCore(
            self.backend,
            Vocabulary.build(toy.token_bytes(self.options.vocab), [toy.EOS], self.options.vocab),
            slots=slots,
            queue_limit=queue_limit,
            step_budget_ms=step_budget_ms,
            clock=lambda: self.backend.now,
            emit=self.events.append,
            speculator=self.speculator,
        )

    def _speculator(self, settings):
        """Told that rows are nearly free, so that what it proposes is verified."""
        costs = {rows: 10e-3 + rows * 1e-4 for rows in (1, 2, 4, 8, 16)}
        return Speculator(
            settings,
            costs,
            DraftSupply(),
            lambda: self.backend.now,
            max_rows=self.backend.max_rows,
        )

    def send(self, *commands):
        for command in commands:
            self.core.receive(command)

    def steps(self, count):
        for _ in range(count):
            self.core.step()

    def drain(self):
        """Step until nothing is left to do."""
        while self.core.busy:
            self.core.step()

    def tokens(self):
        """New tokens of each request so far."""
        found: dict[int, list[int]] = defaultdict(list)
        for event in self.events:
            if isinstance(event, Tokens):
                found[event.id] += event.ids
        return found

    def finished(self):
        """The one Finished of each request so far."""
        found: dict[int, Finished] = {}
        for event in self.events:
            if isinstance(event, Tokens | Finished):
                assert event.id not in found, "an event after Finished"
            if isinstance(event, Finished):
                found[event.id] = event
        return found

    def run(self, request: Generate):
        """Send one request and let everything end; its tokens and its Finished."""
        self.send(request)
        self.drain()
        return self.tokens()[request.id], self.finished()[request.id]
