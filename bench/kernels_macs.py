"""What the ANE's exact product-sums cost: products a second, and beside fp16 weights in fp32 sums.

    python bench/kernels_macs.py

Prints a table.  One thread; this process's own CPU time, since others may use the machine; medians
of interleaved runs; ratios are of medians in the same run.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import get_args

import numba
import numpy as np
from llvmlite import binding

from orion_ane.ane.numerics import ConvForm
from orion_ane.engine.macs.conv import conv, conv_weight
from orion_ane.engine.macs.products import product_sum, rows
from orion_ane.engine.plan.plan import plan
from orion_ane.engine.threads import Threads
from orion_ane.ir import Graph
from orion_ane.ops import Weight, cast, conv1x1, input_, weight
from orion_ane.types import Array, DType, TensorType

Work = Callable[[], object]


def medians(works: dict[str, Work], runs: int) -> dict[str, float]:
    """Seconds of CPU for each, the works taken in turn."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()
    for _ in range(runs):
        for name, work in works.items():
            before = time.process_time()
            work()
            taken[name].append(time.process_time() - before)
    return {name: median(seconds) for name, seconds in taken.items()}


def normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> Array:
    """Random fp16 numbers."""
    return (rng.standard_normal(shape) * scale).astype(np.float16)


def wide(rng: np.random.Generator, runs: int) -> None:
    """GEMM: with a model's numbers; with such as need fp64 sums; conv 3x3."""
    works: dict[str, Work] = {}
    products: dict[str, int] = {}
    for o, k, s in [(768, 2048, 256), (2048, 768, 256), (768, 768, 64), (768, 768, 16)]:
        w = rows(normal(rng, o, k, scale=0.02))
        for label, scale in (("", 1.0), (", outliers", 60.0)):
            name = f"[{o},{k}] x [{k},{s}]{label}"
            works[name] = partial(product_sum, w, normal(rng, k, s, scale=scale), overflow="sticky")
            products[name] = o * k * s
    x, w4 = normal(rng, 1, 64, 32, 32), normal(rng, 64, 64, 3, 3, scale=0.05)
    for form in get_args(ConvForm):
        name = f"conv 3x3, 64 to 64, 32x32, {form}"
        works[name] = partial(conv, x, conv_weight(w4, form), overflow="sticky", pad=(1, 1, 1, 1))
        products[name] = 64 * 64 * 9 * 32 * 32
    print(f"\n{'product':44} {'G products/s a core':>20}")
    for name, seconds in medians(works, runs).items():
        print(f"{name:44} {products[name] / seconds / 1e9:20.1f}")


def thin(rng: np.random.Generator, runs: int) -> None:
    """One column: the exact sum beside fp32 sums of the same fp16 weights."""
    print(f"\n{'one column':20} {'exact GB/s':>12} {'fp32 sums GB/s':>15} {'ratio':>7}")
    for o, k in [(768, 768), (2048, 768), (768, 2048), (32000, 768)]:
        w, x = normal(rng, o, k, scale=0.02), normal(rng, k, 1)
        repeats = max(1, 16_000_000 // w.size)
        exact = partial(product_sum, rows(w), x, overflow="sticky")
        inexact = product(w, x.astype(np.float32))
        works = {"exact": repeated(exact, repeats), "inexact": repeated(inexact, repeats)}
        found = medians(works, runs)
        rates = [w.nbytes * repeats / found[name] / 1e9 for name in works]
        print(f"{f'[{o},{k}]':20} {rates[0]:12.1f} {rates[1]:15.1f} {rates[0] / rates[1]:7.2f}")


def product(w: Array, x: Array) -> Work:
    """An fp16 weight times a column in fp32 sums, as `cpu` computes it."""
    leaf, column = weight("w", TensorType.of(w[..., None, None])), x[None, :, :, None]
    fed = input_("x", TensorType.of(column))
    graph = Graph({"x": fed}, {"y": conv1x1(fed, cast(leaf, DType.FP32))})
    assert isinstance(leaf.op, Weight)
    made = plan(graph, {leaf.op: w[..., None, None]}, rounds=False, threads=Threads(1))
    return made.bind({"x": column}, {"y": np.empty((1, len(w), 1, 1), np.float32)}).run


def repeated(work: Work, repeats: int) -> Work:
    """The work as often as its time can be told."""

    def often() -> None:
        for _ in range(repeats):
            work()

    return often


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    numba.set_num_threads(1)
    rng = np.random.default_rng(0)
    has_wide = binding.get_host_cpu_features().get("avx512f", False)
    width = "AVX-512" if has_wide else "no AVX-512"
    print(
        f"{platform.machine()}, {binding.get_host_cpu_name()}, {width}, numba {numba.__version__}"
    )
    wide(rng, runs)
    thin(rng, runs)


if __name__ == "__main__":
    main()
