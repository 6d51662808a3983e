"""Conversations as real editors have them, message by message, from `conversations/*.jsonl`.

A line sends a message, expects an answer (members that it does not name may be anything), accepts
the item of an earlier answer, sets what the daemon says, or looks at what the daemon was asked.
"""

import asyncio
import json
from pathlib import Path

import pytest

from swiftspec_daemon.protocol import messages as wire

FILES = sorted(Path(__file__).with_name("conversations").glob("*.jsonl"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
async def test_conversation(file, daemon, start_editor, lsp):
    editor = await start_editor()
    answers: dict[int, asyncio.Future] = {}
    accepted = 0
    for line in file.read_text("utf-8").splitlines():
        ((kind, value), *rest) = json.loads(line).items()
        if kind == "send" and "id" in value:
            answers[value["id"]] = editor.ask(value["method"], value["params"], value["id"])
        elif kind == "send":
            editor.send(value)
        elif kind == "expect":
            await expect(answers[value["id"]], value, lsp)
        elif kind == "connected":
            await editor.connected()
        elif kind == "daemon":
            daemon.text = value["text"]
            hold = value.get("hold", False)
            daemon.script = lsp.answer_when_cancelled if hold else lsp.answer_at_once
        elif kind == "asked":
            request, before = daemon.seen[-1]
            assert {"before": before, "trigger": request.trigger} == value
        elif kind == "accept":
            ((_, number),) = rest
            command = answers[value].result()["items"][0]["command"]
            params = {"command": command["command"], "arguments": command["arguments"]}
            answers[number] = editor.ask("workspace/executeCommand", params, number)
            accepted += 1
        else:
            raise ValueError(kind)
    editor.notify("exit", None)
    assert await editor.gone() == 0
    assert len(daemon.of_kind(wire.Accepted)) == accepted
    assert editor.of_method("window/showMessage") == []


async def expect(answer: asyncio.Future, wanted: dict, lsp) -> None:
    async with asyncio.timeout(lsp.LIMIT_S):
        if "error" in wanted:
            with pytest.raises(lsp.RpcFailure) as failure:
                await answer
            assert failure.value.code == wanted["error"]["code"]
        else:
            assert_has(await answer, wanted["result"])


def assert_has(value, wanted) -> None:
    """`value` has all that `wanted` has."""
    if isinstance(wanted, dict):
        for key, inner in wanted.items():
            assert key in value, key
            assert_has(value[key], inner)
    elif isinstance(wanted, list):
        assert len(value) == len(wanted)
        for one, inner in zip(value, wanted, strict=True):
            assert_has(one, inner)
    else:
        assert value == wanted
