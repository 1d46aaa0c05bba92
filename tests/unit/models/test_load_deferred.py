"""What is read of a checkpoint is in memory as long as somebody has it, and no longer."""

from __future__ import annotations

import gc
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from orion_ane.generate.packing import packed_weights
from orion_ane.models.build import decoder_of
from orion_ane.models.config import LlamaConfig
from orion_ane.models.weights import Rounded, to_fp16
from orion_ane.models.weights.deferred import Deferred
from orion_ane.nn.blocks import Precision
from orion_ane.types import Array, DType

HALVES = Precision(DType.FP32, DType.FP16)
TINY = LlamaConfig(
    vocab=61, context=32, dim=32, layers=2, heads=4, kv_heads=2, head_dim=8, hidden=48, tied=True
)


def counted(reads: list[str]) -> Deferred[Array]:
    def read(name: str, count: int) -> tuple[Array, ...]:
        reads.append(name)
        return tuple(np.full(3, i, np.float32) for i in range(count))

    return Deferred({("a",): lambda: read("a", 1), ("b", "c"): lambda: read("b, c", 2)})


def test_an_array_is_read_once_while_somebody_has_it() -> None:
    reads: list[str] = []
    tensors = counted(reads)
    first = tensors["a"]
    assert tensors["a"] is first
    del first
    gc.collect()
    assert tensors["a"].tolist() == [0, 0, 0]
    assert reads == ["a", "a"]


def test_a_part_that_gives_several_is_read_once_for_all() -> None:
    reads: list[str] = []
    tensors = counted(reads)
    assert [tensors[name][0] for name in ("c", "b")] == [1, 0]
    assert reads == ["b, c"]


def test_threads_that_ask_at_once_get_one_array_read_once() -> None:
    reads: list[str] = []

    def read() -> tuple[Array, ...]:
        reads.append("b, c")
        time.sleep(0.05)  # others ask meanwhile
        return np.zeros(3, np.float32), np.ones(3, np.float32)

    tensors = Deferred({("b", "c"): read})
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(tensors.__getitem__, "bcbc"))
    assert reads == ["b, c"]
    assert found[0] is found[2]
    assert found[1] is found[3]


def test_tensors_are_rounded_when_they_are_asked_for_and_losses_keep_their_order() -> None:
    tensors = {"a": np.array([1e-9], np.float32), "b": np.ones(1), "c": np.array([1e9], np.float32)}
    rounded = Rounded(tensors)
    assert [rounded[name].item() for name in ("c", "a", "c")] == [np.inf, 0, np.inf]
    assert [loss.name for loss in rounded.report.losses] == ["a", "c"]
    assert rounded.report == to_fp16(tensors)[1]


def test_weights_go_as_they_are_packed(rng: np.random.Generator) -> None:
    decoder = decoder_of(TINY)
    shapes = decoder.weights(dict(_random(rng)), HALVES)
    held = [weakref.ref(array.base) for array in shapes.values() if array.base is not None]
    assert held
    packed_weights(decoder, shapes)
    gc.collect()
    assert not shapes
    assert not any(ref() is not None for ref in held)


def _random(rng: np.random.Generator) -> list[tuple[str, Array]]:
    from orion_ane.models.weights import shapes

    return [(n, rng.normal(0, 1, s).astype(np.float16)) for n, s in shapes(TINY).items()]
