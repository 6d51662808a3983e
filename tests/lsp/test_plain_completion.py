"""`textDocument/completion`, for editors that have only a menu."""

import pytest

URI = "file:///project/a.py"


async def test_editors_without_inline_completion_get_a_menu_entry(daemon, start_editor, lsp):
    editor = await start_editor()
    result = await editor.initialize(capabilities={})
    assert result["capabilities"]["completionProvider"] == {"resolveProvider": False}
    await editor.connected()
    daemon.text = "nacci(n):\n    pass"
    editor.open(URI, "é𝒳 = 1; def fibo")
    # In UTF-16 the line's second character takes two units.
    answer = await editor.request("textDocument/completion", lsp.at(URI, 0, 17))
    assert answer["isIncomplete"] is True
    (item,) = answer["items"]
    assert item["label"] == "fibonacci(n):"
    assert item["textEdit"] == {
        "range": {"start": {"line": 0, "character": 13}, "end": {"line": 0, "character": 17}},
        "newText": "fibonacci(n):\n    pass",
    }
    assert item["filterText"].startswith("fibo")
    assert item["command"]["command"] == "swiftspec.accept"


@pytest.mark.parametrize("option", [True, False])
async def test_plain_completion_is_an_option(start_editor, option):
    editor = await start_editor()
    result = await editor.initialize(initializationOptions={"plainCompletion": option})
    assert ("completionProvider" in result["capabilities"]) is option


async def test_plain_completion_of_blank_text_has_no_entry(daemon, editor, lsp):
    daemon.text = "\n  \n"
    editor.open(URI, "f()")
    answer = await editor.request("textDocument/completion", lsp.at(URI, 0, 3))
    assert answer["items"] == []
