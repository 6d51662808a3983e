"""Speed of the native kernels alone: decode by rows at a context, and prefill.

    python benchmarks/native_forward.py [--threads 1 2] [--isa avx512-vnni] [--context 500]

Random weights in the shapes of the default model (SmolLM2-135M). Medians; the processor time beside
them tells whether other programs were in the way.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from swiftspec_daemon.kernels.native import packing
from swiftspec_daemon.kernels.native.choose import OpenModel, open_model
from swiftspec_daemon.kernels.native.library import describe
from swiftspec_daemon.kernels.native.shape import NativeShape

SHAPE = NativeShape(
    hidden=576,
    layers=30,
    heads=9,
    kv_heads=3,
    head_dim=64,
    ff=1536,
    vocab=49152,
    norm_eps=1e-5,
    tied=True,
)
GROWN = [-1, 0, 1, 2, *(3 if i < 4 else i for i in range(16)), *([0] * 8)]
"""A draft's tree: below its first four rows hang 16 more, which a re-rooting there keeps."""
TREE = [-1, 0, 0, 0, 1, 1, 2, 4, 4, 5, 7, 7, 8, 10, 12, 13]


def random_arrays(shape: NativeShape) -> dict[str, npt.NDArray[np.generic]]:
    """Packed arrays of random bytes; every linear layer keeps the size of its input."""
    random = np.random.default_rng(0)
    arrays: dict[str, npt.NDArray[np.generic]] = {}

    def linear(name: str, out: int, width: int) -> None:
        values = random.integers(-127, 128, (out, width), np.int8)
        arrays[f"{name}.panels"] = packing.to_panels(values)
        arrays[f"{name}.scales"] = np.full(out, 1 / (73 * width**0.5), np.float32)

    linear("embedding", shape.vocab, shape.hidden)
    arrays["final_norm"] = np.ones(shape.hidden, np.float32)
    for i in range(shape.layers):
        linear(f"layers.{i}.qkv", shape.qkv_heads * shape.head_channels, shape.hidden)
        linear(f"layers.{i}.output", shape.hidden, shape.heads * shape.head_width)
        linear(f"layers.{i}.gate_up", 2 * shape.ff, shape.hidden)
        linear(f"layers.{i}.down", shape.hidden, shape.ff)
        for norm in ("attention_norm", "ff_norm"):
            arrays[f"layers.{i}.{norm}"] = np.ones(shape.hidden, np.float32)
    return arrays


def measure(work: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Median milliseconds, by the clock and of processor time."""
    clock, processor = [], []
    for _ in range(repeats):
        start, used = time.perf_counter(), time.process_time()
        work()
        clock.append(1e3 * (time.perf_counter() - start))
        processor.append(1e3 * (time.process_time() - used))
    return statistics.median(clock), statistics.median(processor)


def run(model: OpenModel, threads: int, context: int, repeats: int) -> None:
    """Prints one table."""
    cache = model.new_cache(context + 64)
    tokens = np.random.default_rng(1).integers(0, SHAPE.vocab, context).tolist()

    def prefill() -> None:
        model.truncate(cache, 0)
        model.append(cache, tokens)

    print(f"\n{model.isa}, {model.compiler}, {threads} thread(s), context {context}")
    clock, processor = measure(prefill, 3)
    print(f"prefill {1e3 * context / clock:8.0f} tokens/s   ({processor:.0f} ms of processor time)")
    print("rows      ms  to 1 row   rows/s   processor ms")
    one = None
    for rows in (1, 2, 4, 8, 16):
        nodes, parents = tokens[:rows], TREE[:rows]
        clock, processor = measure(lambda n=nodes, p=parents: model.speculate(cache, n, p), repeats)
        one = one or clock
        print(
            f"{rows:4} {clock:7.2f} {clock / one:9.2f} {1e3 * rows / clock:8.0f} {processor:14.2f}"
        )
    reroot = measure_reroot(model, cache, repeats)
    print(f"re-rooting, 4 rows to the prefix and 16 kept: {1e3 * reroot:.0f} microseconds")


def measure_reroot(model: OpenModel, cache: Any, repeats: int) -> float:
    """Median milliseconds of the call; the rows are moved by the forward pass that follows."""
    length, clock = cache.length, []
    for _ in range(repeats):
        model.truncate(cache, length)
        model.grow(cache, [1] * len(GROWN), GROWN)
        start = time.perf_counter()
        model.reroot(cache, range(4), range(4, 20))
        clock.append(1e3 * (time.perf_counter() - start))
    return statistics.median(clock)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--isa", help="as SWIFTSPEC_NATIVE_ISA; the best if absent")
    parser.add_argument("--context", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=24)
    options = parser.parse_args()
    print(f"native kernels: {describe()}")
    arrays = random_arrays(SHAPE)
    angles = np.arange(options.context + 64)[:, None] * 1e5 ** (-np.arange(32) / 32)
    tables = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    for threads in options.threads:
        model = open_model(SHAPE, arrays, *tables, threads=threads, isa=options.isa)
        run(model, threads, options.context, options.repeats)


if __name__ == "__main__":
    main()
