"""Who may ask what: Host, Origin, Sec-Fetch-Site, token by header and by subprotocol."""

from __future__ import annotations

import asyncio
import json

import pytest
import websockets
from websockets.exceptions import InvalidStatus

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGE = "http://localhost:4173"


@pytest.fixture
def server(shared_server):
    shared_server.stops.clear()
    return shared_server


# --- without a token ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/health", 200, b'{"status":"ok"}'),
        ("/", 200, b"This is a local service for code editors. There is nothing to see here.\n"),
    ],
)
async def test_public_paths_answer_and_tell_nothing(server, path, status, body):
    got, headers, content = await server.http("GET", path, token="")
    assert (got, content) == (status, body)
    assert not [name for name in headers if name.startswith("access-control")]
    assert not {"server", "x-powered-by"} & headers.keys()


@pytest.mark.parametrize("path", ["/v1/status", "/v1/nothing", "/docs", "/v1/ws", "//health"])
@pytest.mark.parametrize("token", ["", "wrong", "x" * 36])
async def test_other_paths_want_the_token(server, path, token):
    status, headers, content = await server.http("GET", path, token=token)
    assert status == 401
    assert headers["www-authenticate"] == "Bearer"
    assert json.loads(content)["code"] == "unauthorized"


async def test_shutdown_wants_the_token(server):
    assert (await server.http("POST", "/v1/shutdown", token=""))[0] == 401
    assert server.stops == []


# --- with it ------------------------------------------------------------------------------------


async def test_unknown_paths_and_methods_with_the_token(server):
    for method, path, status, allowed in (
        ("GET", "/v1/nothing", 404, None),
        ("POST", "/v1/status", 405, "GET"),
        ("GET", "/v1/shutdown", 405, "POST"),
        ("DELETE", "/health", 405, "GET"),
    ):
        got, headers, content = await server.http(method, path)
        assert (got, headers["content-type"]) == (status, "application/json")
        error = json.loads(content)
        assert error.keys() == {"code", "message", "hint"}
        assert error["code"] == "invalid_request"
        assert allowed is None or (allowed in headers["allow"] and allowed in error["hint"])


@pytest.mark.parametrize(
    ("body", "wish"), [(b"", False), (b"{}", False), (b'{"when_idle":true,"x":1}', True)]
)
async def test_shutdown(server, body, wish):
    assert (await server.http("POST", "/v1/shutdown", body=body))[0] == 202
    assert server.stops == [wish]


@pytest.mark.parametrize("body", [b"nonsense", b'{"when_idle":3}', b" " * 70_000 + b"{}"])
async def test_a_malformed_shutdown_is_refused(server, body):
    status, _, content = await server.http("POST", "/v1/shutdown", body=body)
    assert status == 400
    assert json.loads(content)["code"] == "invalid_request"
    assert server.stops == []


# --- Host, Origin, Sec-Fetch-Site ---------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]", "127.8.8.8"])
async def test_loopback_hosts_pass(server, host):
    headers = {"Host": f"{host}:{server.port}"}
    assert (await server.http("GET", "/v1/status", headers=headers))[0] == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example:PORT", "localhost.evil.example:PORT", "127.0.0.1", "127.0.0.1:1", "localhost:",
     "192.168.0.1:PORT", "0.0.0.0:PORT", "[::1]x:PORT", "127.0.0.1:PORTx", "user@127.0.0.1:PORT",
     "", "127.1:PORT", "[::ffff:10.0.0.1]:PORT", "127.0.0.1:-1"],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/health", "/v1/status"])
async def test_other_hosts_are_refused(server, host, path):
    headers = {"Host": host.replace("PORT", str(server.port))}
    status, _, content = await server.http("GET", path, headers=headers)
    assert status == 421
    assert b"Host" in content


async def test_a_repeated_header_is_refused(server):
    for headers in (
        {"host": server.host},
        {"Origin": PAGE, "origin": PAGE},
        {"authorization": "Bearer x"},
    ):
        status, answered, content = await server.http("GET", "/health", headers=headers)
        assert (status, answered["content-type"]) == (400, "application/json")
        assert json.loads(content).keys() == {"code", "message", "hint"}


@pytest.mark.parametrize(
    "sent", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\r\n"]
)
async def test_what_is_no_http_is_answered_in_json(server, sent):
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(sent)
    async with asyncio.timeout(30):
        head, _, content = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(content)["code"] == "protocol_error"


async def test_a_request_that_breaks_is_answered_in_json(server, monkeypatch):
    async def breaks(_):
        raise ZeroDivisionError

    monkeypatch.setattr("swiftspec_daemon.server.hub.Hub.full_status", breaks)
    status, headers, content = await server.http("GET", "/v1/status")
    assert (status, headers["content-type"]) == (500, "application/json")
    assert json.loads(content)["code"] == "internal"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": PAGE}, 200),
        ({"Origin": PAGE, "Sec-Fetch-Site": "cross-site"}, 200),
        ({"Origin": "http://localhost:4174"}, 403),
        ({"Origin": "https://localhost:4173"}, 403),
        ({"Origin": "http://localhost"}, 403),
        ({"Origin": "http://localhost:4173.evil.example"}, 403),
        ({"Origin": "http://LOCALHOST:4173"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": ""}, 403),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
@pytest.mark.parametrize("path", ["/health", "/v1/status"])
async def test_pages_must_be_allowed_by_their_exact_origin(server, headers, status, path):
    got, reply, _ = await server.http("GET", path, headers=headers)
    assert got == status
    assert not [name for name in reply if name.startswith("access-control")]


async def test_the_servers_own_origin_is_not_allowed_by_itself(server):
    headers = {"Origin": f"http://{server.host}"}
    assert (await server.http("GET", "/health", headers=headers))[0] == 403


async def test_a_preflight_is_refused(server):
    headers = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    assert (await server.http("OPTIONS", "/v1/shutdown", headers=headers, token=""))[0] == 403


# --- websockets ---------------------------------------------------------------------------------


async def test_the_token_by_header(server):
    client = await server.connect()
    assert client.connection.subprotocol == "swiftspec.v1"


async def test_no_subprotocol_need_be_offered(server):
    client = await server.connect(subprotocols=None)
    assert client.connection.subprotocol is None


async def test_the_token_by_subprotocol_is_never_echoed(server):
    offered = [f"bearer.{server.token}", "swiftspec.v1"]
    client = await server.connect(headers={}, subprotocols=offered)
    assert client.connection.subprotocol == "swiftspec.v1"
    assert server.token not in str(client.connection.response.headers)


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"headers": {}}, 401),
        ({"headers": {"Authorization": "Bearer wrong"}}, 401),
        ({"headers": {"Authorization": "Basic TOKEN"}}, 401),
        ({"headers": {}, "subprotocols": ["swiftspec.v1", "bearer.wrong"]}, 401),
        ({"headers": {}, "subprotocols": ["swiftspec.v1", "bearer."]}, 401),
        ({"headers": {}, "subprotocols": ["bearer.TOKEN"]}, 400),
        ({"subprotocols": ["swiftspec.v2"]}, 400),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": PAGE}, 101),
        ({"headers": {"Authorization": "Bearer TOKEN", "Sec-Fetch-Site": "cross-site"}}, 403),
    ],
)
async def test_websockets_are_refused_before_they_are_accepted(server, options, status):
    filled = json.loads(json.dumps(options).replace("TOKEN", server.token))
    if status == 101:
        await server.connect(**filled)
        return
    with pytest.raises(InvalidStatus) as refused:
        await server.connect(**filled)
    response = refused.value.response
    assert response.status_code == status
    assert json.loads(response.body)["message"]


async def test_a_foreign_host_cannot_open_a_websocket(server):
    with pytest.raises(InvalidStatus) as refused:
        # DNS rebinding: the name is theirs, the address is ours.
        await websockets.connect(
            f"ws://evil.example:{server.port}/v1/ws",
            host="127.0.0.1",
            proxy=None,
            additional_headers={"Authorization": f"Bearer {server.token}"},
        )
    assert refused.value.response.status_code == 421


async def test_a_page_without_the_token_that_is_allowed_gets_nothing(server):
    with pytest.raises(InvalidStatus) as refused:
        await server.connect(headers={}, origin=PAGE)
    assert refused.value.response.status_code == 401
