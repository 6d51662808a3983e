"""Complete a file at its end, printing the text as it comes: python complete.py FILE"""

import sys
from pathlib import Path

from swiftspec_daemon.client import Client, Position
from swiftspec_daemon.errors import SwiftSpecError


def complete(path: Path) -> None:
    text = path.read_text("utf-8")
    lines = text.split("\n")
    with Client() as client:  # starts the daemon if none runs
        client.open(path.as_uri(), text, language="python")
        end = Position(len(lines) - 1, len(lines[-1]))
        for piece in client.complete(path.as_uri(), end, max_lines=3):
            print(piece, end="", flush=True)
    print()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python complete.py FILE")
    try:
        complete(Path(sys.argv[1]).absolute())
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"{sys.argv[1]} cannot be read: {error}")
    except SwiftSpecError as error:  # no model, no room, ...: says what to do next
        sys.exit(f"error: {error}")
