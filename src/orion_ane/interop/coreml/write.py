"""Graphs and programs to an `.mlpackage`: the statements of their text as mlProgram messages."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

import numpy as np

from orion_ane.artefacts.atomic import folder_beside, write_file
from orion_ane.compiler import compile as compile_graph
from orion_ane.errors import MilError
from orion_ane.interop.coreml.files import ROOT
from orion_ane.interop.coreml.proto import code_of, messages
from orion_ane.interop.coreml.read import OPSETS, Package
from orion_ane.interop.coreml.values import field_of
from orion_ane.ir import Graph, Node
from orion_ane.mil.arguments import Argument
from orion_ane.mil.blob import WeightFile
from orion_ane.mil.dialect import IOS18, Dialect
from orion_ane.mil.emit import emit_module
from orion_ane.mil.module import Function, Module, Statement
from orion_ane.mil.parse import parse
from orion_ane.mil.program import Buffer, Program, buffer_digest
from orion_ane.mil.written import DTYPES, Constant
from orion_ane.ops import Weight
from orion_ane.types import Array, TensorType

MODEL = "com.apple.CoreML/model.mlmodel"
WEIGHTS = "com.apple.CoreML/weights"
FIRST_OPSET, FIRST_SPECIFICATION = 15, 6
"""iOS15's models are of version 6, and each generation is one more."""

NO_WEIGHTS: Mapping[str, Array] = MappingProxyType({})
_NAMES = {opset: name for name, opset in OPSETS.items()}
_FEATURES = {"fp16": 65552, "fp32": 65568, "int32": 131104}  # FeatureTypes.proto, ArrayDataType


def write_package(
    source: Graph | Program | Package,
    path: str | Path,
    weights: WeightFile | Mapping[str, Array] = NO_WEIGHTS,
    *,
    dialect: Dialect = IOS18,
    replace: bool = False,
) -> None:
    """Write an `.mlpackage` that computes what `source` computes.

    Equal sources give equal bytes.  Nothing is left behind where it fails.

    Args:
        source: a graph; or a program or package, which have their weights and opset with them.
        path: a folder; those above it are made.
        weights: of a graph, by label.
        dialect: of a graph: which generation's rules the model is under.
        replace: whether a package that this function wrote may go; nothing else may.

    Raises:
        MilError: a port has a type that Core ML does not pass, or a weight's file is missing; or
            as `compile`.
        ConfigError: the folder is there, or the extra `coreml` is not installed.
    """
    if isinstance(source, Graph):
        source = compile_graph(source, weights, pipeline=(), dialect=dialect, target=None)
    elif weights:
        raise MilError("weights", "only a graph is given weights", got=type(source).__name__)
    if isinstance(source, Program):
        module, files, main = parse(source.text), source.weights, ""
    else:
        module, files, main = source.module, source.weights, source.main
    _want_files(module, files)
    model = _model(module, main or next(iter(module.functions)))
    data = model.SerializeToString(deterministic=True)
    _write(Path(path), data, files, replace=replace)


def _want_files(module: Module, files: Mapping[str, Buffer]) -> None:
    """Refuse a program without the files of its weights."""
    for function in module.functions.values():
        for leaf in (node.op for node in function.graph.nodes):
            if isinstance(leaf, Weight) and (leaf.at is None or leaf.at.path not in files):
                got = None if leaf.at is None else leaf.at.path
                raise MilError(f"weight {leaf.label}", "no such blob file", got=got)


def _write(path: Path, model: bytes, files: Mapping[str, Buffer], *, replace: bool) -> None:
    """The folder, complete or not at all."""
    for name in files:
        inner = PurePosixPath(name)
        if inner.parts[:2] != (ROOT, "weights") or ".." in inner.parts:
            raise MilError(name, "not a path in a package", want=f"{ROOT}/weights/…")
    try:
        with folder_beside(path, replace=replace, is_ours=_is_package) as made:
            target = made / "Data" / MODEL
            (made / "Data" / WEIGHTS).mkdir(parents=True)
            write_file(target, model)
            for name, data in files.items():
                file = target.parent.joinpath(*PurePosixPath(name).parts[1:])
                file.parent.mkdir(parents=True, exist_ok=True)
                write_file(file, data)
            write_file(made / "Manifest.json", _manifest(model).encode())
    except OSError as error:
        raise MilError(str(path), "cannot be written", got=error.strerror) from error


def _is_package(folder: Path) -> bool:
    """Whether a package is one of these: its items' names, which others draw, are the model's."""
    files = {file.relative_to(folder) for file in folder.rglob("*") if not file.is_dir()}
    weights = PurePosixPath("Data", WEIGHTS)
    others = {f for f in files if f.parent != Path(weights) or f.suffix != ".bin"}
    if others != {Path("Manifest.json"), Path("Data", MODEL)}:
        return False
    try:
        model = (folder / "Data" / MODEL).read_bytes()
        return (folder / "Manifest.json").read_text("utf-8") == _manifest(model)
    except (OSError, UnicodeDecodeError):
        return False


def _manifest(model: bytes) -> str:
    """The list of the package's items, under names that depend on the model alone."""
    root = uuid.uuid5(uuid.NAMESPACE_OID, buffer_digest(model))
    items = {
        str(root).upper(): {
            "author": "com.apple.CoreML",
            "description": "CoreML Model Specification",
            "name": "model.mlmodel",
            "path": MODEL,
        },
        str(uuid.uuid5(root, "weights")).upper(): {
            "author": "com.apple.CoreML",
            "description": "CoreML Model Weights",
            "name": "weights",
            "path": WEIGHTS,
        },
    }
    document = {
        "fileFormatVersion": "1.0.0",
        "itemInfoEntries": items,
        "rootModelIdentifier": str(root).upper(),
    }
    return json.dumps(document, indent=4) + "\n"


def _model(module: Module, main: str) -> Any:
    # Written as text and read back, every parameter is a named constant with its type.
    written = parse(emit_module(module))
    opset = max(function.opset for function in written.functions.values())
    model = messages("Model_pb2").Model()
    model.specificationVersion = opset - FIRST_OPSET + FIRST_SPECIFICATION
    model.mlProgram.version = 1
    for name, function in written.functions.items():
        _Function(model.mlProgram.functions[name], function)
    if list(written.functions) == ["main"]:
        _describe(model.description, written.functions["main"].graph)
    else:
        model.description.defaultFunctionName = main
        for name, function in written.functions.items():
            described = model.description.functions.add(name=name)
            _describe(described, function.graph)
    return model


def _describe(description: Any, graph: Graph) -> None:
    """The features that a user feeds and gets."""
    kinds = ((description.input, graph.inputs), (description.output, graph.outputs))
    for ports, nodes in kinds:
        for name, node in nodes.items():
            feature = _FEATURES.get(node.type.dtype.value)
            if feature is None or not node.type.shape:
                want = f"a tensor of {', '.join(_FEATURES)}, of rank 1 or more"
                raise MilError(f"port {name}", "not passed by Core ML", got=node.type, want=want)
            array = ports.add(name=name).type.multiArrayType
            array.dataType = feature
            array.shape.extend(node.type.shape)


class _Function:
    """A function's message in the making."""

    def __init__(self, message: Any, function: Function) -> None:
        self.opset = function.opset
        message.opset = _NAMES[function.opset]
        self.block = message.block_specializations[message.opset]
        self.names: dict[int, str] = {}
        for name, node in function.graph.inputs.items():
            _set_port(message.inputs.add(), name, node.type)
            self.names[id(node)] = name
        self.shown = _shown(function)
        for statement in function.statements:
            self._statement(statement)
        self.block.outputs.extend(function.graph.outputs)

    def _statement(self, statement: Statement) -> None:
        if statement.op == "const":
            value, name = statement.args["val"], statement.results[0]
            self.names[id(value)] = name
            if id(value) in self.shown:
                operation = self._operation("const", name)
                _set_value(operation.attributes["val"], value)
                operation.outputs.add(name=name).type.CopyFrom(operation.attributes["val"].type)
            return
        operation = self._operation(statement.op, statement.results[0])
        for result, node in zip(statement.results, statement.nodes, strict=True):
            self.names.setdefault(id(node), result)
            _set_port(operation.outputs.add(), result, node.type)
        for key, argument in statement.args.items():
            if not _is_constexpr(statement.op):
                self._bind(operation.inputs[key], argument)
            elif self.opset < 18:
                _set_value(operation.attributes[key], argument)
            elif _is_constant(argument):
                _set_value(operation.inputs[key].arguments.add().value, argument)
            else:
                self._bind(operation.inputs[key], argument)

    def _operation(self, op: str, name: str) -> Any:
        operation = self.block.operations.add(type=op)
        _set_value(operation.attributes["name"], Constant("string", (), (name,)))
        return operation

    def _bind(self, target: Any, argument: Argument) -> None:
        for value in argument if isinstance(argument, tuple) else (argument,):
            target.arguments.add().name = self.names[id(value)]


def _shown(function: Function) -> set[int]:
    """The values that an op refers to by name; a constexpr op has its constants in itself."""
    found: set[int] = set()
    for statement in function.statements:
        for argument in statement.args.values():
            values = argument if isinstance(argument, tuple) else (argument,)
            is_inside = _is_constexpr(statement.op) or statement.op == "const"
            found |= set() if is_inside else set(map(id, values))
    return found


def _is_constexpr(op: str) -> bool:
    return op.startswith("constexpr_")


def _is_constant(argument: Argument) -> bool:
    is_weight = isinstance(argument, Node) and isinstance(argument.op, Weight)
    return is_weight or isinstance(argument, Constant)


def _set_port(port: Any, name: str, of: TensorType) -> None:
    port.name = name
    _set_type(port.type, of.dtype.value, of.shape)


def _set_type(target: Any, word: str, shape: tuple[int, ...]) -> None:
    target.tensorType.dataType = code_of(word)
    target.tensorType.rank = len(shape)
    for size in shape:
        target.tensorType.dimensions.add().constant.size = size


def _set_value(target: Any, value: Argument) -> None:
    """A constant: in the message, or where it lies in a blob file."""
    if isinstance(value, Node) and isinstance(value.op, Weight):
        at = value.op.at
        assert at is not None, "the text gave each weight its place"
        _set_type(target.type, value.type.dtype.value, value.type.shape)
        target.blobFileValue.fileName, target.blobFileValue.offset = at.path, at.offset
        return
    if not isinstance(value, Constant) or value.dtype is None:
        raise MilError("const", "not a constant", got=value)
    _set_type(target.type, value.dtype, value.shape)
    tensor = target.immediateValue.tensor
    name = field_of(value.dtype)
    assert name is not None, "the text has no other types"
    elements = getattr(tensor, name)
    elements.SetInParent()
    if name == "bytes":
        elements.values = np.array(value.elements, DTYPES[value.dtype].numpy).tobytes()
    else:
        elements.values.extend(value.elements)
