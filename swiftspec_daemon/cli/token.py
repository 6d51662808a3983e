"""`swiftspec token`: the key that clients show to the daemon."""

from __future__ import annotations

import typer

app = typer.Typer(help="The key that clients show to the daemon.", no_args_is_help=True)


@app.command()
def show() -> None:
    """Print the token; one is made if there is none yet."""
    from swiftspec_daemon.server.auth import load_or_create_token

    print(load_or_create_token())


@app.command()
def rotate() -> None:
    """Replace the token by a new one, and end a daemon that runs, since it wants the old one.

    Every connection ends with it. Editors reconnect by themselves, and the first one starts a
    daemon again.
    """
    from swiftspec_daemon import paths
    from swiftspec_daemon.cli.console import note, output
    from swiftspec_daemon.client import discovery
    from swiftspec_daemon.errors import SwiftSpecError
    from swiftspec_daemon.server.auth import rotate_token

    try:
        running = discovery.find()
    except SwiftSpecError:  # the token cannot be read: there is no way to ask the daemon
        running = None
    rotate_token()
    output().print(f"There is a new token in {paths.token_file()}")
    if running is None:
        return
    discovery.request_shutdown(running)
    if discovery.wait_gone(running, 15.0):
        note(f"Daemon {running.pid} has ended; the next client starts one with the new token.")
    else:
        raise SwiftSpecError(
            f"Daemon {running.pid} still runs, with the old token.",
            f"End it with `kill {running.pid}`.",
        )
