"""Products with weights of int8 codes: what they come to, and that nothing is unpacked."""

from __future__ import annotations

import numpy as np
import pytest

from orion_ane.engine import lower
from orion_ane.engine.plan.plan import Plan
from orion_ane.ir import Graph, Node
from orion_ane.ops import Weight, cast, const, conv1x1, input_, weight
from orion_ane.ops.foreign.quantization import AffineDequantize, BlockwiseShiftScale
from orion_ane.types import Array, DType, TensorType

CODED = 2.0**-16
"""What an activation's code is off, at most, against the largest of its block, and a bit more."""
FP32_SUMS = 2.0**-20


def product(
    sizes: tuple[int, int, int], block: int | None, *, half: bool = True
) -> tuple[Graph, Weight, Weight]:
    """W [O, I] times x, one scale for `block` columns of a row, or for all of it."""
    outer, inner, columns = sizes
    data = weight("w", TensorType(DType.INT8, (outer, inner, 1, 1)))
    dtype = DType.FP16 if half else DType.FP32
    if block is None:
        scale = weight("s", TensorType(dtype, (outer,)))
        held = cast(scale, DType.FP32)
        w = Node(AffineDequantize(0), (data, held, const(0, DType.INT8)))
    else:
        scale = weight("s", TensorType(dtype, (outer, inner // block, 1, 1)))
        w = Node(BlockwiseShiftScale(), (data, cast(scale, DType.FP32)))
    x = input_("x", TensorType(DType.FP32, (1, inner, 1, columns)))
    assert isinstance(data.op, Weight)
    assert isinstance(scale.op, Weight)
    return Graph({"x": x}, {"y": conv1x1(x, w)}), data.op, scale.op


def numbers(data: Weight, scale: Weight, seed: int = 0) -> dict[Weight, Array]:
    rng = np.random.default_rng(seed)
    codes = rng.integers(-127, 128, data.of.shape).astype(np.int8)
    scales = rng.uniform(1e-3, 1e-2, scale.of.shape).astype(scale.of.dtype.numpy)
    return {data: codes, scale: scales}


def unpacked(data: Array, scale: Array) -> Array:
    rows = data.reshape(len(data), -1).astype(np.float64)
    wide = scale.reshape(len(data), -1).astype(np.float64)
    return rows * np.repeat(wide, rows.shape[1] // wide.shape[1], axis=1)


@pytest.mark.parametrize(
    ("sizes", "block", "half"),
    [
        ((70, 96, 1), 32, True),
        ((70, 768, 1), 32, True),
        ((70, 512, 5), 32, True),
        ((40, 256, 16), 32, False),
        ((40, 192, 2), 64, True),
        ((64, 160, 1), None, False),
        ((64, 172, 3), None, True),
        ((64, 172, 1), 4, True),
        ((300, 172, 40), 4, True),
        ((640, 128, 48), 32, True),
        ((640, 128, 48), None, False),
    ],
)
def test_a_product_of_codes_is_that_of_what_they_stand_for(
    sizes: tuple[int, int, int], block: int | None, half: bool
) -> None:
    graph, data, scale = product(sizes, block, half=half)
    weights = numbers(data, scale)
    _, inner, columns = sizes
    x = np.random.default_rng(1).standard_normal((inner, columns)).astype(np.float32)
    x[: inner // 2] *= 1e-3  # blocks of other sizes
    plan = lower(graph, weights, numerics="fp32", threads=1)
    assert isinstance(plan, Plan)
    y = plan.run({"x": x[None, :, None]})["y"].reshape(-1, columns)
    w = unpacked(weights[data], weights[scale])
    bound = np.abs(w) @ np.abs(x.astype(np.float64)) * FP32_SUMS
    if inner % 32 == 0 and (block or inner) % 32 == 0:
        largest = np.abs(x).reshape(-1, 32, columns).max(axis=1, keepdims=True)
        bound += (
            np.abs(w)
            @ np.broadcast_to(largest, (inner // 32, 32, columns)).reshape(inner, columns)
            * (CODED * 0.51 * 2)
        )
    assert (np.abs(y - w @ x.astype(np.float64)) <= bound).all()


def test_a_plan_holds_a_byte_a_weight_and_the_scales() -> None:
    graph, data, scale = product((64, 128, 1), 32)
    weights = numbers(data, scale)
    plan = lower(graph, weights, numerics="fp32", threads=1)
    assert isinstance(plan, Plan)
    assert sum(held.nbytes for held in plan.constants) == 64 * 128 + 2 * 64 * 4
    assert any(np.shares_memory(held, weights[data]) for held in plan.constants)


@pytest.mark.parametrize("columns", [1, 3, 48])
def test_a_product_of_codes_does_not_depend_on_threads(columns: int) -> None:
    graph, data, scale = product((512, 256, columns), 32)
    weights = numbers(data, scale)
    x = np.random.default_rng(1).standard_normal((1, 256, 1, columns)).astype(np.float32)
    one, two = (
        lower(graph, weights, numerics="fp32", threads=n).run({"x": x})["y"] for n in (1, 2)
    )
    assert np.array_equal(one, two)


def test_a_lane_of_codes_does_not_depend_on_the_others() -> None:
    graph, data, scale = product((64, 256, 4), 32)
    plan = lower(graph, numbers(data, scale), numerics="fp32", threads=1)
    x = np.random.default_rng(1).standard_normal((1, 256, 1, 4)).astype(np.float32)
    turned = np.ascontiguousarray(x[..., ::-1]) * np.float32([1, 1, 1e6, 1]).reshape(1, 1, 1, 4)
    found = plan.run({"x": x})["y"][..., 0], plan.run({"x": turned})["y"][..., 3]
    assert np.array_equal(*found)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_does_not_vanish_in_codes(bad: float) -> None:
    graph, data, scale = product((64, 64, 1), 32)
    plan = lower(graph, numbers(data, scale), numerics="fp32", threads=1)
    x = np.ones((1, 64, 1, 1), np.float32)
    x[0, 40] = bad
    assert not np.isfinite(plan.run({"x": x})["y"]).any()


def test_activations_that_are_nothing_give_nothing() -> None:
    graph, data, scale = product((64, 64, 1), 32)
    plan = lower(graph, numbers(data, scale), numerics="fp32", threads=1)
    assert not plan.run({"x": np.full((1, 64, 1, 1), 1e-38, np.float32)})["y"].any()


def test_other_weights_of_codes_need_no_new_plan() -> None:
    graph, data, scale = product((64, 64, 1), 32)
    plan = lower(graph, numbers(data, scale), numerics="fp32", threads=1)
    assert isinstance(plan, Plan)
    other = numbers(data, scale, seed=5)
    renewed = plan.with_weights(other)
    assert renewed.code is plan.code
    x = np.random.default_rng(1).standard_normal((1, 64, 1, 1)).astype(np.float32)
    afresh = lower(graph, other, numerics="fp32", threads=1)
    assert np.array_equal(renewed.run({"x": x})["y"], afresh.run({"x": x})["y"])


def test_codes_that_something_else_reads_are_unpacked() -> None:
    graph, data, scale = product((64, 64, 1), 32)
    w = graph.outputs["y"].args[1]
    both = Graph(graph.inputs, {**graph.outputs, "w": cast(w, DType.FP16)})
    weights = numbers(data, scale)
    x = np.random.default_rng(1).standard_normal((1, 64, 1, 1)).astype(np.float32)
    found = lower(both, weights, numerics="fp32", threads=1).run({"x": x})
    want = unpacked(weights[data], weights[scale])
    assert np.array_equal(found["w"].reshape(64, 64), want.astype(np.float32).astype(np.float16))
    assert np.allclose(found["y"].ravel(), want @ x.ravel(), rtol=0, atol=1e-5)
