"""Over a real websocket: the engine knows the files that are open, and no others."""

from __future__ import annotations

import asyncio

import pytest

from swiftspec_daemon.engine.messages import Forget, Remember

A, B = "file:///a.py", "file:///b.py"


async def told(server, count):
    """The first `count` things that the engine is told, as kinds and names."""
    async with asyncio.timeout(30):
        while len(server.engine.informed) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    return [(type(one), one.text_id) for one in server.engine.informed]


async def test_opened_left_and_closed(server):
    await server.engine.ready()
    client = await server.connect()
    await client.open("a = 1\n", uri=A)
    await client.open("b = 1\n", uri=B)
    first = [(Remember, f"'{A}'"), (Remember, f"'{B}'")]
    assert await told(server, 2) == first
    await client.complete(1, 0, uri=A)
    await client.change(((1, 0), (1, 0), "c = 2"), version=2, uri=A)
    await client.complete(1, 5, uri=A)
    await client.complete(1, 0, uri=B, id=2)
    assert await told(server, 3) == [*first, (Remember, f"'{A}'")]
    await client.send(type="close", uri=A)
    assert (await told(server, 4))[3:] == [(Forget, f"'{A}'")]
    await client.close()
    assert (await told(server, 5))[4:] == [(Forget, f"'{B}'")]


@pytest.mark.parametrize("again", [False, True])
async def test_a_file_that_is_opened_again_is_sent_again(server, again):
    await server.engine.ready()
    client = await server.connect()
    await client.open("a = 1\n")
    await told(server, 1)
    if again:
        await client.open("a = 2\n")
    else:  # it goes out of step, and is put away
        await client.change(((9, 0), (9, 0), "x"), version=0)
        assert (await client.receive())["type"] == "error"
    kinds = [kind for kind, _ in await told(server, 3 if again else 2)]
    assert kinds == [Remember, Forget, Remember][: len(kinds)]
