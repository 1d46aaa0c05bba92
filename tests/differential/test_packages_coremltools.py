"""Packages against coremltools: its loader takes what we write, and we read what it writes.

The loader builds each op again: it knows the op and its parameters, infers every type, and reads
every blob, so that a package with a wrong name, type, default or offset is refused.
"""

from __future__ import annotations

import gc
import logging
import tempfile
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kernel_scenes import TOYS, cases
from oracles import oracle
from packages import model_path, package_graphs

from orion_ane.compiler import compile as compile_graph
from orion_ane.interop.coreml import read_package, write_package
from orion_ane.ir import Graph, Node
from orion_ane.mil import DIALECTS
from orion_ane.ops import Weight, const, input_, matmul, weight
from orion_ane.ops.foreign.quantization import AffineDequantize, BlockwiseShiftScale
from orion_ane.runtime import backend
from orion_ane.types import DType, TensorType

LOADED = frozenset(
    {"add", "sub", "mul", "real_div", "maximum", "relu", "tanh", "sigmoid", "exp", "sqrt", "rsqrt"}
    | {"clip", "pow", "neg", "cast", "identity", "transpose", "slice", "reshape", "softmax"}
    | {"reduce_sum", "reduce_mean", "reduce_max", "conv1x1", "matmul"}
)


@pytest.fixture(scope="module")
def coreml():
    """What the tests need of coremltools, without its chatter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        oracle("coremltools")
        proto = oracle("coremltools.converters.mil.frontend.milproto.load")
        yield SimpleNamespace(
            load=proto.load,
            load_spec=oracle("coremltools.models.utils").load_spec,
            mb=oracle("coremltools.converters.mil.mil").Builder,
            convert=oracle("coremltools").convert,
            targets=oracle("coremltools").target,
        )
        logging.disable(logging.NOTSET)


def loaded(coreml, path: Path):
    """The program that coremltools makes of a package.

    Raises:
        Exception: of any kind, where it refuses the package.
    """
    spec = coreml.load_spec(str(path))
    folder = path / "Data" / "com.apple.CoreML" / "weights"
    return coreml.load(spec, spec.specificationVersion, str(folder))


def ports_of(function) -> tuple[dict, list]:
    inputs = {name: tuple(var.shape) for name, var in function.inputs.items()}
    return inputs, [(var.name, tuple(var.shape)) for var in function.outputs]


@pytest.mark.parametrize("target", ["strict", None], ids=["strict", "plain"])
@pytest.mark.parametrize("case", cases(TOYS), ids=str)
def test_coremltools_loads_every_kernel(case, target, coreml, tmp_path):
    graph = case.graph()
    leaves = {node.op.label: node.type for node in graph.nodes if isinstance(node.op, Weight)}
    weights = {label: np.zeros(of.shape, of.dtype.numpy) for label, of in leaves.items()}
    program = compile_graph(graph, weights, target=target)
    write_package(program, tmp_path / "a.mlpackage")
    (function,) = loaded(coreml, tmp_path / "a.mlpackage").functions.values()
    inputs, outputs = ports_of(function)
    assert inputs == {port.symbol: port.type.shape for port in program.inputs}
    assert outputs == [(port.symbol, port.type.shape) for port in program.outputs]


def reduces_constants(graph: Graph) -> bool:
    """Whether the loader works out a reduction itself, at which it fails with numpy 2."""
    fed: set[Node] = set()
    for node in graph.nodes:
        if node.op.name == "input" or not fed.isdisjoint(node.args):
            fed.add(node)
        elif node.op.name.startswith("reduce_"):
            return True
    return False


@settings(max_examples=40)
@given(
    case=package_graphs(rows=LOADED, max_nodes=12), dialect=st.sampled_from(list(DIALECTS.values()))
)
def test_coremltools_loads_random_graphs(coreml, case, dialect):
    graph, weights = case
    assume(not reduces_constants(graph))
    with tempfile.TemporaryDirectory() as room:
        path = Path(room) / "a.mlpackage"
        write_package(graph, path, weights, dialect=dialect)
        (function,) = loaded(coreml, path).functions.values()
    inputs, outputs = ports_of(function)
    assert inputs == {name: node.type.shape for name, node in graph.inputs.items()}
    assert outputs == [(name, node.type.shape) for name, node in graph.outputs.items()]


PACKED = {
    "ios16": AffineDequantize(axis=0),
    "ios17": AffineDequantize(axis=1),
    "ios18": BlockwiseShiftScale(),
}


@pytest.mark.parametrize("name", PACKED, ids=str)
def test_coremltools_loads_packed_weights_where_each_generation_has_them(name, coreml, tmp_path):
    """Until iOS17 their parts are attributes of the op, then arguments."""
    row = PACKED[name]
    types = {"data": TensorType(DType.INT8, (4, 6)), "scale": TensorType(DType.FP16)}
    if name == "ios18":
        types["scale"] = TensorType(DType.FP16, (4, 3))
    else:
        types["zero"] = TensorType(DType.INT8)
    weights = {label: np.ones(of.shape, of.dtype.numpy) for label, of in types.items()}
    packed = Node(
        row,
        tuple(
            const(value, types[label].dtype)
            if not types[label].rank
            else weight(label, types[label])
            for label, value in weights.items()
        ),
    )
    x = input_("x", TensorType(DType.FP16, (2, 4)))
    graph = Graph({"x": x}, {"y": matmul(x, packed)})
    used = {label: value for label, value in weights.items() if types[label].rank}
    write_package(graph, tmp_path / "a.mlpackage", used, dialect=DIALECTS[name])
    assert loaded(coreml, tmp_path / "a.mlpackage")
    again = read_package(tmp_path / "a.mlpackage").graph
    assert [type(node.op) for node in again.nodes].count(type(row)) == 1


def weight_of(spec):
    """The operation that reads the only blob."""
    function = spec.mlProgram.functions["main"]
    (block,) = function.block_specializations.values()
    return next(op for op in block.operations if op.attributes["val"].blobFileValue.fileName)


def wrong_offset(spec):
    weight_of(spec).attributes["val"].blobFileValue.offset = 128


def wrong_name(spec):
    spec.mlProgram.functions["main"].block_specializations["CoreML8"].operations[-1].type = "addd"


def wrong_type(spec):
    (block,) = spec.mlProgram.functions["main"].block_specializations.values()
    block.operations[-1].outputs[0].type.tensorType.dimensions[0].constant.size = 7


@pytest.mark.parametrize("fault", [wrong_offset, wrong_name, wrong_type], ids=lambda f: f.__name__)
def test_the_loader_refuses_what_the_tests_above_look_for(fault, coreml, tmp_path):
    x = input_("x", TensorType(DType.FP16, (2, 3)))
    graph = Graph({"x": x}, {"y": x + weight("w", x.type)})
    write_package(graph, tmp_path / "a.mlpackage", {"w": np.ones((2, 3), np.float16)})
    assert loaded(coreml, tmp_path / "a.mlpackage")
    spec = coreml.load_spec(str(tmp_path / "a.mlpackage"))
    fault(spec)
    model_path(tmp_path / "a.mlpackage").write_bytes(spec.SerializeToString())
    with pytest.raises(Exception):  # noqa: B017 (it has no error of its own)
        loaded(coreml, tmp_path / "a.mlpackage")


def save(coreml, program, target, path: Path) -> None:
    """Convert and save, and let go of the converter's temporary folder, which warns of itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = coreml.convert(program, minimum_deployment_target=target, skip_model_load=True)
        model.save(str(path))
        del model
        gc.collect()


@pytest.mark.parametrize("target", ["iOS15", "iOS16", "iOS17", "iOS18"])
def test_a_package_of_coremltools_computes_what_numpy_says(coreml, target, tmp_path, rng):
    mb, chosen = coreml.mb, getattr(coreml.targets, target)
    weight = rng.uniform(-1, 1, (6, 4, 1, 1)).astype(np.float32)
    table = rng.integers(-5, 5, (1, 6, 8, 1)).astype(np.int32)

    @mb.program(input_specs=[mb.TensorSpec(shape=(1, 4, 8, 1))], opset_version=chosen)
    def program(x):
        y = mb.conv(x=x, weight=weight)
        shifted = mb.add(x=y, y=mb.cast(x=table, dtype="fp32"))
        a, b = mb.split(x=mb.tanh(x=shifted), num_splits=2, axis=1)
        return mb.mul(x=mb.sigmoid(x=a), y=mb.reduce_max(x=b, axes=[2], keep_dims=True), name="y")

    save(coreml, program, chosen, tmp_path / "a.mlpackage")
    package = read_package(tmp_path / "a.mlpackage")
    assert f"ios{package.function().opset}" == target.lower()
    x = rng.uniform(-1, 1, (1, 4, 8, 1)).astype(np.float32)
    got = backend("cpu", threads=1).compile(package.program()).run({"x": x})["y"]
    y = np.tanh(np.einsum("oi,nihw->nohw", weight[:, :, 0, 0], x) + table)
    want = 1 / (1 + np.exp(-y[:, :3])) * y[:, 3:].max(axis=2, keepdims=True)
    np.testing.assert_allclose(got, want, atol=5e-3)
