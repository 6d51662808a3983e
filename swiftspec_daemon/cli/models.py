"""`swiftspec models list|fetch|inspect|verify`: tables for people, `--json` for programs.

Shows what `swiftspec_daemon.models` says; errors are reported by the command line's main module.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from swiftspec_daemon.errors import ModelError, UsageError

if TYPE_CHECKING:
    from swiftspec_daemon.models import Progress
    from swiftspec_daemon.models.inspection import Facts

app = typer.Typer(help="Models: what is there, fetch, look into, check.", no_args_is_help=True)

Name = Annotated[
    str, typer.Argument(help="default, ORG/NAME, a folder of the hub's format, or a GGUF file.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_models(json_output: Json = False) -> None:
    """The models that are there."""
    from swiftspec_daemon.models import catalog

    rows = [_row(name) for name in catalog.list_models()]
    if json_output:
        _print_json(rows)
        return
    if not rows:
        typer.echo("No models are there yet. Fetch the default one: swiftspec models fetch")
        return
    from rich.table import Table

    from swiftspec_daemon.cli.console import print_table

    table = Table("name", "architecture", "parameters", "format", "size", "runs on")
    for row in rows:
        table.add_row(
            row["name"], row["architecture"], _count(row["parameters"]), row["format"],
            _size(row["file_bytes"]), row["problem"] or row["backend"],
        )  # fmt: skip
    print_table(table)


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="default, or ORG/NAME on the hub.")] = "default",
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit.")] = None,
    file: Annotated[
        str | None, typer.Option(help="One GGUF file of a repository with several.")
    ] = None,
    json_output: Json = False,
) -> None:
    """Fetch a model; without a name the default one."""
    from swiftspec_daemon.models import catalog, default, hub

    if name == default.NAME:
        if revision or file:
            raise UsageError("--revision and --file are for models of the hub.")
        with _progress_bar() as progress:
            path = default.fetch(progress)
    else:
        path = hub.fetch(name, revision=revision, file=file, progress=_say_phase)
    model = catalog.resolve(name)
    if json_output:
        _print_json({"name": name, "path": str(path), "native": model.spec is not None})
        return
    typer.echo(f"{name} is there: {path}")
    if model.spec is None:
        typer.echo(f"It runs on the transformers backend only. {model.reason}")


@app.command()
def inspect(name: Name = "default", json_output: Json = False) -> None:
    """What a model is: shapes, packing, tokenizer, special tokens, memory."""
    from swiftspec_daemon.models import catalog, inspection

    facts = inspection.inspect(catalog.resolve(name))
    if json_output:
        _print_json(msgspec.to_builtins(facts))
        return
    from rich.markup import escape

    from swiftspec_daemon.cli.console import output, print_facts

    print_facts(output(), {label: escape(value) for label, value in _facts_rows(facts)})


@app.command()
def verify(name: Name = "default", json_output: Json = False) -> None:
    """Check a model's files: checksum, sizes, shapes, weights, tokenizer. Fails if one is wrong."""
    from swiftspec_daemon.models import catalog, inspection

    with _progress_bar() as progress:
        checks = inspection.verify(catalog.resolve(name), progress)
    if json_output:
        _print_json(msgspec.to_builtins(checks))
    else:
        from rich.table import Table

        from swiftspec_daemon.cli.console import print_table

        table = Table("check", "result", "detail")
        for check in checks:
            table.add_row(check.name, "ok" if check.passed else "WRONG", check.detail)
        print_table(table)
    if not all(check.passed for check in checks):
        raise ModelError(
            f"The files of the model {name} are damaged.",
            "Delete them and fetch the model again.",
        )


def _row(name: str) -> dict[str, Any]:
    """One line of the list; a damaged model is listed with its problem."""
    from swiftspec_daemon.models import catalog

    row: dict[str, Any] = {
        "name": name, "path": "", "architecture": "", "parameters": None, "format": "",
        "file_bytes": None, "backend": "", "problem": "",
    }  # fmt: skip
    try:
        model = catalog.resolve(name)
    except ModelError as error:
        return row | {"problem": error.message}
    return row | {
        "path": str(model.path),
        "architecture": model.spec.architecture if model.spec else "other",
        "parameters": model.spec.parameters if model.spec else None,
        "format": model.format,
        "file_bytes": sum(file.stat().st_size for file in catalog.source_files(model)),
        "backend": "native, transformers" if model.spec else "transformers",
    }


def _facts_rows(facts: Facts) -> Iterator[tuple[str, str]]:
    yield "name", facts.name
    yield "path", facts.path
    yield "format", f"{facts.format}, {_size(facts.file_bytes)}"
    yield "runs on", "native, transformers" if facts.native else f"transformers: {facts.reason}"
    if facts.spec is not None:
        spec = facts.spec
        yield "architecture", spec.architecture
        yield "parameters", _count(facts.parameters)
        yield "layers", str(spec.layers)
        yield "width", f"{spec.hidden}, feed-forward {spec.ff}"
        yield "heads", f"{spec.heads} of {spec.head_dim}, {spec.kv_heads} for keys and values"
        yield "vocabulary", f"{spec.vocab}{', tied' if spec.tied else ''}"
        yield "context", str(spec.context)
        yield "sliding window", str(spec.sliding_window or "none")
        yield "RoPE", f"base {spec.rope.theta:g}, scaling {spec.rope.kind}"
    yield "tensors", ", ".join(f"{n} {kind}" for kind, n in facts.tensor_types.items())
    yield "tokenizer", f"{facts.tokenizer}, {facts.vocab_size} tokens"
    yield "starts with", facts.bos or "nothing"
    yield "ends with", _tokens(facts.ends)
    yield "fill-in tokens", _tokens(facts.fill_in)
    yield "repository tokens", _tokens(facts.repository)
    if facts.int8_bytes and facts.kv_bytes_per_position:
        yield (
            "memory, about",
            (
                f"{_size(facts.int8_bytes)} for int8 weights, "
                f"{_size(facts.kv_bytes_per_position * 4096)} for 4096 positions in float32"
            ),
        )


def _tokens(tokens: dict[str, int]) -> str:
    return ", ".join(f"{text} {token_id}" for text, token_id in tokens.items()) or "none"


def _count(count: int | None) -> str:
    if count is None:
        return ""
    return f"{count / 1e9:.2f} B" if count >= 1e9 else f"{count / 1e6:.1f} M"


def _size(size: int | None) -> str:
    return "" if size is None else f"{size / 1e6:,.1f} MB"


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def _say_phase(phase: str, fraction: float) -> None:
    typer.echo(f"{phase} ...", err=True)


@contextmanager
def _progress_bar() -> Iterator[Progress]:
    """A bar on standard error; on no terminal nothing but each phase's name."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    console = Console(file=sys.stderr)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), Remaining())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def report(phase: str, fraction: float) -> None:
            if phase not in tasks:
                tasks[phase] = bar.add_task(phase, total=1.0)
                if not console.is_terminal:
                    _say_phase(phase, fraction)
            bar.update(tasks[phase], completed=fraction)

        yield report
