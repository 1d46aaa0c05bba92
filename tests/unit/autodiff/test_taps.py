from __future__ import annotations

import numpy as np
import pytest
from oracles import oracle

from orion_ane.autodiff.reverse import cotangents, substitute
from orion_ane.autodiff.taps import backward
from orion_ane.errors import ShapeError
from orion_ane.ir import Graph, verify
from orion_ane.ops import conv1x1, evaluate, greater_equal, input_, select, sigmoid, weight
from orion_ane.types import DType, TensorType

FP32_ROUNDING = 1e-5


def tensor(*shape):
    return TensorType(DType.FP32, shape)


def swiglu():
    x = input_("x", tensor(1, 6, 1, 4))
    up, gate, down = (
        weight(n, tensor(*s, 1, 1)) for n, s in (("up", (9, 6)), ("gate", (9, 6)), ("down", (6, 9)))
    )
    gain = weight("gain", tensor(1, 6, 1, 1))
    h = x * gain
    g, u = conv1x1(h, gate), conv1x1(h, up)
    y = x + conv1x1(g * sigmoid(g) * u, down)
    return Graph({"x": x}, {"y": y}), {"g": g, "u": u}


def feeds(graph, rng, **known):
    values = {
        n: rng.normal(size=node.type.shape).astype(np.float32) for n, node in graph.inputs.items()
    }
    return values | known


def weights_of(graph, rng):
    leaves = {n.op.label: n.type.shape for n in graph.nodes if n.op.name == "weight"}
    return {label: rng.normal(size=shape).astype(np.float32) for label, shape in leaves.items()}


def by_torch(values, weights):
    torch = oracle("torch")
    t = {
        k: torch.tensor(v, dtype=torch.float64, requires_grad=True)
        for k, v in {**values, **weights}.items()
    }

    def conv(x, w):
        return torch.nn.functional.conv2d(x, w)

    h = t["x"] * t["gain"]
    g, u = conv(h, t["gate"]), conv(h, t["up"])
    y = t["x"] + conv(g * torch.sigmoid(g) * u, t["down"])
    return y, t


@pytest.mark.parametrize("recompute", [False, True], ids=["taps", "recomputed"])
def test_a_backward_kernel_agrees_with_torch(recompute, rng):
    graph, inner = swiglu()
    made = backward(graph, of=["y"], wrt=["x"], save=inner if recompute else None)
    verify(made.forward)
    verify(made.graph)
    weights, x = weights_of(graph, rng), feeds(graph, rng)
    dy = rng.normal(size=(1, 6, 1, 4)).astype(np.float32)
    forward = evaluate(made.forward, x, weights)
    known = {**x, **forward, "d_y": dy}
    got = evaluate(made.graph, {n: known[n] for n in made.graph.inputs}, weights)
    y, t = by_torch(x, weights)
    y.backward(t["x"].new_tensor(dy))
    assert got["d_x"] == pytest.approx(t["x"].grad.numpy(), rel=FP32_ROUNDING, abs=1e-4)
    assert got["d_gain"] == pytest.approx(t["gain"].grad.numpy(), rel=FP32_ROUNDING, abs=1e-4)
    known |= got
    assert sorted(pair.weight for pair in made.pairs) == ["down", "gate", "up"]
    for pair in made.pairs:
        product = known[pair.dy][0, :, 0] @ known[pair.x][0, :, 0].T
        want = t[pair.weight].grad.numpy()[..., 0, 0]
        assert product == pytest.approx(want, rel=FP32_ROUNDING, abs=1e-4)


def test_saving_fewer_values_computes_more_again():
    graph, inner = swiglu()
    everything, few = (
        backward(graph, of=["y"], wrt=["x"], save=s, weights=False) for s in (None, inner)
    )
    assert set(few.taps) == {"g", "u"}
    assert len(few.taps) < len(everything.taps)
    assert len(few.graph.nodes) > len(everything.graph.nodes) - len(everything.taps)


def test_a_port_of_the_forward_kernel_is_tapped_under_its_own_name():
    x = input_("x", tensor(1, 2, 1, 3))
    made = backward(Graph({"x": x}, {"y": sigmoid(x)}), of=["y"], wrt=["x"])
    assert made.taps == ("y",)
    assert list(made.graph.inputs) == ["y", "d_y"]
    assert list(made.forward.outputs) == ["y"]


def test_a_step_carries_no_gradient():
    x = input_("x", tensor(3))
    y = select(greater_equal(x, x), x, x)
    assert cotangents(Graph({"x": x}, {"y": y}), {"y": input_("d", tensor(3))})[x].type == x.type
    z = input_("z", tensor(3))
    stepped = Graph({"x": x, "z": z}, {"y": select(greater_equal(z, z), x, x)})
    with pytest.raises(ShapeError, match="does not reach the input"):
        backward(stepped, of=["y"], wrt=["z"])


def test_unknown_ports_are_named():
    graph, _ = swiglu()
    with pytest.raises(ShapeError, match="no such port: got q"):
        backward(graph, of=["q"], wrt=["x"])
    with pytest.raises(ShapeError, match="no such port: got q"):
        backward(graph, of=["y"], wrt=["q"])


def test_a_deep_graph_needs_no_deep_stack():
    x = node = input_("x", tensor(2))
    for _ in range(5000):
        node = node + x
    made = backward(Graph({"x": x}, {"y": node}), of=["y"], wrt=["x"])
    ones = np.ones(2, np.float32)
    assert evaluate(made.graph, {"d_y": ones})["d_x"].tolist() == [5001, 5001]


def test_substitution_leaves_alone_what_it_need_not_rebuild():
    x = input_("x", tensor(2))
    a, b = sigmoid(x), x + x
    swapped = substitute({"a": a, "b": b + a}, {a: b})
    assert swapped["a"] is b
    assert swapped["b"].args == (b, b)
