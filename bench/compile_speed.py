"""What the compiler costs: from a graph to a program that is checked for a device.

    python bench/compile_speed.py

Prints: the 72 training programs of Stories110M at sequence 256; programs of whole models of twelve
layers; the cost by the number of nodes.  One thread; this process's own CPU time; medians.  Weights
are laid out before the clock starts; each pass over the programs starts from its builders.
"""

from __future__ import annotations

import argparse
import cProfile
import platform
import pstats
import time
from collections.abc import Callable, Iterator, Mapping
from statistics import median

import numpy as np

from orion_ane.bench.shapes import SHAPES
from orion_ane.compiler import compile as compile_graph
from orion_ane.ir import Graph
from orion_ane.mil import WeightFile, pack
from orion_ane.models.config import ModelConfig
from orion_ane.models.paper import KERNELS
from orion_ane.ops import Weight, const, input_, weight
from orion_ane.types import DType, TensorType

STORIES110M, GPT2_124M = SHAPES["llama-110m"], SHAPES["gpt2-124m"]
TRAINING = ("fwd_attn", "fwd_ffn", "ffn_bwd", "sdpa_bwd1", "sdpa_bwd2", "qkv_bwd")

Build = Callable[[], Graph]


def training() -> Iterator[tuple[str, Build]]:
    """The six kernels of each layer."""
    for layer in range(STORIES110M.layers):
        for name in TRAINING:
            at = {"layer": layer} if "layer" in KERNELS[name].sizes else {}
            yield f"{name} {layer}", lambda name=name, at=at: KERNELS[name](STORIES110M, **at)


def whole() -> Iterator[tuple[str, Build]]:
    """All twelve layers in one program."""
    models: Mapping[str, ModelConfig] = {"Stories110M": STORIES110M, "GPT-2 124M": GPT2_124M}
    for model, config in models.items():
        sizes: Mapping[str, Mapping[str, int]] = {
            "body_prefill": {"lanes": 256},
            "body_decode": {"lanes": 32, "cached": 512},
        }
        for name, size in sizes.items():
            yield (
                f"{model} {name}",
                lambda name=name, config=config, size=size: KERNELS[name](config, **size),
            )


def chain(nodes: int) -> Graph:
    """A graph of about so many nodes: sums, products with vectors, and a weight now and then."""
    of = TensorType(DType.FP16, (1, 64, 1, 32))
    first = x = input_("x", of)
    half = const(0.5, DType.FP16)
    for i in range(nodes // 5):
        x = (x + first) * half
        x = x * weight(f"gain_{i % 500}", of) + x
    return Graph({"x": first}, {"y": x})


def laid_out(graph: Graph) -> WeightFile:
    """A file with a place for each weight of a graph, all zeros."""
    leaves = {node.op.label: node.type for node in graph.nodes if isinstance(node.op, Weight)}
    return pack({name: np.zeros(of.shape, of.dtype.numpy) for name, of in leaves.items()})


def measured(work: Callable[[], object], runs: int) -> float:
    """Seconds of CPU, the median of some runs after one that does not count."""
    taken = []
    work()
    for _ in range(runs):
        before = time.process_time()
        work()
        taken.append(time.process_time() - before)
    return median(taken)


def of_training(runs: int, target: str) -> Callable[[], None]:
    """Prints the cost of each training kernel over all layers, and of all; gives the whole work."""
    builds = dict(training())
    files: dict[str, WeightFile] = {}  # the layers' files are alike
    for key, build in builds.items():
        name = key.split()[0]
        if name not in files:
            files[name] = laid_out(build())
    graphs = {key: _relabelled(build, files[key.split()[0]]) for key, build in builds.items()}

    def compile_all(only: str = "") -> None:
        for key, (build, file) in graphs.items():
            if key.startswith(only):
                compile_graph(build(), file, target=target)

    print(f"{'training programs':28} {'programs':>8} {'s':>8}")
    for name in TRAINING:
        seconds = measured(lambda name=name: compile_all(f"{name} "), runs)
        print(f"{name:28} {STORIES110M.layers:8} {seconds:8.3f}")
    print(f"{'all':28} {len(builds):8} {measured(compile_all, runs):8.3f}")
    return compile_all


def _relabelled(build: Build, like: WeightFile) -> tuple[Build, WeightFile]:
    """A builder with a file that has the labels of its layer, in the bytes of another's."""
    labels = dict.fromkeys(node.op.label for node in build().nodes if isinstance(node.op, Weight))
    old = list(like.offsets)
    offsets = {label: like.offsets[name] for label, name in zip(labels, old, strict=True)}
    types = {label: like.types[name] for label, name in zip(labels, old, strict=True)}
    return build, WeightFile(like.path, like.data, offsets, types)


def of_whole(runs: int, target: str) -> None:
    """Prints the cost of programs of twelve layers."""
    print(f"\n{'whole models':28} {'nodes':>8} {'s':>8}")
    for name, build in whole():
        graph = build()
        file = laid_out(graph)
        seconds = measured(
            lambda build=build, file=file: compile_graph(build(), file, target=target), runs
        )
        print(f"{name:28} {len(graph.nodes):8} {seconds:8.3f}")


def of_nodes(target: str) -> None:
    """Prints the cost by the number of nodes."""
    print(f"\n{'nodes':>28} {'s':>8} {'µs a node':>10}")
    for count in (1000, 2000, 5000, 10_000, 20_000, 50_000):
        graph = chain(count)
        file = laid_out(graph)
        before = time.process_time()
        compile_graph(graph, file, target=target)
        seconds = time.process_time() - before
        print(f"{len(graph.nodes):28} {seconds:8.3f} {seconds / len(graph.nodes) * 1e6:10.1f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--target", default="strict")
    parser.add_argument("--curve", action="store_true", help="the cost by nodes too, to 50,000")
    parser.add_argument("--profile", action="store_true", help="where the 72 programs' time goes")
    options = parser.parse_args()
    print(f"{platform.machine()}, Python {platform.python_version()}, target {options.target}\n")
    compile_all = of_training(options.runs, options.target)
    of_whole(options.runs, options.target)
    if options.curve:
        of_nodes(options.target)
    if options.profile:
        profile = cProfile.Profile()
        profile.runcall(compile_all)
        pstats.Stats(profile).sort_stats("cumulative").print_stats(40)


if __name__ == "__main__":
    main()
