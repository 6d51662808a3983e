"""An engine core with drafts of the toy model, in this process or in one of their own."""

from __future__ import annotations

import time

from swiftspec_daemon.engine import toy
from swiftspec_daemon.engine.config import WorkerConfig
from swiftspec_daemon.engine.core import EngineCore
from swiftspec_daemon.engine.drafts import loading
from swiftspec_daemon.engine.drafts.speculator import Speculator
from swiftspec_daemon.engine.generation import Vocabulary
from swiftspec_daemon.engine.messages import Finished, Generate, Tokens
from swiftspec_daemon.settings import SpeculationSettings
from swiftspec_daemon.speculation.planner import AsyncPlan, Planner

TARGET_S = {1: 0.020, 4: 0.0205, 8: 0.021, 16: 0.022}
"""What the planner is told of the target, so that drafts pay from the start."""
LIMIT_S = 60.0


class EagerPlanner(Planner):
    """Drafts in every round, verifies all it gets and waits for every tree: so that what drafts do
    to a text does not depend on whether they pay."""

    def begin_round(self, **facts):
        super().begin_round(**facts)
        self._left = {}

    def wants(self, source):
        return True

    def next_width(self, source, tree, leaves, *, catch_up_s=0.0):
        self._left[source] = self._left.get(source, 4) - 1
        return 3 if leaves and self._left[source] >= 0 else 0

    def choose_size(self, tree):
        self._size = min(len(tree), self.max_size)
        return self._size

    def async_plan(self, source):
        return AsyncPlan(size=12, width=2, steps=3, just_in_time=2, deadline_s=LIMIT_S)


class World:
    """One worker's engine; `serve` runs requests to their end."""

    def __init__(
        self,
        draft="toy:",
        *,
        mode="auto",
        more=(),
        target="toy:",
        slots=2,
        target_s=TARGET_S,
        eager=False,
        **settings,
    ):
        chosen = SpeculationSettings(mode=mode, draft=draft, more_drafts=list(more), **settings)
        self.config = WorkerConfig(model=target, speculation=chosen, kv_slots=slots)
        self.options = toy.parse(target)
        self.events = []
        self.speculator = Speculator(
            chosen,
            target_s,
            loading.supply(self.config, lambda phase, fraction: None),
            time.perf_counter,
            max_rows=toy.ToyBackend.max_rows,
            planner=EagerPlanner if eager else Planner,
        )
        self.core = EngineCore(
            toy.ToyBackend(self.options),
            Vocabulary.build(toy.token_bytes(self.options.vocab), [toy.EOS], self.options.vocab),
            slots=slots,
            queue_limit=32,
            step_budget_ms=25.0,
            clock=time.perf_counter,
            emit=self.events.append,
            speculator=self.speculator,
        )
        self._ids = 0

    @property
    def process(self):
        return self.speculator.process

    def await_draft(self, state="ready"):
        """Wait until the draft's process is in `state`."""
        self.speculator.warm_up()
        until = time.monotonic() + LIMIT_S
        while self.process.state != state:
            assert time.monotonic() < until, (self.process.state, self.process.problem)
            self.look()
            time.sleep(0.005)

    def look(self):
        self.speculator._pair.look()

    def request(self, **fields):
        self._ids += 1
        return Generate(
            **{"id": self._ids, "prompt": toy.encode(b"def f"), "max_tokens": 24} | fields
        )

    def send(self, *commands):
        for command in commands:
            self.core.receive(command)

    def drain(self):
        while self.core.busy:
            self.core.step()

    def said(self, request):
        return [t for e in self.events if isinstance(e, Tokens) and e.id == request for t in e.ids]

    def log_probs(self, request):
        return [
            p for e in self.events if isinstance(e, Tokens) and e.id == request for p in e.logprobs
        ]

    def end(self, request):
        (found,) = [e for e in self.events if isinstance(e, Finished) and e.id == request]
        return found

    def serve(self, **fields):
        """Run one request; its tokens and its Finished."""
        request = self.request(**fields)
        self.send(request)
        self.drain()
        return self.said(request.id), self.end(request.id)

    def close(self):
        self.speculator.close()
