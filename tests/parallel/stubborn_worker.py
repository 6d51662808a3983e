"""A worker for the tests of `parallel.processes`: `python -m ... MODE`. Says "hello" in a frame.

Modes: echo (sends back what comes, ends with input), ignore (does not end when asked), deaf (also
ignores terminate), chatty (writes to standard error and prints), crash (ends with status 3).
"""

import os
import signal
import sys
import time

from swiftspec_daemon.parallel.frames import read_frames, write_all
from swiftspec_daemon.parallel.lifeline import claim_standard_output


def main(mode):
    output = claim_standard_output()
    if mode == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    write_all(output, b"\x05\0\0\0hello")
    if mode == "chatty":
        print("a stray print")
        os.write(1, b"a stray write\n")
        sys.stderr.write("x" * 100_000 + "\nlast words")
        sys.stderr.flush()
    if mode == "crash":
        sys.exit(3)
    for body in read_frames(0):
        write_all(output, len(body).to_bytes(4, "little") + body)
    while mode in ("ignore", "deaf"):
        time.sleep(60)


if __name__ == "__main__":
    main(sys.argv[1])
