"""Every speed that is asked for, measured beside its peers in one go."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from orion_ane.bench import kernels, training
from orion_ane.bench.bandwidth import BEST, UNITS, Bandwidth
from orion_ane.bench.harness import Rates, Row, Samples, Work, interleaved
from orion_ane.bench.inference import DECODE, PREFILL, SHARE, TRAFFIC, WEIGHTS, Ours, peers_work
from orion_ane.bench.own_memory import FREE, LOADED, OWN
from orion_ane.bench.peers import Guarded, Peer, started
from orion_ane.bench.shapes import SHAPES, random_checkpoint
from orion_ane.bench.verdicts import Target
from orion_ane.generate.model import Model, precision_of
from orion_ane.generate.programs import Programs
from orion_ane.generate.session import Session
from orion_ane.models.build import decoder_of
from orion_ane.models.weights import Checkpoint
from orion_ane.models.weights.export import export
from orion_ane.runtime.registry import backend

PROMPT, NEW = 256, 16
SHORT = 8
"""The prompt of those whose reading is not measured."""
ROUNDED, EXACT, HALF, INT8 = (
    "decode, fp16 after every op",
    "exact decode",
    "fp16 decode",
    "decode q8_0",
)
FP32_PREFILL = "prefill fp32"
MEMORY = Path(__file__).with_name("own_memory.py")
PEERS = (
    "llamacpp_f16", "llamacpp_q8_0", "onnxruntime_fp32", "onnxruntime_int8", "transformers_fp32",
    "transformers_bf16", "transformers_fp16", "torch_eager_fp32", "torch_eager_bf16",
    "torch_eager_fp16",
)  # fmt: skip
TRAINERS = ("torch_eager_fp32", "torch_eager_bf16")
OF_KERNELS = ("torch_eager_fp32", "torch_eager_fp16", "onnxruntime_fp32")
PER_SHAPE = (
    Target("decode fp16 over llama.cpp F16", f"{DECODE}, over llamacpp_f16", 1.0, 1.25),
    Target("decode fp16 over transformers fp32", f"{DECODE}, over transformers_fp32", 3.5, 5.0),
    Target("decode, share of read bandwidth (weights, keys and values)", SHARE, 0.75, 0.9),
    Target("the same, weights alone", f"{SHARE}, weights alone", 0.75, 0.9),
    Target("decode q8_0 over llama.cpp Q8_0", f"{INT8}, over llamacpp_q8_0", 0.9, 1.2),
    Target(
        "prefill of 256, fp32, time of torch eager's", f"{FP32_PREFILL}, over torch_eager_fp32",
        1.05, 0.9, is_cost=True,
    ),
    Target(
        "fp16 after every op, time of decode without", f"{ROUNDED}, over none", 1.15, 1.05,
        is_cost=True,
    ),
    Target(
        "exact decode in one-column programs, speed of fp16", "exact decode, over fp16", 0.25, 0.6
    ),
    Target(
        "memory of the whole process, Python and mapped files in it, over the weights' size", FREE,
        1.3, 1.1, is_cost=True,
    ),
    Target("the same, without what is mapped from files", OWN, 1.3, 1.1, is_cost=True),
    Target("the same, without what importing the package takes", LOADED, 1.3, 1.1, is_cost=True),
)  # fmt: skip
OF_TRAINING = (
    Target(
        "training microbatch of 256, fp32, time of torch eager fp32",
        "training, over torch_eager_fp32", 1.1, 0.9, is_cost=True,
    ),
    Target(
        "training microbatch of 256, bf16, time of torch eager bf16",
        f"{training.BRAIN}, over torch_eager_bf16", 1.1, 0.85, is_cost=True,
    ),
    Target(
        "update, share of a step of 4 microbatches", training.UPDATE_SHARE, 0.05, 0.05, is_cost=True
    ),
    Target(
        "training, memory over torch eager fp32's",
        "peak memory of torch_eager_fp32 over ours", 1.1, 1.0, is_cost=True,
    ),
)  # fmt: skip


def of_kernels(threads: int) -> tuple[Target, ...]:
    """The targets of single kernels; products are counted a core."""
    exact = Target(
        "exact GEMM, G products/s a core", kernels.EXACT_ROW, 6.0, 10.0, scale=float(threads)
    )
    rounded = Target(
        "fp16 after every op, time of `fwd_ffn` at 256 lanes without",
        "fwd_ffn, fp16 after every op over none", 1.15, 1.05, is_cost=True,
    )  # fmt: skip
    return exact, rounded


class Renamed:
    """A work whose rates go by other names; those without one are left out."""

    def __init__(self, work: Work, names: Mapping[str, str]) -> None:
        self._work, self._names = work, names

    def __call__(self) -> Rates:
        """The rates of a run."""
        found = self._work()
        return {new: found[old] for old, new in self._names.items()}


class OneColumn:
    """Decoding on the emulator by programs of a single column, as its numerics have it.

    A device's rows are 64 bytes, so that what runs there is 32 columns wide; here only the
    arithmetic counts.
    """

    def __init__(self, checkpoint: Checkpoint, numerics: str, *, new: int, threads: int) -> None:
        device = backend("emulator", numerics=numerics, threads=threads)
        precision = precision_of(device, "auto", checkpoint.stored)
        decoder = decoder_of(checkpoint.config)
        self._programs = Programs(
            decoder, checkpoint.tensors, device, precision=precision, min_lanes=1
        )
        self._model = _Programs(self._programs, checkpoint)
        self._work = Ours(self._model, 1, new)

    def __call__(self) -> Rates:
        """The rates of a run."""
        return self._work()

    def close(self) -> None:
        """Unload it."""
        self._programs.close()


class _Programs:
    """What a run needs of a model."""

    def __init__(self, programs: Programs, checkpoint: Checkpoint) -> None:
        self._programs, self.config = programs, checkpoint.config

    def session(self, *, expect: int = 0) -> Session:
        """A new sequence."""
        return Session(self._programs, expect=expect)


def measure(
    shape: str,
    scripts: list[Path],
    *,
    runs: int,
    threads: int,
    new: int = NEW,
    prompt: int = PROMPT,
) -> tuple[list[Row], dict[str, str], list[str]]:
    """All of one shape: the rows, the peers that ran, and what could not be had."""
    config = SHAPES[shape]
    work = peers_work(config, prompt, new, origin=shape, threads=threads)
    with ExitStack() as stack:
        peers, notes = stack.enter_context(started(scripts, work))
        checkpoint = random_checkpoint(config, shape)
        works = _own(stack, checkpoint, prompt=prompt, new=new, threads=threads)
        guarded = [Guarded(peer, notes) for peer in peers]
        works |= {peer.name: peer for peer in guarded}
        works["memory"] = Bandwidth(threads=threads)
        works["peak"] = stack.enter_context(_memory(stack, checkpoint, work))
        names = {peer.name for peer in peers}
        samples = Samples(_units(names))
        interleaved(works, runs, lambda name, found: samples.add(_told(name, found, names)))
        _ratios(samples, names)
        rows = [replace(row, name=f"{shape}: {row.name}") for row in samples.rows()]
        return rows, {peer.name: peer.what for peer in peers}, [f"{shape}: {n}" for n in notes]


def _own(
    stack: ExitStack, checkpoint: Checkpoint, *, prompt: int, new: int, threads: int
) -> dict[str, Work]:
    """Our own works: each a model of the same weights, as it is stored and computed there."""

    def model(weights: Any, **options: Any) -> Model:
        device = backend("cpu", threads=threads, **options)
        return stack.enter_context(
            Model(checkpoint, backend=device, weights=weights, threads=threads)
        )

    works: dict[str, Work] = {
        "orion fp16": Ours(model("fp16"), prompt, new),
        "orion rounded": Renamed(
            Ours(model("fp16", numerics="fp16"), prompt, new), {DECODE: ROUNDED}
        ),
        "orion fp32": Renamed(Ours(model("fp32"), prompt, 1), {PREFILL: FP32_PREFILL}),
        "orion q8_0": Renamed(Ours(model("q8_0"), SHORT, new), {DECODE: INT8}),
    }
    for numerics, row in (("exact", EXACT), ("fp16", HALF)):
        column = OneColumn(checkpoint, numerics, new=max(1, new // 4), threads=threads)
        stack.callback(column.close)
        works[f"orion emulator {numerics}"] = Renamed(column, {DECODE: row})
    return works


def _memory(stack: ExitStack, checkpoint: Checkpoint, work: Mapping[str, Any]) -> Peer:
    """A process that loads the same weights from a file of fp16."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "model"
    export(folder, checkpoint.config, checkpoint.tensors)
    file = folder / "model.safetensors"
    arrays = {name: array.astype(np.float16) for name, array in load_file(file).items()}
    save_file(arrays, file, metadata={"format": "pt"})
    size = sum(array.nbytes for array in arrays.values())
    asked = {"path": str(folder), "stored": "fp16", "bytes": size, "threads": work["threads"]}
    return Peer(MEMORY, asked | {"ids": work["ids"][:SHORT], "new": 4})


def _units(peers: set[str]) -> dict[str, str]:
    own = (PREFILL, DECODE, FP32_PREFILL, ROUNDED, INT8, EXACT, HALF)
    units = dict.fromkeys(own, "tokens/s") | {FREE: "x", LOADED: "x"}
    units |= dict.fromkeys((WEIGHTS, TRAFFIC), "GB/s")
    units |= {OWN: "x"}
    units |= {f"{row}, {peer}": "tokens/s" for peer in sorted(peers) for row in (PREFILL, DECODE)}
    return units | UNITS


def _told(work: str, found: Rates, peers: set[str]) -> Rates:
    return {f"{row}, {work}": rate for row, rate in found.items()} if work in peers else found


def _ratios(samples: Samples, peers: set[str]) -> None:
    rates = samples.rates
    pairs = [
        (SHARE, BEST, TRAFFIC),
        (f"{SHARE}, weights alone", BEST, WEIGHTS),
        (f"{ROUNDED}, over none", DECODE, ROUNDED),
        ("exact decode, over fp16", HALF, EXACT),
    ]
    for peer in sorted(peers):
        row = INT8 if peer.endswith(("q8_0", "int8")) else DECODE
        pairs.append((f"{row}, over {peer}", f"{DECODE}, {peer}", row))
        pairs.append((f"{FP32_PREFILL}, over {peer}", f"{PREFILL}, {peer}", FP32_PREFILL))
    for name, over, of in pairs:
        if len(rates.get(over, ())) == len(rates.get(of, ())) > 0:  # a peer may have ended early
            samples.ratio(name, rates[over], rates[of])
