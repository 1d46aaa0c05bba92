"""Broken packages: one OrionError that says what, never a crash, a hang or a look outside."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import oracle
from packages import model_path

from orion_ane.errors import MilError, OrionError
from orion_ane.interop.coreml import UnsupportedError, read_package, write_package
from orion_ane.interop.coreml.proto import messages
from orion_ane.ir import Graph
from orion_ane.ops import const, input_, matmul, softmax, weight
from orion_ane.types import DType, TensorType

oracle("coremltools")

OF = TensorType(DType.FP16, (2, 4, 4))


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "a.mlpackage"
    x = input_("x", OF)
    y = softmax(matmul(x, weight("w", OF)) + const(np.ones((4, 4)), DType.FP16), axis=-1)
    write_package(Graph({"x": x}, {"y": y}), path, {"w": np.ones(OF.shape, np.float16)})
    read_package(path)
    return path


@pytest.fixture
def package(sound, tmp_path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "a.mlpackage"))


def message(package: Path):
    return messages("Model_pb2").Model.FromString(model_path(package).read_bytes())


def block_of(model):
    return model.mlProgram.functions["main"].block_specializations["CoreML8"]


def statement(model, op: str):
    return next(made for made in block_of(model).operations if made.type == op)


def blob(model):
    return next(
        value
        for made in block_of(model).operations
        for value in (made.attributes["val"],)
        if value.blobFileValue.fileName
    )


def inline(model):
    return next(
        made.attributes["val"]
        for made in block_of(model).operations
        if made.type == "const" and made.attributes["val"].immediateValue.tensor.bytes.values
    )


def sizes(value, *shape: int) -> None:
    for dimension, size in zip(value.type.tensorType.dimensions, shape, strict=True):
        dimension.constant.size = size


def open_size(port) -> None:
    port.type.tensorType.dimensions[0].unknown.SetInParent()


def _path(model, name):
    blob(model).blobFileValue.fileName = name


def _offset(model, offset):
    blob(model).blobFileValue.offset = offset


FAULTS = {
    "no such blob file": lambda m: _path(m, "@model_path/weights/other.bin"),
    "not a path in the package: got @model_path/../../a": lambda m: _path(m, "@model_path/../../a"),
    "not a path in the package: got /etc/passwd": lambda m: _path(m, "/etc/passwd"),
    "not a path in the package: got \\\\": lambda m: _path(m, "\\\\host\\share"),
    "blob at byte 63: no such place": lambda m: _offset(m, 63),
    "blob at byte 9223372036854775808: metadata past the end": lambda m: _offset(m, 1 << 63),
    "the blob at byte 64 of @model_path/weights/weight.bin is another": lambda m: sizes(
        blob(m), 1 << 60, 1 << 60, 1 << 60
    ),
    "too many elements": lambda m: sizes(inline(m), 1 << 62, 1 << 62),
    "not as many bytes as its type": lambda m: sizes(inline(m), 4, 5),
    "not a type": lambda m: setattr(inline(m).type.tensorType, "dataType", 99),
    "no such value: got ghost": lambda m: setattr(
        statement(m, "matmul").inputs["x"].arguments[0], "name", "ghost"
    ),
    "name is defined twice": lambda m: setattr(statement(m, "matmul").outputs[0], "name", "x"),
    "result has another type": lambda m: setattr(
        statement(m, "softmax").outputs[0].type.tensorType.dimensions[0].constant, "size", 7
    ),
    "results without names": lambda m: statement(m, "softmax").ClearField("outputs"),
    "unknown attribute": lambda m: statement(m, "softmax").attributes["color"].CopyFrom(inline(m)),
    "softmax: unknown parameter: got color": lambda m: (
        statement(m, "softmax")
        .inputs["color"]
        .arguments.add()
        .MergeFrom(statement(m, "softmax").inputs["x"].arguments[0])
    ),
    "no such op_": lambda m: setattr(statement(m, "softmax"), "type", "no such op_"),
    "dynamic shapes: are not supported": lambda m: open_size(
        m.mlProgram.functions["main"].inputs[0]
    ),
    "state: is not supported": lambda m: (
        m.mlProgram.functions["main"].inputs[0].type.stateType.SetInParent()
    ),
    "list types: are not supported": lambda m: (
        statement(m, "softmax").outputs[0].type.listType.SetInParent()
    ),
    "softmax: control flow is not supported": lambda m: statement(m, "softmax").blocks.add(),
    "opset CoreML99": lambda m: setattr(m.mlProgram.functions["main"], "opset", "CoreML99"),
    "no block of the opset": lambda m: setattr(m.mlProgram.functions["main"], "opset", "CoreML5"),
    "no such value: got nobody": lambda m: block_of(m).outputs.append("nobody"),
    "a port is declared twice": lambda m: block_of(m).outputs.append("y"),
    "no output": lambda m: block_of(m).ClearField("outputs"),
    "no function": lambda m: m.mlProgram.ClearField("functions"),
    "empty models: are not supported": lambda m: m.ClearField("mlProgram"),
    "neuralNetwork models: are not supported": lambda m: m.neuralNetwork.SetInParent(),
}


@pytest.mark.parametrize("what", FAULTS, ids=str)
def test_a_fault_in_the_message_is_named(what, package):
    model = message(package)
    FAULTS[what](model)
    model_path(package).write_bytes(model.SerializeToString())
    with pytest.raises(OrionError) as caught:
        read_package(package)
    assert what in str(caught.value)


@pytest.mark.parametrize(
    ("what", "is_sound"),
    [("dynamic shapes: are not supported", True), ("no such value: got ghost", False)],
)
def test_what_is_sound_but_not_taken_can_be_told_from_what_is_broken(what, is_sound, package):
    model = message(package)
    FAULTS[what](model)
    model_path(package).write_bytes(model.SerializeToString())
    with pytest.raises(MilError) as caught:
        read_package(package)
    assert isinstance(caught.value, UnsupportedError) == is_sound


def test_sizes_that_a_package_leaves_open_are_those_that_are_given(package):
    model = message(package)
    open_size(model.mlProgram.functions["main"].inputs[0])
    for made in block_of(model).operations:
        if made.type in ("matmul", "add", "softmax"):
            open_size(made.outputs[0])
    model_path(package).write_bytes(model.SerializeToString())
    with pytest.raises(UnsupportedError, match="dynamic shapes"):
        read_package(package)
    graph = read_package(package, {"x": OF.shape}).graph
    assert (graph.inputs["x"].type, graph.outputs["y"].type) == (OF, OF)
    for wrong in ((2, 4), (3, 4, 4)):
        with pytest.raises(OrionError):
            read_package(package, {"x": wrong})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        '{"rootModelIdentifier": "a", "itemInfoEntries": {"a": {}}}',
        '{"rootModelIdentifier": [], "itemInfoEntries": {}}',
        '{"rootModelIdentifier": "a", "itemInfoEntries": {"a": {"path": 3}}}',
        '{"rootModelIdentifier": "a", "itemInfoEntries": {"a": {"path": "/etc/passwd"}}}',
        '{"rootModelIdentifier": "a", "itemInfoEntries": {"a": {"path": "../../b"}}}',
        '{"rootModelIdentifier": "a", "itemInfoEntries": {"a": {"path": "a\\u0000b"}}}',
        '{"rootModelIdentifier": "a", "itemInfoEntries": {"a": {"path": "nothing"}}}',
        "\x00" * (1 << 21),
    ],
)
def test_a_manifest_that_names_no_model_is_refused(text, package):
    (package / "Manifest.json").write_text(text)
    with pytest.raises(MilError):
        read_package(package)


def test_a_link_out_of_the_package_is_not_followed(package, tmp_path):
    outside = tmp_path / "outside.bin"
    inside = model_path(package).parent / "weights" / "weight.bin"
    shutil.move(inside, outside)
    inside.symlink_to(outside)
    with pytest.raises(MilError, match="not a path in the package"):
        read_package(package)


@pytest.mark.parametrize("what", ["nothing", "file", "folder"])
def test_what_is_no_package_is_refused(what, tmp_path):
    path = tmp_path / "a.mlpackage"
    if what == "file":
        path.write_bytes(b"\x00")
    if what == "folder":
        path.mkdir()
    with pytest.raises(MilError, match="not an mlpackage"):
        read_package(path)


def test_any_end_of_the_message_may_be_missing(sound, tmp_path):
    package = Path(shutil.copytree(sound, tmp_path / "a.mlpackage"))
    data = model_path(package).read_bytes()
    for end in range(0, len(data), 3):
        model_path(package).write_bytes(data[:end])
        with pytest.raises(OrionError):
            read_package(package)


@settings(max_examples=150)
@given(data=st.data())
def test_any_bytes_may_be_changed(sound, data):
    """What is read then is whole: its text can be written, or the error says why not."""
    with tempfile.TemporaryDirectory() as room:
        package = Path(shutil.copytree(sound, Path(room) / "a.mlpackage"))
        blobs = model_path(package).parent / "weights" / "weight.bin"
        file = data.draw(st.sampled_from([model_path(package), blobs, package / "Manifest.json"]))
        content = bytearray(file.read_bytes())
        for _ in range(data.draw(st.integers(1, 3))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        file.write_bytes(content)
        with contextlib.suppress(OrionError):
            read_package(package).program()


def test_manifests_are_read_as_they_are_written(sound):
    assert json.loads((sound / "Manifest.json").read_text())["fileFormatVersion"] == "1.0.0"
