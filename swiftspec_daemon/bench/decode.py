"""Decoding with speculation against plain decoding: the same texts, in one run, interleaved.

Knows in which order engines write which texts; how an engine is driven is in `decode_engines`, and
what becomes of the seconds in `decode_figures`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from swiftspec_daemon.bench import decode_prompts
from swiftspec_daemon.bench.decode_engines import Contestant, Run, Target, Way
from swiftspec_daemon.bench.decode_prompts import KINDS, NEW_TOKENS, Prompt
from swiftspec_daemon.bench.decode_trace import Recorder, Trace
from swiftspec_daemon.engine.config import WorkerConfig
from swiftspec_daemon.engine.drafts import loading as drafts
from swiftspec_daemon.engine.drafts.process import DraftProcess
from swiftspec_daemon.engine.loading import choose_threads
from swiftspec_daemon.errors import EngineError
from swiftspec_daemon.settings import SpeculationSettings

PLAIN, AGAIN, WORST = "plain", "plain again", "worst"
NGRAM, CHAIN, SERIAL, ASYNC = "ngram", "chain", "serial", "async"
_LEAST_TOKENS = 4
"""Texts that end sooner are left out."""
_WORST_TIMES = 3
"""Pairs against drafts that always fail, for each that others get: the difference is small."""
_TRIAL = 4
"""Texts by which the number of threads is chosen."""

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Options:
    """What is measured, and how often."""

    target: str = "default"
    draft: str = "default"
    kinds: tuple[str, ...] = KINDS
    prompts: int = 48
    """Of each kind."""
    pairs: int = 1
    """Times that each prompt is written by every engine."""
    new_tokens: int = NEW_TOKENS
    threads: int = 0
    """0: what is fastest for plain decoding."""


@dataclass(frozen=True)
class Text:
    """One text by one engine, and by what it is compared with, right before or after."""

    kind: str
    prompt: str
    name: str
    """The engine."""
    run: Run
    baseline: Run

    @property
    def speedup(self) -> float:
        return self.baseline.seconds / self.run.seconds


@dataclass
class Measured:
    """Everything that was measured."""

    auto: str
    """The engine that is what "auto" does."""
    threads: int
    """Of the target, but for the asynchronous engine's."""
    async_threads: int = 0
    texts: list[Text] = field(default_factory=list)
    """Against plain decoding."""
    one_thread: list[Text] = field(default_factory=list)
    """Asynchronous against serial, each worker with one thread."""
    skipped: list[str] = field(default_factory=list)
    """What was not measured, and why."""
    trace: Trace | None = None


def measure(options: Options, progress: Progress) -> Measured:
    """Run it all. Raises SwiftSpecError; EngineError where tokens differ from plain decoding's."""
    with contextlib.ExitStack() as stack:
        return _Bench(options, progress, stack).measure()


class _Bench:
    """One run of the benchmark."""

    def __init__(self, options: Options, progress: Progress, stack: contextlib.ExitStack) -> None:
        self._options = options
        self._progress = progress
        self._stack = stack
        self._settings = SpeculationSettings(draft=options.draft)
        self._config = WorkerConfig(model=options.target, speculation=self._settings)
        self._targets: dict[int, Target] = {}
        self._reference: dict[str, tuple[Prompt, list[int]]] = {}
        """By a prompt's name: the prompt as it is used, and plain decoding's text, cut."""

    def measure(self) -> Measured:
        options = self._options
        prompts = decode_prompts.load(options.target, options.kinds, options.prompts)
        self._progress("loading the target", 0.0)
        plain = self._plain(prompts)
        has_draft = bool(drafts.names(self._config))
        made = Measured(SERIAL if has_draft else NGRAM, plain.threads)
        if not has_draft:
            made.skipped.append("There is no draft model: no chain, serial and async engine.")
        used = self._texts(plain, prompts, made)
        self._compare(plain, self._engines(plain, has_draft, made), used, made)
        worst = [p for p in used if p.kind == used[0].kind]
        self._against_worst(plain, worst, made)
        self._async_against_serial(worst, has_draft, made)
        return made

    # --- engines ------------------------------------------------------------------------------

    def _plain(self, prompts: Sequence[Prompt]) -> Contestant:
        """Plain decoding with the number of threads that is fastest for it."""
        wanted = self._options.threads
        choices = [wanted] if wanted else sorted({1, choose_threads(0)})
        tried = [Contestant.plain(self._target(threads)) for threads in choices]
        if len(tried) == 1:
            return tried[0]
        seconds = dict.fromkeys(choices, 0.0)
        for prompt in prompts[:_TRIAL]:
            for engine in tried:
                tokens = self._fitted(prompt, engine)
                seconds[engine.threads] += engine.run(tokens, self._options.new_tokens).seconds
        return min(tried, key=lambda engine: seconds[engine.threads])

    def _target(self, threads: int) -> Target:
        if threads not in self._targets:
            config = msgspec.structs.replace(self._config, threads=threads)
            self._targets[threads] = Target(config, self._progress)
        return self._targets[threads]

    def _engines(self, plain: Contestant, has_draft: bool, made: Measured) -> list[Contestant]:
        self._progress("loading the drafts", 0.0)
        target, asked = self._target(plain.threads), self._settings
        found = [self._open(target, Way(NGRAM, "ngram", _in_mode(asked, "ngram")))]
        if not has_draft:
            return found
        chain = msgspec.structs.replace(asked, mode="serial", width=1, branching=1)
        found.append(self._open(target, Way(CHAIN, "serial", chain, look_up=False)))
        found.append(self._open(target, Way(SERIAL, "serial", _in_mode(asked, "serial"))))
        if DraftProcess.available:
            made.async_threads = max(1, plain.threads - asked.draft_threads)
            beside = self._target(made.async_threads)
            found.append(self._open(beside, Way(ASYNC, "async", _in_mode(asked, "async"))))
        else:
            made.skipped.append("This system runs no draft in a process of its own: no async.")
        return found

    def _open(self, target: Target, way: Way) -> Contestant:
        engine = Contestant.speculating(target, way, self._progress)
        self._stack.callback(engine.close)
        return engine

    # --- texts --------------------------------------------------------------------------------

    def _texts(self, plain: Contestant, prompts: Sequence[Prompt], made: Measured) -> list[Prompt]:
        """Plain decoding's texts; the prompts whose texts are long enough, as they are used."""
        used, short = [], 0
        for number, prompt in enumerate(prompts):
            self._progress("writing the texts", number / len(prompts))
            fitted = prompt._replace(tokens=self._fitted(prompt, plain))
            tokens = plain.run(fitted.tokens, self._options.new_tokens).tokens
            tokens = tokens[: decode_prompts.cut(tokens)]
            if len(tokens) < _LEAST_TOKENS:
                short += 1
                continue
            self._reference[prompt.name] = fitted, tokens
            used.append(fitted)
        if short:
            made.skipped.append(f"{short} texts of fewer than {_LEAST_TOKENS} tokens are left out.")
        if not used:
            raise EngineError("The model ends every text of the benchmark at once.")
        return used

    def _fitted(self, prompt: Prompt, engine: Contestant) -> list[int]:
        """Its end, as far as the context has room for it."""
        return prompt.tokens[-(engine.context - self._options.new_tokens) :]

    def _compare(
        self,
        plain: Contestant,
        others: Sequence[Contestant],
        prompts: Sequence[Prompt],
        made: Measured,
        times: int = 1,
    ) -> None:
        """Every prompt by all engines, whose order goes round."""
        for phase, order, prompt in self._rounds([plain, *others], prompts, times):
            self._progress(*phase)
            runs = {engine.name: self._run(engine, prompt) for engine in order}
            made.texts += [
                Text(prompt.kind, prompt.name, name, run, runs[PLAIN])
                for name, run in runs.items()
                if name != PLAIN
            ]

    def _against_worst(self, plain: Contestant, prompts: Sequence[Prompt], made: Measured) -> None:
        """Drafts that always fail; and plain decoding against itself, to see the noise."""
        target = self._target(plain.threads)
        opponents = [
            Contestant.worst(target, self._settings, self._progress),
            Contestant.plain(target, AGAIN),
        ]
        self._compare(plain, opponents, prompts, made, _WORST_TIMES)

    def _async_against_serial(
        self, prompts: Sequence[Prompt], has_draft: bool, made: Measured
    ) -> None:
        """Each worker with one thread."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        if not has_draft or not DraftProcess.available or cores < 2:
            why = "two cores and a draft in a process of its own"
            made.skipped.append(f"decode.async_vs_serial is not measured: it needs {why}.")
            return
        target, asked = self._target(1), self._settings
        asked = msgspec.structs.replace(asked, draft_threads=1)
        serial = self._open(target, Way(SERIAL, "serial", _in_mode(asked, "serial")))
        beside = self._open(target, Way(ASYNC, "async", _in_mode(asked, "async")))
        for phase, order, prompt in self._rounds([serial, beside], prompts):
            self._progress(*phase)
            runs = {engine.name: self._run(engine, prompt) for engine in order}
            made.one_thread.append(Text(prompt.kind, prompt.name, ASYNC, runs[ASYNC], runs[SERIAL]))

        made.trace = self._trace(target, _in_mode(asked, "async"), prompts[0])

    def _trace(self, target: Target, settings: SpeculationSettings, prompt: Prompt) -> Trace:
        """One text, written twice; the second time by the clock of both processes."""
        recorder = Recorder()
        self._stack.callback(recorder.folder.cleanup)
        engine = Contestant.traced(target, settings, recorder)
        self._stack.callback(engine.close)
        self._run(engine, prompt)
        recorder.target.clear()
        self._run(engine, prompt)
        return recorder.trace()

    def _rounds(
        self, engines: Sequence[Contestant], prompts: Sequence[Prompt], times: int = 1
    ) -> Iterator[tuple[tuple[str, float], list[Contestant], Prompt]]:
        """What to run, `times` as many pairs as asked for: phase and fraction, the engines in
        turn, and the prompt."""
        pairs = self._options.pairs * times
        total = len(prompts) * pairs
        names = ", ".join(engine.name for engine in engines)
        for number in range(total):
            prompt = prompts[number // pairs]
            first = number % len(engines)
            order = [*engines[first:], *engines[:first]]
            yield (f"{prompt.kind}: {names}", number / total), order, prompt

    def _run(self, engine: Contestant, prompt: Prompt) -> Run:
        """One text. Raises EngineError if it is not plain decoding's."""
        fitted, expected = self._reference[prompt.name]
        if engine.record is not None:
            engine.record.tokens = [*fitted.tokens, *expected]
        run = engine.run(fitted.tokens, len(expected))
        if run.tokens != expected:
            at = next(
                (i for i, (a, b) in enumerate(zip(run.tokens, expected, strict=False)) if a != b),
                min(len(run.tokens), len(expected)),
            )
            raise EngineError(
                f"{engine.name} decoding and plain decoding differ at token {at} of {prompt.name}.",
                "Speculation must not change a text: please report this.",
            )
        return run


def _in_mode(settings: SpeculationSettings, mode: str) -> SpeculationSettings:
    return msgspec.structs.replace(settings, mode=mode)
