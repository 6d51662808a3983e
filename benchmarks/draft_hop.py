"""How long a message takes from a target to its draft and back: `python benchmarks/draft_hop.py`.

Two processes, the project's own channel and codec, messages as they are in a round: `Verified` with
four tokens one way, a tree of 16 nodes the other. The other side does nothing but answer, so half
of a round trip is a hop: encode, write, wake, read, decode. Further lines: a prompt one way.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

from swiftspec_daemon.engine.drafts.codec import decode_to_draft, decode_to_target, encode
from swiftspec_daemon.parallel.channel import ChannelClosed, FrameChannel
from swiftspec_daemon.speculation.pairing_messages import Begin, Epoch, Plan, Tree, Verified

EPOCH, PLAN = Epoch(1, 1, 1), Plan(16, 8, 4, 2)
NODES = 16
ANSWER = Tree(
    EPOCH,
    [40_000 + node for node in range(NODES)],
    [-1, *range(NODES - 1)],
    [-0.25 * node for node in range(NODES)],
    matched=3,
)


def answer() -> None:
    """The draft's side: a tree for each message."""
    channel = FrameChannel(0, 1)
    try:
        while True:
            for body in channel.receive(None):
                decode_to_draft(body)
                channel.send(encode(ANSWER), timeout_s=5.0)
    except ChannelClosed:
        return


def hops(channel: FrameChannel, message: Begin | Verified, count: int) -> list[float]:
    """Microseconds of half a round trip, `count` times."""
    found = []
    for _ in range(count):
        started = time.perf_counter()
        channel.post(encode(message))
        bodies: list[bytes] = []
        while not bodies:
            bodies = channel.receive(1.0)
        decode_to_target(bodies[0])
        found.append((time.perf_counter() - started) / 2 * 1e6)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    process = subprocess.Popen(
        [sys.executable, __file__, "--answer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    channel = FrameChannel(os.dup(process.stdout.fileno()), os.dup(process.stdin.fileno()))
    process.stdin.close()
    messages: dict[str, Begin | Verified] = {"round": Verified(EPOCH, [1, 2, 3, 40_000], PLAN)}
    for size in (1_000, 4_000, 100_000):
        tokens = [40_000] * size
        messages[f"prompt of {size}"] = Begin(EPOCH, "a.py", tokens, size, bytes(100), PLAN)
    hops(channel, messages["round"], 200)  # warm
    rows = {}
    for name, message in messages.items():
        found = sorted(hops(channel, message, options.rounds if name == "round" else 50))
        rows[name] = {
            "p50_us": round(statistics.median(found), 1),
            "p99_us": round(found[int(0.99 * (len(found) - 1))], 1),
            "bytes": len(encode(message)),
        }
    channel.close()
    process.wait(10)
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        for name, row in rows.items():
            times = f"p50 {row['p50_us']:8} us  p99 {row['p99_us']:8} us"
            print(f"{name:18} {row['bytes']:8} bytes  {times}")


if __name__ == "__main__":
    if "--answer" in sys.argv:
        answer()
    else:
        main()
