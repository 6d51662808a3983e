"""Entry point of the `swiftspec` command.

The bridge is dispatched here, before the command line's libraries are imported: it must stay
small. Everything else is the command line's.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run `swiftspec` with the arguments of this process, and exit with its status."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["lsp"]:
        from swiftspec_daemon.lsp.server import main as bridge

        sys.exit(bridge(arguments[1:]))
    from swiftspec_daemon.cli.app import main as command_line

    sys.exit(command_line(arguments))


if __name__ == "__main__":
    main()
