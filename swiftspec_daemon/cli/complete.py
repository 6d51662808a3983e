"""`swiftspec complete FILE:LINE:COL`: one completion, streamed to the terminal.

Knows the client and the terminal; reading the file is `target`'s.
"""

from __future__ import annotations

import asyncio
import enum
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from swiftspec_daemon.cli.target import Source, Target
    from swiftspec_daemon.client import AsyncClient, Done, Status, Timings
    from swiftspec_daemon.documents import Document
    from swiftspec_daemon.protocol.messages import Position


class _Speculation(enum.StrEnum):
    """`protocol.speculation.Speculation`, as the command line's parser wants it."""

    AUTO = "auto"
    OFF = "off"
    NGRAM = "ngram"
    SERIAL = "serial"
    ASYNC = "async"


_MaxTokens = Annotated[
    int | None,
    typer.Option(min=1, max=4096, help="At most this many tokens of text beyond the cursor."),
]
_MaxLines = Annotated[int | None, typer.Option(min=1, max=1000, help="At most this many lines.")]
_Timings = Annotated[
    bool | None,
    typer.Option(
        "--timings/--no-timings",
        help="Last lines on standard error: waiting for the model, where it was not loaded; "
        "the first line and the tokens beyond the cursor from then on; the prompt; what "
        "speculation did. "
        " [default: on a terminal]",
        show_default=False,
    ),
]
_Temperature = Annotated[
    float | None, typer.Option(min=0.0, max=10.0, help="0 always takes the likeliest token.")
]
_Seed = Annotated[int | None, typer.Option(help="Of the sampling, for temperature > 0.")]
_TopK = Annotated[int | None, typer.Option(min=0, help="Only the so many likeliest tokens.")]
_TopP = Annotated[
    float | None,
    typer.Option(max=1.0, help="Only the likeliest tokens that together have this probability."),
]
_MinP = Annotated[
    float | None,
    typer.Option(
        min=0.0, max=1.0, help="Only tokens with this part of the likeliest one's probability."
    ),
]
_Penalty = Annotated[
    float | None,
    typer.Option(help="Above 1: what has been written already becomes less likely."),
]
_SpeculationOption = Annotated[
    _Speculation | None,
    typer.Option(
        help="How tokens are guessed ahead. It changes the speed, never the text.",
        show_choices=True,
    ),
]


_NOTED_MS = 100
"""Waiting for a model that is loaded takes less."""


def complete(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE:LINE:COL",
            help="Where to complete. Lines and columns count from 1, as compilers print them; "
            "columns count characters. Without COL at the end of the line, without LINE at the "
            "end of the file. `-` is standard input.",
            show_default=False,
        ),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object when it is done.")
    ] = False,
    max_tokens: _MaxTokens = None,
    max_lines: _MaxLines = None,
    temperature: _Temperature = None,
    seed: _Seed = None,
    top_k: _TopK = None,
    top_p: _TopP = None,
    min_p: _MinP = None,
    repetition_penalty: _Penalty = None,
    speculation: _SpeculationOption = None,
    timings: _Timings = None,
    start: Annotated[
        bool, typer.Option("--start/--no-start", help="Start a daemon if none runs.")
    ] = True,
) -> None:
    """Complete a file at a place, streaming the text as it comes.

    The file itself is not changed. A file that is not UTF-8 is read as Latin-1, with a note.
    Standard output gets the text and one newline, or nothing if there is nothing to suggest; the
    text exactly as it is comes with --json.

    Example: [bold]swiftspec complete main.py:10:5[/]
    """
    request = {
        "max_tokens": max_tokens,
        "max_lines": max_lines,
        "temperature": temperature,
        "seed": seed,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "speculation": speculation.value if speculation else None,
    }
    show_timings = sys.stdout.isatty() if timings is None else timings
    from swiftspec_daemon.cli.console import write_json
    from swiftspec_daemon.errors import SwiftSpecError

    try:
        asyncio.run(_complete(target, request, as_json, show_timings, start))
    except SwiftSpecError as error:
        if as_json:
            described = {"code": error.code, "message": error.message, "hint": error.hint}
            write_json({"error": described})
        raise


async def _complete(
    argument: str, request: dict[str, Any], as_json: bool, timings: bool, start: bool
) -> None:
    from swiftspec_daemon import settings
    from swiftspec_daemon.cli.console import note, write_json
    from swiftspec_daemon.cli.target import locate, parse_target, read_source
    from swiftspec_daemon.client import AsyncClient, discovery
    from swiftspec_daemon.documents import Document

    limits = settings.load()
    target = parse_target(argument)
    source = read_source(target.file, max_bytes=limits.server.max_message_bytes)
    if source.encoding != "utf-8":
        note(f"note: {target.file} is not UTF-8; it was read as Latin-1.")
    document = Document(source.text)
    position = locate(target, document)
    if target.column is None and not as_json:
        note(f"note: completing at {target.file}:{position.line + 1}:{position.character + 1}.")
    if start and discovery.find() is None:
        note("starting the daemon…")
    async with AsyncClient.connect(start=start, client_name="swiftspec-complete") as client:
        done = await _stream(client, source, document, position, request, quiet=as_json)
    if as_json:
        write_json(_as_json(target, position, source, done))
    elif timings and done.timings is not None:
        note(describe(done.timings))
        if done.speculation is not None:
            from swiftspec_daemon.cli import speculation

            note(speculation.describe(done.speculation))


async def _stream(
    client: AsyncClient,
    source: Source,
    document: Document,
    position: Position,
    request: dict[str, Any],
    *,
    quiet: bool,
) -> Done:
    """Print the text as it comes, unless `quiet`. Raises what the request failed with."""
    from swiftspec_daemon.cli.console import note, write_text
    from swiftspec_daemon.client import Delta, Done, error_for

    uri = source.uri
    await client.open(uri, source.text, language=source.language)
    line = document.line(position.line)[: position.character] if sys.stdout.isatty() else ""
    with _Waiting() as waiting:
        await client.on_status(waiting.show)
        completion = await client.complete(uri, position, trigger="invoked", **request)
        async for event in completion:
            waiting.stop()
            if isinstance(event, Delta) and not quiet:
                write_text(line, style="dim")
                line = ""
                write_text(event.text)
            elif isinstance(event, Done):
                done = event
    if not quiet and completion.text:
        write_text("\n")
    if done.reason == "error":
        raise error_for(done.code, done.message, done.hint)
    if done.reason == "empty" and not quiet:
        note(f"Nothing to suggest here{f': {done.message}' if done.message else '.'}")
    return done


class _Waiting:
    """Says what is awaited until the first text comes: on a terminal in a line that goes away,
    elsewhere once for each phase of loading."""

    def __init__(self) -> None:
        from swiftspec_daemon.cli.console import messages

        console = messages()
        self._line = console.status("") if console.is_terminal else None
        self._shown = False
        self._last = ""
        self._stopped = False

    def __enter__(self) -> _Waiting:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def show(self, status: Status) -> None:
        from rich.markup import escape

        from swiftspec_daemon.cli.console import note

        model = status.model
        if self._stopped or model.state != "loading":
            return
        step = f"{model.name}: {model.phase or 'loading'}"
        if self._line is None:
            if step != self._last:
                note(step)
            self._last = step
            return
        percent = f" {model.fraction:.0%}" if model.fraction else ""
        self._line.update(f"[dim]{escape(step)}{percent}[/]")
        if not self._shown:
            self._shown = True
            self._line.start()

    def stop(self) -> None:
        self._stopped = True
        if self._line is not None and self._shown:
            self._line.stop()


def describe(timings: Timings) -> str:
    """One line for people: how long it took once the model was there, how much text was read."""
    parts = []
    if timings.loading_ms >= _NOTED_MS:
        parts.append(f"waited {timings.loading_ms / 1000:.1f} s for the model")
    if timings.first_line_ms is not None:
        parts.append(f"first line {timings.first_line_ms - timings.loading_ms:.0f} ms")
    seconds = (timings.total_ms - timings.loading_ms) / 1000
    speed = f" ({timings.new_tokens / seconds:.0f}/s)" if seconds > 0 else ""
    parts.append(f"{timings.new_tokens} tokens in {seconds:.1f} s{speed}")
    parts.append(f"prompt {timings.prompt_tokens} tokens, {timings.cached_tokens} cached")
    return " · ".join(parts)


def _as_json(target: Target, position: Position, source: Source, done: Done) -> dict[str, Any]:
    return {
        "file": target.file,
        "line": position.line + 1,
        "column": position.character + 1,
        "encoding": source.encoding,
        "text": done.text,
        "reason": done.reason,
        "message": done.message,
        "timings": done.timings,
        "speculation": done.speculation,
    }
