"""A daemon whose engine answers from a script at once: for measuring all that is around an engine.

Sockets, documents and the completion service are the real ones; there is no worker and no model.
Run as a module; serves until a signal.
"""

from __future__ import annotations

import asyncio
import sys

from swiftspec_daemon.completion.service import CompletionService
from swiftspec_daemon.engine import toy
from swiftspec_daemon.engine.messages import Generate
from swiftspec_daemon.engine.scripted import Answer, ScriptedEngine
from swiftspec_daemon.server.app import create_app
from swiftspec_daemon.server.auth import load_or_create_token
from swiftspec_daemon.server.lifecycle import OneDaemon, listen
from swiftspec_daemon.server.tokenizers import ToyTokenizer
from swiftspec_daemon.server.web import WebServer
from swiftspec_daemon.settings import Settings

SUGGESTION = b"a suggestion of one line\n"
_VOCAB = 300
_BATCH = 5
"""Bytes, which are tokens here, that come at once: five messages a suggestion."""


def scripted_engine() -> ScriptedEngine:
    """Answers every request with `SUGGESTION`, after the bytes that the text must start with."""

    def script(request: Generate) -> Answer:
        text = request.required + SUGGESTION
        return Answer(ids=[toy.FIRST_BYTE + byte for byte in text], batch=_BATCH)

    return ScriptedEngine(script)


def scripted_service(engine: ScriptedEngine, settings: Settings) -> CompletionService:
    """The completion service on that engine, with a tokenizer of one token for each byte."""
    return CompletionService(engine, lambda: ToyTokenizer(_VOCAB), settings)


async def serve(one: OneDaemon) -> int:
    """Serve on a free port until a signal; the exit status."""
    settings = Settings()
    engine = scripted_engine()
    service = scripted_service(engine, settings)
    web = WebServer(
        create_app(service, engine, settings, load_or_create_token(), lambda idle: web.stop()),
        max_message_bytes=settings.server.max_message_bytes,
        wait_idle=_at_once,
    )
    listener = listen("127.0.0.1", 0)
    serving = asyncio.create_task(web.run_on(listener))
    await web.listening()
    host, port = listener.getsockname()[:2]
    one.publish(host, port)
    await engine.start()
    await serving
    return web.exit_status


async def _at_once() -> None:
    """A completion takes no time, so none is waited for."""


if __name__ == "__main__":
    with OneDaemon() as lock:
        status = asyncio.run(serve(lock))
    sys.exit(status)
