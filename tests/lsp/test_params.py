"""What editors send, read leniently."""

import pytest

from swiftspec_daemon.lsp import params
from swiftspec_daemon.protocol.messages import Position

PLACE = {"line": 3, "character": 5}


def selected(info):
    given = {
        "textDocument": {"uri": "file:///a.py"},
        "position": PLACE,
        "context": {"triggerKind": 2, "selectedCompletionInfo": info},
    }
    return params.completion_request(given).selected


def test_a_selected_entry():
    found = selected({"text": "abs", "range": {"start": {"line": 3, "character": 2}, "end": PLACE}})
    assert (found.start, found.end, found.text) == (Position(3, 2), Position(3, 5), "abs")


@pytest.mark.parametrize(
    "info",
    [
        None,
        {},
        {"text": 3},
        {"text": "abs"},
        {"text": "abs", "range": None},
        {"text": "abs", "range": {"start": PLACE}},
        {"text": "abs", "range": {"start": 1, "end": PLACE}},
    ],
)
def test_a_selected_entry_of_unknown_place_is_ignored(info):
    assert selected(info) is None
