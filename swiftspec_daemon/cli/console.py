"""Where the command line's words go: results to standard output, all else to standard error.

Colours and progress bars only on a terminal. Knows nothing of what is said.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from swiftspec_daemon.errors import SwiftSpecError


def output() -> Console:
    """For results. Lines are not broken, so that pipes get them whole."""
    return Console(soft_wrap=True, highlight=False, emoji=False)


def messages() -> Console:
    """For notes, progress and errors."""
    return Console(stderr=True, soft_wrap=True, highlight=False, emoji=False)


def note(text: str) -> None:
    """One dim line for people."""
    messages().print(f"[dim]{escape(text)}[/]")


def print_facts(console: Console, facts: Mapping[str, str], *, indent: int = 0) -> None:
    """One line a fact, names dim, values as markup in a column of their own, never broken."""
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        console.print(f"{' ' * indent}[dim]{escape(name.ljust(width))}[/]  {value}")


def print_table(table: Table) -> None:
    """A table of plain texts: drawn on a terminal, elsewhere a line for each row, none cut."""
    if (console := output()).is_terminal:
        Console(markup=False, highlight=False, emoji=False).print(table)
        return
    cells = zip(*(column.cells for column in table.columns), strict=True)
    rows = [[str(cell) for cell in row] for row in cells]
    rows.insert(0, [str(column.header) for column in table.columns])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    for line in (table.title, *lines, table.caption):
        if line:
            console.print(str(line), markup=False)


def show_error(error: SwiftSpecError) -> None:
    """One line for what is wrong, one for what to do next."""
    console = messages()
    console.print(f"[bold red]error:[/] {escape(error.message)}")
    if error.hint:
        console.print(f"[dim]{escape(error.hint)}[/]")


def write_text(text: str, *, style: str = "") -> None:
    """Text exactly as it is, at once; styled only on a terminal.

    Characters that the terminal's encoding lacks are replaced.
    """
    if style and sys.stdout.isatty():
        output().print(escape(text), style=style, end="")
        return
    try:
        sys.stdout.write(text)
    except UnicodeEncodeError:
        encoding = sys.stdout.encoding
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()


def write_json(value: object) -> None:
    """One JSON object on one line; wire messages with all their fields, defaults too."""
    import msgspec

    def plain(part: object) -> object:
        if isinstance(part, msgspec.Struct):
            return {name: plain(getattr(part, name)) for name in part.__struct_fields__}
        if isinstance(part, dict):
            return {name: plain(inner) for name, inner in part.items()}
        return [plain(inner) for inner in part] if isinstance(part, list) else part

    sys.stdout.write(msgspec.json.encode(plain(value)).decode() + "\n")
    sys.stdout.flush()
