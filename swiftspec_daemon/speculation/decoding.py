"""What decides the next token of a request at any point of its text: plain, or in a token tree.

`DecodeRules` are a request's constants. A `DecodeState` is everything about its text so far that
the next token depends on besides logits: bytes still required, the end of the text that a stop
string may begin in, room left, position, tokens that have occurred. It is a value, one for each
node of a token tree, so that every processor acts with that node's own history; target and draft
use the same ones. Knows no model, no tree and no KV.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from swiftspec_daemon.speculation.constraint import PrefixConstraint, TokenTable
from swiftspec_daemon.speculation.sampling import (
    Distribution,
    Ids,
    LogProbs,
    SamplingParameters,
    choose,
    distribution,
    greedy,
    log_probs,
    perturb,
    top_log_probs,
)
from swiftspec_daemon.speculation.stops import StopMatcher

Row = npt.NDArray[np.float32]
"""Logits of one row, [vocab]."""
Finish = Literal["stop", "length"]
Ranked = tuple[list[int], list[float]]
"""Token ids, best first, and their log-probabilities by the draft."""
TopK = Callable[[Row, int], Ranked]
"""Indices of a row's greatest logits, best first, and the log-softmax at them."""


@dataclass(frozen=True, slots=True, eq=False)
class DecodeRules:
    """The constants of one request."""

    table: TokenTable
    """The bytes of every id below `limit`."""
    limit: int
    """Ids that the tokenizer has are below it. Rows of the output head beyond it are padding and
    are never picked, by target or draft, so models padded differently can be paired."""
    ends: frozenset[int] = frozenset()
    """Ids that end the text and are not part of it: the model's own and those asked for."""
    sampling: SamplingParameters = field(default_factory=SamplingParameters)
    required: bytes = b""
    """What the new text must start with; the last token of it may overrun."""
    stops: tuple[bytes, ...] = ()
    """Byte strings, not empty, that end the text, searched behind the required bytes."""
    logprobs: int = 0
    """0: none; else those of each token and of this many most probable ones."""
    plain: bool = field(init=False)
    """The next token is the greatest logit, unless bytes are required."""
    unbounded: bool = field(init=False)
    """A state behind a token differs from the one before by position and room alone, unless bytes
    are required."""

    def __post_init__(self) -> None:
        sampling = self.sampling
        plain = sampling.greedy and not sampling.adjusts and not self.logprobs
        object.__setattr__(self, "plain", plain)
        unbounded = not self.stops and sampling.repetition_penalty == 1
        object.__setattr__(self, "unbounded", unbounded)

    def begin(self, prompt: Sequence[int], room: int) -> DecodeState:
        """The state behind the prompt, with at most `room` new tokens to come."""
        penalised = self.sampling.repetition_penalty != 1
        return DecodeState(
            self,
            len(prompt),
            room,
            PrefixConstraint(self.table, self.required),
            StopMatcher(self.stops, skip=len(self.required)),
            np.unique(np.array(prompt, dtype=np.intp)) if penalised else None,
        )


class Decision(NamedTuple):
    """What follows at one point of the text."""

    token: int
    state_after: DecodeState | None
    """Behind the token; None if the text ends."""
    finish: Finish | None
    """stop: an end id, which is not part of the text, or the token completes a stop string;
    length: there is no room behind it; None: the text goes on."""
    emit: bool
    """The token is part of the text."""
    logprobs: LogProbs | None
    """If the rules ask for them and the token is part of the text."""


@dataclass(frozen=True, slots=True, eq=False)
class DecodeState:
    """One point of a text. Never changed."""

    rules: DecodeRules
    position: int
    """Absolute, of the next token: how many there are before it."""
    room: int
    """New tokens that may still come; at least 1 where a token is decided."""
    constraint: PrefixConstraint
    stops: StopMatcher
    seen: Ids | None
    """The distinct ids before this point, in no order; None without repetition penalty."""

    def decide(self, logits: Row) -> Decision:
        """The target's token here: one position-keyed sample, or the greatest logit.

        `logits` is [vocab], float32; it is not changed. Raises EngineError for logits that are no
        numbers.
        """
        rules = self.rules
        state, allowed = self._masked() if self.constraint.rest else (self, None)
        row = logits[: rules.limit]
        if rules.plain and allowed is None:
            return state._decision(greedy(row), None)
        choice = distribution(row, rules.sampling, allowed, state.seen)
        return state._decision(choose(choice, state.position, rules.sampling), choice)

    def take(self, token: int, logits: Row) -> Decision:
        """The decision for a token that another rule than `decide`'s has picked.

        `logits`, as there, are for log-probabilities. The token must be a possible one.
        """
        rules = self.rules
        state, allowed = self._masked() if self.constraint.rest else (self, None)
        if not rules.logprobs:
            return state._decision(token, None)
        row = logits[: rules.limit]
        return state._decision(token, distribution(row, rules.sampling, allowed, state.seen))

    def probabilities(self, logits: Row, ids: Ids | None = None) -> npt.NDArray[np.float64]:
        """What a token is sampled from here, float64 [ids of the tokenizer], sum 1 to rounding.

        Arguments and errors as those of `rank`. Greedy: all of it on the greatest logit. All zero
        where a trimmed head has none of the tokens that fit the required bytes.
        """
        rules = self.rules
        state, allowed = self._masked() if self.constraint.rest else (self, None)
        row = _spread(logits, ids, rules)
        if allowed is not None and ids is not None and not np.isin(allowed, ids).any():
            return np.zeros(rules.limit)
        choice = distribution(row, rules.sampling, allowed, state.seen)
        dense = np.zeros(rules.limit)
        if rules.sampling.greedy:
            dense[choice.token(int(choice.values.argmax()))] = 1.0
            return dense
        weights = np.exp(choice.values - choice.values.max())
        places = slice(0, len(row)) if choice.ids is None else choice.ids
        dense[places] = weights / weights.sum()
        return dense

    def after(self, token: int) -> DecodeState | None:
        """The state behind a proposed token; None if the text ends with it or it is not allowed.

        Of what is allowed it knows all but the logits: a token with a state may still have
        probability zero by top-k and the like.
        """
        rules = self.rules
        if not 0 <= token < rules.limit:
            return None
        state = self
        if self.constraint.rest and not self.constraint.fits(token):
            state, allowed = self._masked()
            if allowed is not None:
                return None
        if not state.constraint.rest and token in rules.ends:
            return None
        return state._advance(token)[0]

    def follow(self, tokens: Iterable[int]) -> DecodeState | None:
        """The state behind several tokens, None if the text ends before or with the last one."""
        state: DecodeState | None = self
        for token in tokens:
            if state is None:
                return None
            state = state.after(token)
        return state

    def rank(
        self, logits: Row, k: int, ids: Ids | None = None, top_k: TopK = top_log_probs
    ) -> Ranked:
        """The draft's view: at most `k` tokens that the target is likely to decide here, and how
        sure the draft is of each.

        `logits` is [rows of the draft's head], float32. `ids`, [rows of the draft's head], are the
        token ids of the head's rows where it is trimmed (FR-Spec, arXiv 2502.14856; EAGLE-3).
        Processors and masks are the target's. Sampled requests: the noise that will pick the
        target's token is known, so tokens are ranked by their value with this noise
        (drafter-invariant coupling, arXiv 2408.07978), and the log-softmax of these sums is the
        confidence; tokens far below the best sum are left out of it. Ids that end the text are left
        out, since a node for them would never be used.
        Raises EngineError for logits that are no numbers.
        """
        rules = self.rules
        state, allowed = self._masked() if self.constraint.rest else (self, None)
        if rules.sampling.greedy and not rules.sampling.adjusts and allowed is None:
            row = logits[: rules.limit] if ids is None else logits
            columns, confidences = top_k(row, k)
            tokens = columns if ids is None else [int(ids[column]) for column in columns]
        else:
            tokens, confidences = state._rank_processed(_spread(logits, ids, rules), k, allowed)
        ends = frozenset[int]() if state.constraint.rest else rules.ends
        if ends.isdisjoint(tokens) and max(tokens, default=0) < rules.limit:
            return tokens, confidences
        pairs = zip(tokens, confidences, strict=True)
        kept = [pair for pair in pairs if pair[0] < rules.limit and pair[0] not in ends]
        return [token for token, _ in kept], [confidence for _, confidence in kept]

    def _rank_processed(self, row: Row, k: int, allowed: Ids | None) -> Ranked:
        if allowed is not None:
            allowed = allowed[allowed < len(row)]  # a draft may have fewer ids than its target
            allowed = allowed[row[allowed] > -math.inf]
            if not len(allowed):
                return [], []
        sampling = self.rules.sampling
        choice = distribution(row, sampling, allowed, self.seen)
        if not sampling.greedy:
            index, scores = perturb(choice, self.position, sampling.seed, k)
            ids = index if choice.ids is None else choice.ids[index]
            choice = Distribution(ids, scores)
        columns, confidences = top_log_probs(choice.values, k)
        return [choice.token(column) for column in columns], confidences

    def _masked(self) -> tuple[DecodeState, Ids | None]:
        """This state and the ids that may come next (None: all), where bytes are required.

        Where no token of the vocabulary fits, the requirement is given up.
        """
        allowed = self.constraint.allowed()
        if allowed is not None or not self.constraint.rest:
            return self, allowed
        free = replace(
            self, constraint=self.constraint.released(), stops=StopMatcher(self.rules.stops)
        )
        return free, None

    def _decision(self, token: int, choice: Distribution | None) -> Decision:
        """What picking the token means, here behind `_masked`; `choice` if logprobs are asked."""
        rules = self.rules
        if token in rules.ends and not self.constraint.rest:
            return Decision(token, None, "stop", False, None)
        found = None
        if rules.logprobs and choice is not None:
            found = log_probs(choice, token, rules.logprobs)
        after, finish = self._advance(token)
        return Decision(token, after, finish, True, found)

    def _advance(self, token: int) -> tuple[DecodeState | None, Finish | None]:
        """The state behind an allowed token that is no end id, and why the text ends with it."""
        rules, constraint, stops, seen = self.rules, self.constraint, self.stops, self.seen
        if constraint.rest or not rules.unbounded:
            text = rules.table.token_bytes[token]
            if constraint.rest:
                constraint = constraint.after(token)
            stops, stopped = stops.after(text)
            if stopped:
                return None, "stop"
            if seen is not None and not (seen == token).any():
                seen = np.append(seen, token)
        if self.room <= 1:
            return None, "length"
        return DecodeState(rules, self.position + 1, self.room - 1, constraint, stops, seen), None


def _spread(logits: Row, ids: Ids | None, rules: DecodeRules) -> Row:
    """A row by token id, from one of a trimmed head; what it lacks is impossible (-inf)."""
    if ids is None:
        return logits[: rules.limit]
    row = np.full(rules.limit, -np.inf, dtype=np.float32)
    known = ids < rules.limit
    row[ids[known]] = logits[known]
    return row
