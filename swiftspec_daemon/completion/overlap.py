"""Where a suggestion says again what stands after the cursor. Pure functions on strings.

White space never counts: models space things their own way.
"""

from __future__ import annotations

_SIGNIFICANT = 4
"""A line with fewer letters and digits than this only equals one with the same indentation."""
_OPENING, _CLOSING = "([{", ")]}"


def same_line(line: str, other: str) -> bool:
    """Whether two whole lines are the same. Blank lines never are.

    Lines of little but punctuation ("}", "end)") occur at many depths: their indentation counts.
    """
    if not line.strip() or not other.strip():
        return False
    if _significant(other):
        return _dense(line) == _dense(other)
    return line.rstrip() == other.rstrip()


def may_become(line: str, other: str) -> bool:
    """Whether `line`, continued, can be the `same_line` as `other`."""
    if not other.strip():
        return False
    if _significant(other):
        return _dense(other).startswith(_dense(line))
    return other.startswith(line.rstrip()) or not line.strip()


def start(text: str, after: str, *, final: bool) -> int:
    """Where the end of `text` that repeats the beginning of `after` starts; len(text) if none.

    With `final` false, `text` may yet grow, so any end that begins `after` counts. With `final`
    true closing brackets that `text` itself has opened are left in it.
    """
    wanted = _dense(after)
    longest = len(text)
    for index in range(len(text)):
        if text[index].isspace():
            continue
        end = _dense(text[index:])
        if wanted.startswith(end) and not (final and _closes_own_bracket(text, index, end)):
            longest = index
            break
    return longest


def _closes_own_bracket(text: str, index: int, end: str) -> bool:
    """Cutting `text` at `index` would leave a bracket open that `end`, all brackets, closes."""
    only_closing = all(character in _CLOSING + ";,:" for character in end)
    return only_closing and _unclosed(text) == 0 < _unclosed(text[:index])


def _unclosed(text: str) -> int:
    """Brackets that are open at the end of `text`; those that close nothing do not count."""
    depth = 0
    for character in text:
        if character in _OPENING:
            depth += 1
        elif character in _CLOSING and depth > 0:
            depth -= 1
    return depth


def _significant(line: str) -> bool:
    return sum(character.isalnum() for character in line) >= _SIGNIFICANT


def _dense(text: str) -> str:
    return "".join(text.split())
