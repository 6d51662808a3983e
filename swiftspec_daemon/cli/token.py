"""`swiftspec token`: the key that clients show to the daemon."""

from __future__ import annotations

import typer

app = typer.Typer(help="The key that clients show to the daemon.", no_args_is_help=True)
