"""Status, readiness and logs."""

from __future__ import annotations

import asyncio
import json
import logging
import os

from completion_fakes import answer

from swiftspec_daemon import __version__
from swiftspec_daemon.errors import ModelNotFound


async def test_ready_once_the_engine_is(server):
    status, _, body = await server.http("GET", "/ready", token="")
    assert (status, body) == (503, b'{"status":"not ready"}')
    await server.engine.ready()
    status, _, body = await server.http("GET", "/ready", token="")
    assert (status, body) == (200, b'{"status":"ready"}')


async def test_status_over_http_and_websocket(server):
    client = await server.connect()
    await client.open("x = ")
    await client.open("y = ", uri="file:///b.py")
    await client.complete(0, 4)
    await client.send(type="get_status")
    by_socket = await client.receive()
    code, headers, body = await server.http("GET", "/v1/status")
    by_http = json.loads(body)
    assert (code, headers["content-type"]) == (200, "application/json")
    for status in (by_socket, by_http):
        assert status["type"] == "status"
        assert (status["version"], status["pid"]) == (__version__, os.getpid())
        assert (status["connections"], status["documents"]) == (1, 2)
        assert status["model"]["state"] == "ready"
        assert status["model"]["name"] == "scripted"
        assert status["counters"]["completions"] == 1
        assert status["memory_mb"]["daemon"] > 10
        assert status["uptime_s"] >= 0


async def test_a_closed_connection_no_longer_counts(server):
    client, other = await server.connect(), await server.connect()
    await client.open("x = ")
    await client.close()
    status = {"connections": 2}
    async with asyncio.timeout(30):
        while status["connections"] != 1:
            await other.send(type="get_status")
            status = await other.receive()
    assert status.get("documents", 0) == 0


async def test_subscribers_hear_of_the_model(serve):
    async with serve(answer("abc"), load_s=0.05) as server:
        client, silent = await server.connect(), await server.connect()
        await client.send(type="get_status", subscribe=True)
        assert (await client.receive())["model"]["state"] == "unloaded"
        await server.engine.start()
        states = []
        while not states or states[-1] != "ready":
            message = await client.receive()
            states.append(message["model"]["state"])
            assert "memory_mb" not in message
        assert states == ["loading", "ready"]
        await client.open("x = ")
        await client.complete(0, 4)  # no status comes between: the model did not change
        await silent.send(type="get_status")
        assert (await silent.receive())["model"]["state"] == "ready"


async def test_why_the_model_does_not_load_is_told(serve):
    error = ModelNotFound("There is no model x.", "Fetch it.")
    async with serve(answer("abc"), load_error=error) as server:
        client = await server.connect()
        await client.open("x = ")
        await client.complete(0, 4)
        await client.send(type="get_status")
        model = (await client.receive())["model"]
        assert (model["state"], model["message"], model["hint"]) == (
            "failed",
            "There is no model x.",
            "Fetch it.",
        )
        assert (await server.http("GET", "/ready"))[0] == 503


async def test_logs_hold_neither_token_nor_text(server, caplog):
    caplog.set_level(logging.DEBUG)
    client = await server.connect()
    await client.open("my_secret_text = ", uri="file:///my_secret_path.py")
    await client.complete(0, 17, uri="file:///my_secret_path.py")
    await client.send(type="open", my_secret_field="my_secret_text")
    await client.receive()
    await server.http("GET", "/v1/status", headers={"Origin": "http://my_secret_origin"})
    await client.close()
    await asyncio.sleep(0)
    ours = "\n".join(r.getMessage() for r in caplog.records if r.name.startswith("swiftspec"))
    assert "my_secret" not in ours
    assert server.token not in ours
