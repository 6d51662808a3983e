"""Complete a file at its end, printing the text as it comes: python complete.py FILE"""

import sys
from pathlib import Path

from swiftspec_daemon.client import Client, Position

path = Path(sys.argv[1]).absolute()
lines = path.read_text("utf-8").split("\n")
with Client() as client:  # starts the daemon if none runs
    client.open(path.as_uri(), "\n".join(lines), language="python")
    end = Position(len(lines) - 1, len(lines[-1]))
    for piece in client.complete(path.as_uri(), end, max_lines=3):
        print(piece, end="", flush=True)
