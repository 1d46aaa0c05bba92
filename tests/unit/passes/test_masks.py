from __future__ import annotations

import numpy as np

from orion_ane.compiler import compile as compile_graph
from orion_ane.ir import Graph
from orion_ane.ops import cast, const, evaluate, input_, softmax
from orion_ane.runtime.registry import backend
from orion_ane.types import DType, TensorType

FP32_MIN = -3.4028235e38


def test_a_padded_row_under_an_fp32_mask_is_no_nan_N05():
    """Rows 0 and 1 are padded on the left, row 2 wholly: its mask hides everything."""
    hidden = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1]], bool)
    scores = input_("scores", TensorType(DType.FP16, hidden.shape))
    mask = cast(const(np.where(hidden, FP32_MIN, 0), DType.FP32), DType.FP16)
    program = compile_graph(
        Graph({"scores": scores}, {"y": softmax(scores + mask, 1)}), target=None
    )
    assert "inf" not in program.text
    feed = {"scores": np.full(hidden.shape, -30, np.float16)}
    for device in (backend("emulator", target=None), backend("cpu")):
        y = device.compile(program).run(feed)["y"]
        assert np.isfinite(y).all()
        assert (y[:2][hidden[:2]] == 0).all()
        assert np.allclose(y.sum(1), 1, atol=2e-3)


def test_the_pass_is_what_keeps_it_finite():
    scores = input_("scores", TensorType(DType.FP16, (2,)))
    mask = cast(const(np.full(2, FP32_MIN), DType.FP32), DType.FP16)
    graph = Graph({"scores": scores}, {"y": scores + mask})
    feed = {"scores": np.zeros(2, np.float16)}
    assert np.isneginf(evaluate(graph, feed)["y"]).all()
    compiled = compile_graph(graph, target=None)
    assert backend("cpu").compile(compiled).run(feed)["y"].tolist() == [-1e4, -1e4]
