"""Typing the sample key by key gives the sample."""

import pytest

from swiftspec_daemon.bench.keystrokes import TYPED, WRITTEN, keystrokes


@pytest.mark.parametrize("every", [1, 3, 7, 10_000])
def test_edits_give_the_whole_text(every: int):
    lines = WRITTEN.split("\n")
    for edit, cursor in keystrokes(every):
        assert edit.start == edit.end
        before, after = lines[edit.start.line], lines[edit.start.line + 1 :]
        head, tail = before[: edit.start.character], before[edit.start.character :]
        lines[edit.start.line :] = (head + edit.text + tail).split("\n") + after
        assert (cursor.line, cursor.character) == (len(lines) - 1, len(lines[-1]))
    assert "\n".join(lines) == WRITTEN + TYPED


def test_the_sample_is_a_module_in_ascii():
    text = WRITTEN + TYPED
    assert text.isascii()
    compile(text, "inventory.py", "exec")
