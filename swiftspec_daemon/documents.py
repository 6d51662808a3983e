"""One text document with incremental edits and positions in three encodings.

Shared by the daemon and the LSP bridge, so it imports no numpy. The text is held as blocks of a
few thousand code points that never split "\\r\\n", so an edit or a position costs the same at the
start and at the end of a 100,000-line file or inside one 2 MB line. Lengths in UTF-16 and UTF-8
are counted once for each block, when first asked for. Knows nothing of sockets, models or files.

Positions follow the Language Server Protocol 3.17, "Text Documents": lines end with "\\n", "\\r\\n"
or "\\r"; a character beyond the end of its line means the end of the line.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Literal

from swiftspec_daemon.errors import DocumentError
from swiftspec_daemon.protocol.messages import Edit, Position, PositionEncoding

LineEnd = Literal["\n", "\r\n", "\r"]

_TARGET = 8192
"""Code points of a new block."""
_MAX = 16384
"""A block that an edit makes longer than this is cut up."""
_MIN = 2048
"""A block that an edit makes shorter than this takes in a neighbour."""

_REOPEN = "Send the whole document again."


class Document:
    """A text, its version, and where its lines are.

    Offsets count Unicode code points from 0. Lone surrogates are kept as they are. Not thread-safe.
    """

    __slots__ = ("_blocks", "_break_counts", "_starts", "language", "uri", "version")

    def __init__(self, text: str, *, uri: str = "", language: str = "", version: int = 0) -> None:
        self.uri = uri
        self.language = language
        self.version = version
        self._set_blocks(_cut(text))

    # --- the text -------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Code points."""
        return self._starts[-1]

    @property
    def text(self) -> str:
        """The whole text, put together anew."""
        return "".join(block.text for block in self._blocks)

    def slice(self, start: int, end: int) -> str:
        """Code points `start` to `end`; offsets outside the text are clamped to it."""
        start, end = max(start, 0), min(end, len(self))
        if start >= end:
            return ""
        first, last = self._block_at(start), self._block_ending_at(end)
        pieces = [block.text for block in self._blocks[first : last + 1]]
        pieces[-1] = pieces[-1][: end - self._starts[last]]
        pieces[0] = pieces[0][start - self._starts[first] :]
        return "".join(pieces)

    @property
    def eol(self) -> LineEnd:
        """The line end that most lines have; "\\n" where there is none."""
        total = self._break_counts[-1]
        crlf = sum(block.crlf for block in self._blocks)
        cr = sum(block.cr for block in self._blocks)
        lf = total - crlf - cr
        if crlf > max(lf, cr):
            return "\r\n"
        return "\r" if cr > lf else "\n"

    # --- lines ----------------------------------------------------------------------------------

    @property
    def line_count(self) -> int:
        """Line ends, plus one."""
        return self._break_counts[-1] + 1

    def line(self, number: int) -> str:
        """Line `number` (from 0) without its line end. Raises DocumentError if there is none."""
        return self.slice(*self.line_span(number))

    def line_span(self, number: int) -> tuple[int, int]:
        """Offsets of line `number`: its start, and its end before the line end.

        Raises DocumentError if there is no such line.
        """
        if not 0 <= number < self.line_count:
            raise DocumentError(
                f"The document has {self.line_count} lines; there is no line {number} (from 0)."
            )
        start = self._line_start(number)
        if number == self.line_count - 1:
            return start, len(self)
        following = self._line_start(number + 1)
        line_end = self.slice(max(start, following - 2), following)
        return start, following - (2 if line_end == "\r\n" else 1)

    # --- positions ------------------------------------------------------------------------------

    def offset(
        self, position: Position, encoding: PositionEncoding = "utf-16", *, strict: bool = False
    ) -> int:
        """Where `position` is, in code points.

        A character beyond the end of its line means the end of the line, a position inside a code
        point means the code point's start. A line beyond the last means the end of the text, or,
        if `strict`, raises DocumentError. Negative numbers raise DocumentError.
        """
        if position.line < 0 or position.character < 0:
            raise DocumentError(
                f"Position {position.line}:{position.character} is negative.",
                "Lines and characters count from 0.",
            )
        if position.line >= self.line_count and not strict:
            return len(self)
        start, end = self.line_span(position.line)
        if encoding == "utf-32":
            return min(start + position.character, end)
        return min(self._advance(start, position.character, encoding), end)

    def position(self, offset: int, encoding: PositionEncoding = "utf-16") -> Position:
        """Where `offset`, clamped to the text, is; inside "\\r\\n" it is before it."""
        offset = min(max(offset, 0), len(self))
        index = self._block_at(offset)
        inside = offset - self._starts[index]
        text = self._blocks[index].text
        if 0 < inside < len(text) and text[inside - 1 : inside + 1] == "\r\n":
            offset, inside = offset - 1, inside - 1
        line = self._break_counts[index] + _count_breaks(text[:inside])
        return Position(line, self._width(self._line_start(line), offset, encoding))

    # --- changes --------------------------------------------------------------------------------

    def apply(
        self, edits: Sequence[Edit], version: int, encoding: PositionEncoding = "utf-16"
    ) -> None:
        """Make the edits, each against the text that the one before it left: all or none.

        Ends that are the wrong way round are swapped. Raises DocumentError for negative numbers.
        """
        before = list(self._blocks)
        try:
            for edit in edits:
                start = self.offset(edit.start, encoding)
                end = self.offset(edit.end, encoding)
                self._splice(min(start, end), max(start, end), edit.text)
        except DocumentError:
            self._set_blocks(before)
            raise
        self.version = version

    def replace(self, text: str, version: int) -> None:
        """Take `text` as the whole new text."""
        self._set_blocks(_cut(text))
        self.version = version

    # --- blocks ---------------------------------------------------------------------------------

    def _set_blocks(self, blocks: list[_Block]) -> None:
        """Keep `blocks` (at least one) and the sums that find an offset's or line's block."""
        self._blocks = blocks
        self._starts = [0]
        self._break_counts = [0]
        self._sum_from(0)

    def _sum_from(self, first: int) -> None:
        """Bring the sums up to date from block `first` on."""
        changed = self._blocks[first:]
        for sums, number in ((self._starts, _LENGTH), (self._break_counts, _BREAKS)):
            sums[first:] = accumulate(map(number, changed), initial=sums[first])

    def _splice(self, start: int, end: int, text: str) -> None:
        blocks = self._blocks
        first = self._block_at(start)
        last = max(first, self._block_ending_at(end))
        head = blocks[first].text[: start - self._starts[first]]
        new = head + text + blocks[last].text[end - self._starts[last] :]
        while len(new) < _MIN and (first > 0 or last + 1 < len(blocks)):
            if last + 1 < len(blocks):
                last += 1
                new += blocks[last].text
            else:
                first -= 1
                new = blocks[first].text + new
        if first > 0 and new[:1] == "\n" and blocks[first - 1].text[-1:] == "\r":
            first -= 1
            new = blocks[first].text + new
        if last + 1 < len(blocks) and new[-1:] == "\r" and blocks[last + 1].text[:1] == "\n":
            last += 1
            new += blocks[last].text
        blocks[first : last + 1] = _cut(new)
        self._sum_from(first)

    def _block_at(self, offset: int) -> int:
        """The last block that starts at or before `offset`."""
        return max(0, min(bisect_right(self._starts, offset), len(self._blocks)) - 1)

    def _block_ending_at(self, offset: int) -> int:
        """The block that holds the code point before `offset`."""
        return max(0, bisect_left(self._starts, offset) - 1)

    def _line_start(self, number: int) -> int:
        if number == 0:
            return 0
        # The block that holds the line end numbered `number`, counted from 1.
        index = bisect_left(self._break_counts, number) - 1
        inside = _after_break(self._blocks[index].text, number - self._break_counts[index])
        return self._starts[index] + inside

    def _spans(self, start: int) -> Iterator[tuple[int, str, _Block]]:
        """From `start` on: a piece's offset, its text, and the block that it is the end of."""
        first = self._block_at(start)
        for index in range(first, len(self._blocks)):
            block = self._blocks[index]
            if index == first and start > self._starts[index]:
                yield start, block.text[start - self._starts[index] :], block
            else:
                yield self._starts[index], block.text, block

    def _advance(self, start: int, units: int, encoding: PositionEncoding) -> int:
        """The code point that is `units` code units after `start`, or the end of the text."""
        for offset, text, block in self._spans(start):
            whole = len(text) == block.length
            width = block.width(encoding) if whole else _width(text, encoding)
            if units < width:
                return offset + _code_points(text, units, encoding)
            units -= width
        return len(self)

    def _width(self, start: int, end: int, encoding: PositionEncoding) -> int:
        """Code units from `start` to `end`."""
        if encoding == "utf-32":
            return end - start
        units = 0
        for offset, text, block in self._spans(start):
            if offset + len(text) >= end:
                return units + _width(text[: end - offset], encoding)
            whole = len(text) == block.length
            units += block.width(encoding) if whole else _width(text, encoding)
        return units


class _Block:
    """A piece of a document. Immutable but for the lengths that are counted when asked for."""

    __slots__ = ("_utf8", "_utf16", "breaks", "cr", "crlf", "length", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.length = len(text)
        self.crlf = text.count("\r\n")
        self.cr = text.count("\r") - self.crlf
        self.breaks = text.count("\n") + self.cr
        self._utf8 = self._utf16 = self.length if text.isascii() else -1

    def width(self, encoding: PositionEncoding) -> int:
        """Code units of the whole block."""
        if encoding == "utf-8":
            if self._utf8 < 0:
                self._utf8 = _width(self.text, encoding)
            return self._utf8
        if self._utf16 < 0:
            self._utf16 = _width(self.text, encoding)
        return self._utf16


_LENGTH = attrgetter("length")
_BREAKS = attrgetter("breaks")


def _cut(text: str) -> list[_Block]:
    """`text` as blocks: at least one, none of which ends inside "\\r\\n"."""
    if len(text) <= _MAX:
        return [_Block(text)]
    blocks, start = [], 0
    while start < len(text):
        end = start + _TARGET
        if text[end - 1 : end + 1] == "\r\n":
            end += 1
        blocks.append(_Block(text[start:end]))
        start = end
    return blocks


def _count_breaks(text: str) -> int:
    return text.count("\n") + text.count("\r") - text.count("\r\n")


def _after_break(text: str, number: int) -> int:
    """The offset after line end `number`, counted from 1."""
    if "\r" in text:
        # Same length, but every line end is one "\n" at its last character.
        text = text.replace("\r\n", " \n").replace("\r", "\n")
    return len(text) - len(text.split("\n", number)[-1])


def _width(text: str, encoding: PositionEncoding) -> int:
    """Code units of `text`."""
    if encoding == "utf-32" or text.isascii():
        return len(text)
    if encoding == "utf-8":
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _code_points(text: str, units: int, encoding: PositionEncoding) -> int:
    """How many whole code points of `text` fit into `units` code units."""
    if text.isascii():
        return min(units, len(text))
    # By bisection: decoding a cut-off encoding would join neighbouring lone surrogates.
    low, high = 0, min(units, len(text))
    while low < high:
        middle = (low + high + 1) // 2
        if _width(text[:middle], encoding) <= units:
            low = middle
        else:
            high = middle - 1
    return low
