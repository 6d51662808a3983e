"""Drafts without a model: what followed the last tokens where they stood before.

Prompt lookup, and SuffixDecoding (arXiv 2411.04975): the longest suffix of the decided tokens that
occurs earlier, in the request itself or in other texts (open files, past suggestions), proposes
what followed it there, with branches where those places disagree. Knows token ids only.

The index is a hash chain as in LZ77 compressors: for each n-gram its last place, and for each
place the one before. The suffix tree of the paper finds the longest match in one descent, but each
token costs it several updates, in Python microseconds; here a token costs two dictionary updates,
its end can be taken back as cheaply, and the longest match is found by comparing backwards at the
few places that the chain names.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from heapq import heappop, heappush
from math import log

from swiftspec_daemon.speculation.tree import ROOT, TokenTree

ORDER = 3
"""Places are first looked up by this many tokens; if there are none, by one."""
MAX_MATCH = 24
"""Longer matches count as this long."""
CANDIDATES = 16
"""At most so many places are compared, the latest first."""
GROWTH = 4
"""A match of m tokens proposes at most GROWTH x m tokens in depth (the paper's alpha)."""

_LENGTHS = (1, 2, 3, 4, 5, 7, 10, 15)
"""Least match length of each class."""
_CLASS = [max(i for i, low in enumerate(_LENGTHS) if low <= n) for n in range(1, MAX_MATCH + 1)]
_SINGLE, _ALL, _MOST, _FEW = range(4)
"""What the places say: there is one; several agree; at least half of several; fewer."""
_PRIORS = (
    (0.25, 0.62, 0.22, 0.13),
    (0.41, 0.72, 0.30, 0.20),
    (0.50, 0.82, 0.30, 0.17),
    (0.58, 0.84, 0.30, 0.15),
    (0.62, 0.86, 0.32, 0.14),
    (0.68, 0.90, 0.45, 0.14),
    (0.73, 0.94, 0.50, 0.14),
    (0.80, 0.96, 0.50, 0.14),
)
"""Share of right tokens by length class and kind, counted on Python files of this project. Only
where calibration starts from."""
BUCKETS = 4 * len(_LENGTHS)
"""`SuffixSource.confidences` are below it."""
_LOG_PRIORS = tuple(log(p) for row in _PRIORS for p in row)
_PAST = (0.25, 0.45, 0.6, 0.7, 0.78, 0.86, 0.92, 0.97)
"""By length class, of what past suggestions say with one voice. Estimates, not counts: where the
match is long it is most likely the place that was completed a moment ago."""
_LOG_PRIORS_PAST = tuple(
    log(p) for row, past in zip(_PRIORS, _PAST, strict=True) for p in (past, past, *row[2:])
)


def confidence(length: int, count: int, of: int) -> int:
    """The bucket of a token that `count` of `of` places propose behind a match of `length`."""
    kind = (_SINGLE if of == 1 else _ALL) if count == of else _MOST if 2 * count >= of else _FEW
    return 4 * _CLASS[min(length, MAX_MATCH) - 1] + kind


class NgramIndex:
    """One text, and where each token and each `ORDER`-gram of it stands.

    A place is the index behind an n-gram: that of the token that followed it.
    """

    __slots__ = ("_before_gram", "_before_token", "last_gram", "last_token", "tokens")

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.last_token: dict[int, int] = {}
        """The last place of each token, and"""
        self.last_gram: dict[tuple[int, ...], int] = {}
        """of each `ORDER`-gram."""
        self._before_token: list[int] = []  # of the token that ends at place i + 1; 0 is none
        self._before_gram: list[int] = []  # of the n-gram that ends at place i + ORDER

    def become(self, tokens: Sequence[int]) -> None:
        """Hold `tokens`; what is common at the beginning is kept."""
        tokens = list(tokens)
        kept = common_prefix(self.tokens, tokens)
        self.truncate(kept)
        self.extend(tokens[kept:])

    def extend(self, tokens: Sequence[int]) -> None:
        """Add tokens at the end."""
        held, start = self.tokens, len(self.tokens)
        held.extend(tokens)
        place, last, before = start, self.last_token, self._before_token
        for token in tokens:
            place += 1
            before.append(last.get(token, 0))
            last[token] = place
        start = max(0, start - ORDER + 1)
        place, grams, before = start + ORDER - 1, self.last_gram, self._before_gram
        for gram in zip(*(held[start + i :] for i in range(ORDER)), strict=False):
            place += 1
            before.append(grams.get(gram, 0))
            grams[gram] = place

    def truncate(self, length: int) -> None:
        """Forget the tokens from index `length` on."""
        held = self.tokens
        while len(held) > length:
            size = len(held)
            if size >= ORDER:
                gram = tuple(held[size - ORDER :])
                if place := self._before_gram.pop():
                    self.last_gram[gram] = place
                else:
                    del self.last_gram[gram]
            token = held.pop()
            if place := self._before_token.pop():
                self.last_token[token] = place
            else:
                del self.last_token[token]

    def places(self, suffix: tuple[int, ...], limit: int) -> list[int]:
        """Where `suffix` (`ORDER` tokens, or 1) ends with a token behind it; latest first."""
        if len(suffix) == 1:
            place, before = self.last_token.get(suffix[0], 0), self._before_token
        else:
            place, before = self.last_gram.get(suffix, 0), self._before_gram
        if place == len(self.tokens) and place:
            place = before[-1]
        found: list[int] = []
        offset = len(suffix)
        while place and len(found) < limit:
            found.append(place)
            place = before[place - offset]
        return found


class SuffixStore:
    """Texts that all requests may copy from, bounded, the oldest dropped first (FIFO).

    A text that a request has in its own prompt would count twice: `find` leaves it out by name.
    """

    def __init__(self, max_tokens: int = 65_536, max_texts: int = 256) -> None:
        self._max_tokens = max_tokens
        self._max_texts = max_texts
        self._texts: OrderedDict[str, NgramIndex] = OrderedDict()
        self._size = 0

    @property
    def size(self) -> int:
        """Tokens held."""
        return self._size

    def __len__(self) -> int:
        return len(self._texts)

    def __contains__(self, text_id: str) -> bool:
        return text_id in self._texts

    def length(self, text_id: str) -> int:
        """Tokens of a text that are held; 0 if it is not here."""
        text = self._texts.get(text_id)
        return 0 if text is None else len(text.tokens)

    def add(self, text_id: str, tokens: Sequence[int]) -> None:
        """Hold this text, as the newest; it replaces the one that had its name.

        Costs in proportion to what is new in it. Of a text above `max_tokens` the end is kept.
        """
        text = self._texts.pop(text_id, None) or NgramIndex()
        self._size -= len(text.tokens)
        text.become(tokens[-self._max_tokens :])
        self._texts[text_id] = text
        self._size += len(text.tokens)
        while self._size > self._max_tokens or len(self._texts) > self._max_texts:
            _, oldest = self._texts.popitem(last=False)
            self._size -= len(oldest.tokens)

    def remove(self, text_id: str) -> None:
        """Forget a text; nothing happens if it is not there."""
        if text := self._texts.pop(text_id, None):
            self._size -= len(text.tokens)

    def find(
        self, suffix: tuple[int, ...], limit: int, excluded: str = ""
    ) -> list[tuple[list[int], int]]:
        """Texts' tokens and places behind `suffix` in them; newest text and latest place first.

        No text takes more than half of the `limit` places; the text named `excluded` is left out.
        """
        found: list[tuple[list[int], int]] = []
        alone = suffix[0] if len(suffix) == 1 else None
        share = (limit + 1) // 2
        for name, text in reversed(self._texts.items()):
            # Most texts don't have it, and there are hundreds: no calls for those.
            if suffix in text.last_gram if alone is None else alone in text.last_token:
                if name == excluded:
                    continue
                most = min(share, limit - len(found))
                found += [(text.tokens, place) for place in text.places(suffix, most)]
                if len(found) >= limit:
                    break
        return found


_Group = list[tuple[list[int], int]]
"""Texts and places that agree so far."""


class SuffixSource:
    """The n-gram draft of one request (or of one document: `begin` reuses what it can)."""

    def __init__(
        self, store: SuffixStore | None = None, mark: int = 1, past: SuffixStore | None = None
    ) -> None:
        """`mark` is this source's bit in its trees; `past` is what `recall` copies from."""
        self._store = store
        self._past = past
        self._mark = mark
        self.excluded = ""
        """Name of this document in `store`."""
        self._own = NgramIndex()
        self.confidences: list[int] = [0]
        """A bucket for each node of the last proposal, by match length and agreement; the length
        grows with depth, for a node matters only where all above it were right."""
        self.match = 0
        """How many tokens the last proposal's match had; 0 for none."""

    @property
    def tokens(self) -> Sequence[int]:
        """The decided tokens it was told."""
        return self._own.tokens

    def begin(self, tokens: Sequence[int]) -> None:
        """The request's decided tokens, the last one being the root of the next tree."""
        self._own.become(tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        """More tokens were decided."""
        self._own.extend(tokens)

    def glance(self) -> int | None:
        """The token that followed the last `ORDER` tokens where they stood last, if they did: for
        next to nothing, what a proposal would most likely begin with."""
        held = self._own.tokens
        if len(held) < ORDER:
            return None
        suffix = tuple(held[-ORDER:])
        for place in self._own.places(suffix, 1):
            return held[place]
        for store in (self._past, self._store):
            if store is not None and len(store):
                for tokens, place in store.find(suffix, 1, self.excluded):
                    return tokens[place]
        return None

    def propose(self, limit: int) -> TokenTree:
        """A tree rooted at the last token with at most `limit` nodes below it.

        The places of the longest match (at most `CANDIDATES` are compared) vote for what follows.
        Log-probabilities are priors by match length and share of the votes. Raises ValueError
        before any token is known.
        """
        held = self._own.tokens
        if not held:
            raise ValueError("nothing can be proposed before the first token")
        self.match, group = self._longest()
        return self._tree(group, limit, self._mark, _LOG_PRIORS)

    def recall(self, limit: int, mark: int) -> TokenTree:
        """As `propose`, of past suggestions alone, with their own bit and their own priors.

        It is a source by itself: what was suggested here a moment ago is worth far more than what
        merely looks alike, and must not be judged by the same experience.
        """
        held = self._own.tokens
        group = _Group()
        if self._past is not None and len(held) >= ORDER:
            group = self._past.find(tuple(held[-ORDER:]), CANDIDATES)
        self.match, group = self._best(group, ORDER)
        return self._tree(group, limit, mark, _LOG_PRIORS_PAST)

    def _tree(self, group: _Group, limit: int, mark: int, priors: tuple[float, ...]) -> TokenTree:
        tree = TokenTree(self._own.tokens[-1], mark)
        self.confidences = [0]
        if group and limit > 0:
            self._grow(tree, group, limit, priors)
        return tree

    def _longest(self) -> tuple[int, _Group]:
        """Length of the longest match and its places, the latest first, own ones before others."""
        held = self._own.tokens
        for order in (ORDER, 1):
            suffix = tuple(held[-order:])
            if len(suffix) == order and (group := self._places(suffix)):
                return self._best(group, order)
        return 0, []

    def _places(self, suffix: tuple[int, ...]) -> _Group:
        """Where `suffix` stands. What is frequent here does not hide that it stands elsewhere."""
        held = self._own.tokens
        most = CANDIDATES - CANDIDATES // 4 if self._store else CANDIDATES
        group = [(held, place) for place in self._own.places(suffix, most)]
        if self._store:
            group += self._store.find(suffix, CANDIDATES - len(group), self.excluded)
        return group

    def _best(self, group: _Group, order: int) -> tuple[int, _Group]:
        """The longest match among places whose last `order` tokens match, and where it is."""
        tail = self._own.tokens[-MAX_MATCH:]
        lengths = [_match(tokens, place, tail, order) for tokens, place in group]
        best = max(lengths, default=0)
        return best, [at for at, n in zip(group, lengths, strict=True) if n == best]

    def _grow(self, tree: TokenTree, group: _Group, limit: int, priors: tuple[float, ...]) -> None:
        """Expand the most probable node, until the tree is full or the places have ended."""
        match, confidences, mark = self.match, self.confidences, tree.marks[ROOT]
        deepest = GROWTH * match
        heap: list[tuple[float, int, _Group]] = [(0.0, ROOT, group)]
        while heap and len(tree) <= limit:
            _, node, places = heappop(heap)
            depth = tree.depths[node]
            length = min(match + depth, MAX_MATCH)
            votes = self._votes(tree, node, places)
            voters = sum(map(len, votes.values())) if len(votes) > 1 else 0
            for token, agreed in votes.items():
                bucket = confidence(length, len(agreed), voters or len(agreed))
                child = tree.add(node, token, priors[bucket], mark)
                confidences.append(bucket)
                if len(tree) > limit:
                    break
                if depth + 1 < deepest:
                    heappush(heap, (-tree.scores[child], child, agreed))

    def _votes(self, tree: TokenTree, node: int, places: _Group) -> dict[int, _Group]:
        """The places by the token that follows `node` there, most votes first, then the latest."""
        held, depth = self._own.tokens, tree.depths[node]
        votes: dict[int, _Group] = {}
        for at in places:
            text, place = at
            place += depth
            if place < len(text):
                token = text[place]
            elif text is held:  # the match overlaps what it proposes: the period goes on
                token = tree.sequence(node)[place - len(text) + 1]
            else:
                continue
            if token in votes:
                votes[token].append(at)
            else:
                votes[token] = [at]
        if len(votes) < 2 or len(votes) == len(places):
            return votes
        return dict(sorted(votes.items(), key=_fewest_last))


def _fewest_last(vote: tuple[int, _Group]) -> int:
    return -len(vote[1])


def _match(tokens: list[int], place: int, tail: list[int], known: int) -> int:
    """How many tokens before `place` are those at the end of `tail`; the last `known` are."""
    length, most = known, min(place, len(tail))
    while length < most and tokens[place - length - 1] == tail[-length - 1]:
        length += 1
    return length


def common_prefix(left: list[int], right: list[int]) -> int:
    """How many tokens are the same at the beginning; mostly by comparing whole slices."""
    low, high = 0, min(len(left), len(right))
    if left[:high] == right[:high]:
        return high
    while high - low > 1:  # the first `low` are the same, the first `high` are not
        middle = (low + high) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low
