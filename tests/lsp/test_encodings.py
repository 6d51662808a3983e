"""Positions in each encoding mean the same to editor, bridge and daemon."""

import random

import pytest

from swiftspec_daemon.documents import Document
from swiftspec_daemon.protocol.messages import Edit, Position

URI = "file:///project/a.py"
ALPHABET = ["a", "é", "語", "𝒳", "\n", "\r\n", "\t", " = "]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
async def test_random_edits_in_each_encoding(daemon, start_editor, encoding):
    editor = await start_editor()
    await editor.initialize(capabilities={"general": {"positionEncodings": [encoding]}})
    await editor.connected()
    rng = random.Random(5)
    text = "".join(rng.choices(ALPHABET, k=300))
    oracle = Document(text)
    editor.open(URI, text)
    for step in range(40):
        changes = []
        for _ in range(rng.randint(1, 3)):
            start, end = sorted(rng.sample(range(len(oracle) + 1), 2))
            end = min(end, start + 5)
            edges = [oracle.position(offset, encoding) for offset in (start, end)]
            new = "".join(rng.choices(ALPHABET, k=rng.randint(0, 4)))
            oracle.apply([Edit(start=edges[0], end=edges[1], text=new)], step, encoding)
            lsp_edges = [{"line": p.line, "character": p.character} for p in edges]
            changes.append({"range": {"start": lsp_edges[0], "end": lsp_edges[1]}, "text": new})
        params = {"textDocument": {"uri": URI, "version": step}, "contentChanges": changes}
        editor.notify("textDocument/didChange", params)
    cursor = oracle.position(len(oracle) // 2, encoding)
    result = await editor.inline(URI, cursor.line, cursor.character)
    assert daemon.documents[URI].text == oracle.text
    assert daemon.seen[0][1] == oracle.text[: oracle.offset(cursor, encoding)]
    start = result["items"][0]["range"]["start"]
    assert Position(start["line"], start["character"]) == cursor
