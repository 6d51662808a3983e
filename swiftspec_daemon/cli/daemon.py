"""`swiftspec serve`, `status` and `stop`: the daemon from outside.

What the daemon does is in `swiftspec_daemon.server.run`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from swiftspec_daemon.protocol.messages import Status
    from swiftspec_daemon.protocol.record import Endpoint


def serve(
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Listen there; 0 for any free port.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="A name from `swiftspec models list`, a folder, a GGUF file.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=0, help="Compute threads; 0 for the physical cores.")
    ] = None,
    background: Annotated[
        bool, typer.Option("--background", help="Return once it accepts connections.")
    ] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Any setting, as model.context=2048; repeatable."
        ),
    ] = None,
    settings_file: Annotated[
        Path | None, typer.Option("--settings", help="Another file than settings.toml.")
    ] = None,
    background_child: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Start the daemon and serve until Ctrl-C. One for each user.

    If one runs already, this says where, and ends with status 4.

    Example: [bold]swiftspec serve --port 0 --model ~/models/qwen2.5-coder-1.5b[/]
    """
    flags = setting_flags(port=port, model=model, threads=threads, assignments=set_ or [])
    if background_child:
        raise typer.Exit(_serve_detached(flags, settings_file))
    if background:
        _serve_in_background(flags, settings_file)
        return
    from swiftspec_daemon import settings
    from swiftspec_daemon.cli.foreground import ServeObserver
    from swiftspec_daemon.server import run
    from swiftspec_daemon.server.tokenizers import check_model

    loaded = settings.load(flags, file=settings_file)
    check_model(loaded.model.target)
    raise typer.Exit(run.serve(loaded, ServeObserver()))


def status(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what the daemon is doing. Ends with status 3 if none runs."""
    from swiftspec_daemon.cli.console import write_json
    from swiftspec_daemon.client import discovery
    from swiftspec_daemon.errors import DaemonNotRunning

    try:
        endpoint = discovery.require()
    except DaemonNotRunning:
        if as_json:
            write_json({"running": False})
        raise
    answer = discovery.read_status(endpoint)
    if as_json:
        fields = {name: getattr(answer, name) for name in answer.__struct_fields__}
        write_json({"running": True, "host": endpoint.host, "port": endpoint.port} | fields)
    else:
        _print_status(endpoint, answer)


def stop(
    when_idle: Annotated[
        bool, typer.Option("--when-idle", help="Let running completions end first.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=0, help="Seconds to wait until it has ended.")
    ] = 15.0,
) -> None:
    """End the daemon. Ends with status 3 if none runs."""
    from swiftspec_daemon.cli.console import output
    from swiftspec_daemon.client import discovery
    from swiftspec_daemon.errors import SwiftSpecError

    endpoint = discovery.require(hint="")
    discovery.request_shutdown(endpoint, when_idle=when_idle)
    if not discovery.wait_gone(endpoint, timeout):
        raise SwiftSpecError(
            f"The daemon (pid {endpoint.pid}) has not ended within {timeout:.0f} seconds.",
            "It ends when its running completions do."
            if when_idle
            else f"Look at `swiftspec logs`, or end it with `kill {endpoint.pid}`.",
        )
    output().print(f"Daemon {endpoint.pid} has ended.")


def setting_flags(
    *,
    port: int | None = None,
    model: str | None = None,
    threads: int | None = None,
    assignments: list[str],
) -> dict[str, Any]:
    """The flags as settings. A model that is a path becomes absolute. Raises UsageError."""
    from swiftspec_daemon.errors import UsageError

    flags: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not all(part.strip() for part in name.split(".")):
            raise UsageError(
                f"--set {assignment}: that is not NAME=VALUE.", "Write --set server.port=17817."
            )
        flags[name.strip()] = value.strip()
    if model is not None and Path(model).expanduser().exists():
        model = str(Path(model).expanduser().absolute())
    named = {"server.port": port, "model.target": model, "model.threads": threads}
    return flags | {name: value for name, value in named.items() if value is not None}


def _serve_detached(flags: dict[str, Any], settings_file: Path | None) -> int:
    """The daemon that a client starts: the client reads a failure as JSON from standard error."""
    from swiftspec_daemon import settings
    from swiftspec_daemon.errors import SwiftSpecError
    from swiftspec_daemon.server import run
    from swiftspec_daemon.server.observer import Observer

    try:
        loaded = settings.load(flags, file=settings_file)
        return run.serve(loaded, Observer(), console=False)
    except SwiftSpecError as error:
        failure = {"code": error.code, "message": error.message, "hint": error.hint}
        sys.stderr.write(json.dumps(failure) + "\n")
        return error.exit_code


def _serve_in_background(flags: dict[str, Any], settings_file: Path | None) -> None:
    from swiftspec_daemon import settings
    from swiftspec_daemon.cli.console import output
    from swiftspec_daemon.client import discovery
    from swiftspec_daemon.errors import DaemonAlreadyRunning
    from swiftspec_daemon.server.tokenizers import check_model

    loaded = settings.load(flags, file=settings_file)
    running = discovery.find()
    if running is not None and not discovery.is_older(running.version, _version()):
        raise DaemonAlreadyRunning(
            f"A daemon is already running: pid {running.pid}, port {running.port}, "
            f"version {running.version}.",
            "Use it, or end it with `swiftspec stop`.",
        )
    check_model(loaded.model.target)
    endpoint = discovery.ensure_running(flags, settings_file=settings_file)
    output().print(f"Daemon {endpoint.pid} is serving on {endpoint.address}")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _version() -> str:
    from swiftspec_daemon import __version__

    return __version__


def _print_status(endpoint: Endpoint, status: Status) -> None:
    from rich.markup import escape

    from swiftspec_daemon.cli.console import output, print_facts

    model = status.model
    colour = {"ready": "green", "failed": "red", "loading": "yellow"}.get(model.state, "dim")
    state = f"[{colour}]{model.state}[/]"
    if model.state == "loading":
        phase = f"{model.phase}, " if model.phase else ""
        state += f" [dim]({escape(phase)}{model.fraction:.0%})[/]"
    minutes, seconds = divmod(int(status.uptime_s), 60)
    rows = {
        "daemon": f"version {escape(status.version)}, pid {status.pid}, {endpoint.address}",
        "up": f"{minutes // 60} h {minutes % 60} min {seconds} s",
        "model": f"{escape(model.name)}: {state}",
        "": escape(" ".join(part for part in (model.message, model.hint) if part)),
        "runs on": escape(", ".join(part for part in (model.backend, model.kernels) if part)),
        "context": f"{model.context} tokens" if model.context else "",
        "clients": f"{_count(status.connections, 'connection')}, "
        f"{_count(status.documents, 'document')}",
        "so far": ", ".join(
            f"{name.replace('_', ' ')} {getattr(status.counters, name)}"
            for name in status.counters.__struct_fields__
            if getattr(status.counters, name)
        ),
    }
    if status.speculation is not None:
        from swiftspec_daemon.cli.speculation import status_rows

        rows |= {name: escape(line) for name, line in status_rows(status.speculation).items()}
    rows |= {
        "memory": ", ".join(f"{name} {size:.0f} MB" for name, size in status.memory_mb.items()),
    }
    print_facts(output(), {name: value for name, value in rows.items() if value})
    if model.kernels.startswith("numpy"):
        from swiftspec_daemon.cli.console import note
        from swiftspec_daemon.cli.foreground import SLOW

        note(f"Note: {SLOW}.")
