"""Kernels by themselves: products thin and wide, a layer's half with and without rounding."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from orion_ane.bench.bandwidth import BEST, UNITS, Bandwidth
from orion_ane.bench.harness import Rates, Samples, Work, interleaved
from orion_ane.bench.peers import Peer
from orion_ane.bench.shapes import SHAPES
from orion_ane.compiler import compile as compile_graph
from orion_ane.ir import Graph
from orion_ane.models.paper import KERNELS
from orion_ane.nn.blocks import Precision, linear
from orion_ane.ops import Weight, input_
from orion_ane.runtime.backend import Executable
from orion_ane.runtime.registry import backend
from orion_ane.types import Array, DType, TensorType

HALF, MIXED = Precision(DType.FP16, DType.FP16), Precision(DType.FP32, DType.FP16)
FP32 = Precision(DType.FP32, DType.FP32)
LEAST_S = 0.05
"""A run repeats its work for about so long, since a clock and a thread's start are not free."""
LANES = 256

THIN, WIDE = (32000, 768, 1), (2048, 768, LANES)
THIN_ROW = "fp16 [32000,768] x [768,1]"
WIDE_ROW = "fp32 [2048,768] x [768,256]"
EXACT_ROW = "exact [2048,768] x [768,256]"
FFN_ROW, FFN_ROUNDED_ROW = "fwd_ffn, 256 lanes", "fwd_ffn, 256 lanes, fp16 after every op"
PEERS_WORK = {"what": "products", "products": {THIN_ROW: THIN, WIDE_ROW: WIDE}}
"""What a peer is asked for: the rows that it may give, and rows, columns and lanes of each."""


def product(rows: int, columns: int, lanes: int, precision: Precision) -> Graph:
    """A product of a weight with an input."""
    x = input_("x", TensorType(precision.compute, (1, columns, 1, lanes)))
    return Graph({"x": x}, {"y": linear(x, precision.matrix("w", rows, columns))})


class Repeated:
    """A program on a device, run until a clock can tell.

    Args:
        graph: what to run, on random numbers.
        row: its name.
        amount: what one evaluation counts for, in billions of the row's unit.
        device: the backend's name.
        options: of the backend.
    """

    def __init__(self, graph: Graph, row: str, amount: float, device: str, **options: Any) -> None:
        rng = np.random.default_rng(0)
        target = "strict" if device == "emulator" else None
        weights = {
            node.op.label: _drawn(rng, node.type.shape, node.type.dtype)
            for node in graph.nodes
            if isinstance(node.op, Weight)
        }
        program = compile_graph(graph, weights, target=target)
        self._loaded: Executable = backend(device, **options).compile(program)
        self._fed: Mapping[str, Array] = {
            port.name: _drawn(rng, port.of.shape, port.of.dtype) for port in program.inputs
        }
        self._row, self._amount = row, amount
        self._times = 0

    def __call__(self) -> Rates:
        """The rate of one run, which is of several evaluations where one is too quick."""
        if not self._times:
            self._loaded.run(self._fed)  # may compile
            before = time.perf_counter()
            self._loaded.run(self._fed)
            self._times = max(1, round(LEAST_S / (time.perf_counter() - before)))
        before = time.perf_counter()
        for _ in range(self._times):
            self._loaded.run(self._fed)
        return {self._row: self._amount * self._times / (time.perf_counter() - before)}

    def close(self) -> None:
        """Unload it."""
        self._loaded.close()


def _drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    return (rng.standard_normal(shape, np.float32) * 0.05).astype(dtype.numpy)


def measure(peers: list[Peer], *, runs: int, threads: int | None) -> Samples:
    """Every kernel, the memory and the peers, in turn."""
    samples = Samples(
        {
            THIN_ROW: "GB/s",
            WIDE_ROW: "Gproducts/s",
            EXACT_ROW: "Gproducts/s",
            FFN_ROW: "runs/s",
            FFN_ROUNDED_ROW: "runs/s",
            **UNITS,
        }
    )
    of_peers: dict[str, dict[str, list[float]]] = {peer.name: {} for peer in peers}

    def take(work: str, found: Rates) -> None:
        if work in of_peers:
            for row, rate in found.items():
                of_peers[work].setdefault(row, []).append(rate)
        else:
            samples.add(found)

    with ExitStack() as stack:
        works: dict[str, Work] = {}
        for name, made in _works(threads).items():
            works[name] = kernel = made()
            stack.callback(kernel.close)
        works |= {peer.name: peer for peer in peers}
        works["memory"] = Bandwidth(threads=threads)
        interleaved(works, runs, take)
    own = samples.rates
    samples.ratio(f"{THIN_ROW}, share of read bandwidth", own[BEST], own[THIN_ROW])
    samples.ratio("fwd_ffn, fp16 after every op over none", own[FFN_ROW], own[FFN_ROUNDED_ROW])
    for name, rows in of_peers.items():
        for row, rates in rows.items():
            if row in own:
                samples.ratio(f"{row}, over {name}", rates, own[row])
    return samples


def _works(threads: int | None) -> dict[str, partial[Repeated]]:
    config = SHAPES["llama-110m"]
    cpu, rounded = {"threads": threads}, {"threads": threads, "numerics": "fp16"}
    thin, wide = (o * k * s / 1e9 for o, k, s in (THIN, WIDE))
    ffn = KERNELS["fwd_ffn"](config, layer=0, lanes=LANES)
    return {
        THIN_ROW: partial(Repeated, product(*THIN, MIXED), THIN_ROW, 2 * thin, "cpu", **cpu),
        WIDE_ROW: partial(Repeated, product(*WIDE, FP32), WIDE_ROW, wide, "cpu", **cpu),
        EXACT_ROW: partial(Repeated, product(*WIDE, HALF), EXACT_ROW, wide, "emulator", **cpu),
        FFN_ROW: partial(Repeated, ffn, FFN_ROW, 1.0, "cpu", **cpu),
        FFN_ROUNDED_ROW: partial(Repeated, ffn, FFN_ROUNDED_ROW, 1.0, "cpu", **rounded),
    }
