"""From the bytes of tokens to the text of a suggestion: decoding, ends and trims, incrementally.

Bytes go in as tokens are decided; text comes out as soon as no rule can take it back, so what is
shown is only ever extended. Does no I/O; knows no tokens, engine or clock.

Rules: the bytes up to the cursor are left out; blank lines at the beginning are dropped; the text
ends before a code fence, before a line that is there already after the cursor, before what it says
over and over, before the next block of the file, and after `max_lines`; what repeats the rest of
the line is cut off, and white space at the end.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from typing import Literal

from swiftspec_daemon.completion import overlap

End = Literal["stop", "lines"]
"""stop: as if the model had ended here; lines: as many lines as wanted."""

_FENCE = "```"
_WORD = re.compile(r"\w")
_CLOSING_REST = re.compile(r"""[\s)\]}>"'`;,:]*(\{\s*)?""")
_MOST_BLANK_LINES = 2
"""At the beginning of a suggestion, after a line that has text."""
_LONGEST_BLOCK = 4
"""Lines of a block whose third occurrence in a row ends the text."""
_LONGEST_PERIOD = 8
_TAIL, _RULER = 48, 96
"""A line ends the text when this many characters at its end repeat with at most that period: with
letters or digits in them, or without (lines are drawn with such)."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What stands around the cursor. Line ends are "\\n"."""

    line_before: str = ""
    """The cursor's line, up to the cursor."""
    line_after: str = ""
    """The rest of the cursor's line."""
    next_line: str = ""
    """The first line below that is not blank, with its indentation."""

    @property
    def inside_line(self) -> bool:
        """There is text to the right of the cursor."""
        return bool(self.line_after.strip())

    @property
    def inside_word(self) -> bool:
        """The cursor has word characters on both sides."""
        return bool(_WORD.match(self.line_before[-1:]) and _WORD.match(self.line_after))

    @property
    def before_code(self) -> bool:
        """There is more to the right of the cursor than what closes an expression or a line."""
        return _CLOSING_REST.fullmatch(self.line_after) is None


class Suggestion:
    """One suggestion as it grows.

    `required` are bytes that the engine repeats before it reaches the cursor. `eol` is the line
    end to write. `fences` says whether a line that begins with three backticks ends the text.
    """

    def __init__(
        self,
        around: Surroundings,
        *,
        required: bytes = b"",
        max_lines: int = 1000,
        eol: str = "\n",
        fences: bool = True,
    ) -> None:
        self.end: End | None = None
        """Why the text has ended, once it has; what is fed after that is ignored."""
        self.first_line: str | None = None
        """Up to the end of the first line that is not blank, once that is known."""
        self.why_empty = "The model has nothing to suggest here."
        """The reason, for people, if the text stays empty."""
        self._around = around
        self._required = required
        self._max_lines = 1 if around.inside_line else max_lines
        self._eol = eol
        self._fences = fences
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self._lines: list[str] = []
        self._partial = ""
        self._dropped_lines = False
        self._sent = ""

    @property
    def text(self) -> str:
        """All text that has come out."""
        return self._sent.replace("\n", self._eol)

    def feed(self, data: bytes) -> str:
        """The bytes of further tokens; returns the text that can now be shown."""
        if self.end is None:
            text, broken = self._decode(data)
            first, *further = text.split("\n")
            self._extend_line(first)
            for piece in further:
                self._end_line()
                self._extend_line(piece)
            if broken:
                self._end_text()
        return self._release()

    def finish(self) -> str:
        """No more bytes come; returns the rest of the text."""
        if self._required:
            self.why_empty = "The model's answer ended before it reached the cursor."
        self._end_text()
        return self._release()

    # --- bytes and lines ------------------------------------------------------------------------

    def _decode(self, data: bytes) -> tuple[str, bool]:
        """Whole characters behind the cursor, and whether the bytes after them are no text."""
        skipped = min(len(self._required), len(data))
        if data[:skipped] != self._required[:skipped]:
            self.why_empty = "The model did not continue the text before the cursor."
            self._required = b""
            return "", True
        self._required = self._required[skipped:]
        try:
            return self._decoder.decode(data[skipped:]).replace("\r", ""), False
        except UnicodeDecodeError as error:
            whole = error.object[: error.start].decode("utf-8", "ignore")
            return whole.replace("\r", ""), True

    def _extend_line(self, piece: str) -> None:
        if self.end is not None or not piece:
            return
        begins = not self._partial.strip() and bool(piece.strip())
        checked = len(self._partial)
        self._partial += piece
        if begins and self._dropped_lines and not self._lines:
            self._partial = _without_indentation(self._partial, self._around.line_before)
        if self._is_fence():
            self._end_before_line("The model would go on in prose, not in code.")
            return
        if begins and self._leaves_the_block():
            self._end_before_line("The model would only begin something new below.")
            return
        for length in range(max(checked, _TAIL), len(self._partial) + 1):
            if _repeats_itself(self._partial[:length]):
                self._partial = self._partial[:length]
                self._end_text()
                return

    def _end_line(self) -> None:
        """A line end has come after the current line."""
        if self.end is not None or self._is_there_already():
            return
        if not self._partial.strip() and self._drops_blank_line():
            self._dropped_lines, self._partial = True, ""
            return
        self._lines.append(self._partial)
        self._partial = ""
        if len(self._lines) >= self._max_lines:
            self.why_empty = "The model would go on in the next line, which is not wanted here."
            self.end = "lines"

    def _drops_blank_line(self) -> bool:
        if self._has_text():
            return False
        if not self._around.line_before.strip():
            return True
        # After a line with text the first line end is wanted: the suggestion starts below.
        return len(self._lines) > _MOST_BLANK_LINES

    def _end_text(self) -> None:
        """As at the model's own end."""
        if self.end is None and not self._is_there_already():
            self.end = "stop"
            self._lines.append(self._partial)
            self._partial = ""

    def _end_before_line(self, why: str) -> None:
        """End the text before the current line; `why` is told if that leaves none."""
        self.end, self.why_empty = "stop", why
        self._partial = ""

    # --- rules ----------------------------------------------------------------------------------

    def _is_fence(self) -> bool:
        return self._fences and self._at_line_start() and self._partial.lstrip().startswith(_FENCE)

    def _leaves_the_block(self) -> bool:
        """After a blank line, the current line is less indented than the line of the cursor, or is
        back at the margin: what begins here is not what the user is at."""
        if not self._lines or self._lines[-1].strip() or not self._has_text():
            return False
        whole = [self._around.line_before + self._lines[0], *self._lines[1:]]
        if self._dropped_lines:
            whole[0] = self._lines[0]
        depths = [_depth(line) for line in whole if line.strip()]
        depth = _depth(self._partial)
        return depth < depths[0] or (depth == 0 and max(depths) > 0)

    def _at_line_start(self) -> bool:
        """The current line is whole, not the rest of one that has text before the cursor."""
        return bool(self._lines) or not self._around.line_before.strip()

    def _whole(self, partial: str) -> str:
        """The current line as it would stand in the document."""
        return partial if self._lines or self._dropped_lines else self._around.line_before + partial

    def _is_there_already(self) -> bool:
        """End the text if the current line, which is whole now, is one that is there already."""
        if not self._partial.strip():
            return False
        whole = self._whole(self._partial)
        if not self._around.inside_line and overlap.same_line(whole, self._around.next_line):
            self._end_before_line("The suggestion would only repeat the line below the cursor.")
        elif any(whole.rstrip() == line.rstrip() for line in self._expected()):
            self._end_before_line("The model only repeats itself.")
        return self.end is not None

    def _expected(self) -> list[str]:
        """Lines that would begin the third occurrence in a row of the last lines."""
        lines = self._lines
        expected = []
        for block in range(1, _LONGEST_BLOCK + 1):
            last = lines[-block:]
            if len(lines) >= 2 * block and last == lines[-2 * block : -block] and last[0].strip():
                expected.append(last[0])
        return expected

    def _may_be_taken_back(self) -> bool:
        """The current line may turn out to be one that is there already, or a fence."""
        whole = self._whole(self._partial)
        text = self._partial.strip()
        if self._fences and self._at_line_start() and _FENCE.startswith(text):
            return True
        if not self._around.inside_line and overlap.may_become(whole, self._around.next_line):
            return True
        return any(line.startswith(whole.rstrip()) for line in self._expected())

    def _trimmed(self, text: str) -> str:
        """`text` without an end that is (or may become) a copy of the rest of the line."""
        if not self._around.inside_line:
            return text
        final = self.end is not None
        return text[: overlap.start(text, self._around.line_after, final=final)]

    # --- what comes out -------------------------------------------------------------------------

    def _has_text(self) -> bool:
        return any(line.strip() for line in self._lines)

    def _release(self) -> str:
        lines = self._lines
        if self.end is None and self._partial and not self._may_be_taken_back():
            lines = [*lines, self._partial]
        text = self._trimmed("\n".join(lines)).rstrip()
        if self.end is not None and not text and self._has_text():
            self.why_empty = "The suggestion would only repeat the text after the cursor."
        new = text[len(self._sent) :]
        self._sent += new
        self._note_first_line()
        return new.replace("\n", self._eol)

    def _note_first_line(self) -> None:
        index = next((i for i, line in enumerate(self._lines) if line.strip()), None)
        if index is None or self.first_line is not None:
            return
        first = self._trimmed("\n".join(self._lines[: index + 1])).rstrip()
        if first and self._sent.startswith(first):
            self.first_line = first.replace("\n", self._eol)


def _without_indentation(line: str, typed: str) -> str:
    """`line` for a cursor that stands behind `typed` blanks already."""
    text = line.lstrip()
    blanks = line[: len(line) - len(text)]
    return line[len(typed) :] if blanks.startswith(typed) else text


def _depth(line: str) -> int:
    """Columns of indentation."""
    return len(line.expandtabs(4)) - len(line.expandtabs(4).lstrip())


def _repeats_itself(line: str) -> bool:
    """The line's end says a few characters over and over."""
    tail = line[-_TAIL:]
    if not any(map(str.isalnum, tail)):
        tail = line[-_RULER:]
        if len(tail) < _RULER or not tail.strip():
            return False
    if len(tail) < _TAIL:
        return False
    return any(tail[period:] == tail[:-period] for period in range(1, _LONGEST_PERIOD + 1))
