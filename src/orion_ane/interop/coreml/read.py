"""An `.mlpackage` to graphs: mlProgram messages, read by the rows that read MIL text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from orion_ane.errors import MilError, OrionError
from orion_ane.interop.coreml.errors import UnsupportedError
from orion_ane.interop.coreml.files import Files, model_file, read_model_bytes
from orion_ane.interop.coreml.proto import decoded
from orion_ane.interop.coreml.values import Constants, read_type
from orion_ane.ir import Graph, Node, Op
from orion_ane.mil.arguments import Argument, Value, call, want_types
from orion_ane.mil.body import MAX_STATEMENTS
from orion_ane.mil.dialect import DIALECTS
from orion_ane.mil.emit import emit
from orion_ane.mil.module import Function, Module
from orion_ane.mil.program import Buffer, Program
from orion_ane.ops import Input
from orion_ane.ops.foreign.decompress import fold
from orion_ane.ops.leaf import Weight
from orion_ane.types import MAX_RANK, Array, DType

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]

NO_SHAPES: Shapes = MappingProxyType({})

ROWS = frozenset(
    {"constexpr_affine_dequantize", "constexpr_blockwise_shift_scale", "constexpr_cast"}
)
"""Packed constants that stay packed: a row of the op table unpacks them."""

OPSETS = {"CoreML5": 15, "CoreML6": 16, "CoreML7": 17, "CoreML8": 18}


@dataclass(frozen=True, eq=False)
class Package:
    """What an `.mlpackage` holds.

    Attributes:
        module: its functions; weights refer to `weights`.
        weights: blob files by the path that they have in a text.
        main: the function that runs when none is named.
    """

    module: Module
    weights: Mapping[str, Buffer]
    main: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", MappingProxyType(dict(self.weights)))

    @property
    def graph(self) -> Graph:
        """The graph of `main`."""
        return self.function().graph

    def function(self, name: str | None = None) -> Function:
        """A function; by default `main`.

        Raises:
            MilError: there is none of this name.
        """
        functions = self.module.functions
        found = functions.get(name or self.main)
        if found is None:
            raise MilError(
                "mlProgram", "no such function", got=name or self.main, want=[*functions]
            )
        return found

    def program(self, name: str | None = None) -> Program:
        """The program of a function as it is, in the text of its opset.

        Raises:
            MilError: there is none of this name, or its text cannot be written.
        """
        function = self.function(name)
        emitted = emit(function.graph, dialect=DIALECTS[f"ios{function.opset}"])
        leaves = (node.op for node in function.graph.nodes)
        paths = {leaf.at.path for leaf in leaves if isinstance(leaf, Weight) and leaf.at}
        files = {path: data for path, data in self.weights.items() if path in paths}
        return Program(emitted.text, files, emitted.inputs, emitted.outputs)


def read_package(path: str | Path, shapes: Shapes = NO_SHAPES) -> Package:
    """The functions and weights of an `.mlpackage`.

    Blob files stay where they are and are mapped into memory: keep them while the package is in
    use.  Integers of less than a byte come in whole bytes, with the same numbers.

    Args:
        path: the package.
        shapes: of inputs by name, where the package leaves sizes open: they hold for these alone.

    Raises:
        MilError: it is damaged, or no mlProgram.
        UnsupportedError: it has an op or a type that no row of the op table takes, unknown sizes,
            control flow, or state.
        ConfigError: the extra `coreml` is not installed.
    """
    file = model_file(Path(path))
    model = decoded(read_model_bytes(file), str(path))
    kind = model.WhichOneof("Type")
    if kind != "mlProgram":
        raise UnsupportedError(f"{kind or 'empty'} models", "are not supported", want="mlProgram")
    constants = Constants(Files(file.parent))
    functions = {
        name: _function(function, constants, shapes)
        for name, function in sorted(model.mlProgram.functions.items())
    }
    if not functions:
        raise MilError(str(path), "no function")
    main = model.description.defaultFunctionName or "main"
    opset = max(function.opset for function in functions.values())
    module = Module(functions, DIALECTS[f"ios{opset}"], _build_info(model.mlProgram))
    return Package(module, constants.blob_files(), main if main in functions else min(functions))


def _build_info(program: Any) -> Mapping[str, str] | None:
    """The pairs of strings that say who made the program."""
    if "buildInfo" not in program.attributes:
        return None
    pairs = program.attributes["buildInfo"].immediateValue.dictionary.values
    return {_text(pair.key): _text(pair.value) for pair in pairs}


def _text(value: Any) -> str:
    return "".join(value.immediateValue.tensor.strings.values)


def _function(function: Any, constants: Constants, shapes: Shapes) -> Function:
    opset = OPSETS.get(function.opset)
    if opset is None:
        raise UnsupportedError(f"opset {function.opset}", "is not supported", want=list(OPSETS))
    blocks = function.block_specializations
    if function.opset not in blocks:
        raise MilError("mlProgram", "no block of the opset", got=list(blocks), want=function.opset)
    block = blocks[function.opset]
    if len(block.operations) > MAX_STATEMENTS:
        got, want = len(block.operations), f"at most {MAX_STATEMENTS}"
        raise MilError("mlProgram", "too many statements", got=got, want=want)
    body = _Body(opset, constants, shapes)
    inputs = {port.name: body.read_input(port) for port in function.inputs}
    for operation in block.operations:
        body.read_statement(operation)
    outputs = {name: body.output(name) for name in block.outputs}
    if len(inputs) != len(function.inputs) or len(outputs) != len(block.outputs):
        raise MilError("mlProgram", "a port is declared twice", got=list(block.outputs))
    return Function(Graph(inputs, outputs), opset)


class _Body:
    """The values that a function has defined so far, by name."""

    def __init__(self, opset: int, constants: Constants, shapes: Shapes) -> None:
        self.opset, self.constants, self.shapes = opset, constants, shapes
        self.values: dict[str, Value] = {}
        self.folded: dict[str, Array] = {}

    def read_input(self, port: Any) -> Node:
        """A parameter of the function."""
        if port.type.WhichOneof("type") == "stateType":
            raise UnsupportedError("state", "is not supported", got=port.name)
        of = read_type(port.type, self.shapes.get(port.name))
        try:
            node = Node(Input(port.name, of.tensor()))
        except OrionError as error:
            raise _unsupported(f"input {port.name}", error) from error
        self._define({port.name: of}, (node,))
        return node

    def read_statement(self, operation: Any) -> None:
        """One operation, with one result or several."""
        op: str = operation.type
        if operation.blocks:
            raise UnsupportedError(op, "control flow is not supported")
        if op in ("read_state", "write_state"):
            raise UnsupportedError(op, "state is not supported")
        if op.startswith("constexpr_") and self._is_folded(operation):
            self._fold(operation)
            return
        names = {result.name: result.type for result in operation.outputs}
        if len(names) != len(operation.outputs) or not names:
            got = [result.name for result in operation.outputs]
            raise MilError(op, "results without names of their own", got=got)
        args = self._arguments(operation, next(iter(names)))
        found: tuple[Value, ...]
        if op == "const":
            found = self._const(args)
        elif op not in Op.readers:
            raise UnsupportedError(op, "no row of the op table reads it")
        else:
            try:
                found = call(op, args, self.opset, len(names))
            except OrionError as error:
                raise _unsupported(op, error) from error
        pairs = zip(names.values(), found, strict=False)
        declared = [read_type(of, _shape(value)) for of, value in pairs]
        if len(found) != len(names):
            raise MilError(op, "wrong number of results", got=len(names), want=len(found))
        want_types(op, declared, found)
        self._define(names, found)

    def output(self, name: str) -> Node:
        """The value that a result of the function has."""
        value = self._value(name)
        return value if isinstance(value, Node) else value.node

    def _define(self, names: Mapping[str, Any], values: tuple[Value, ...]) -> None:
        for name, value in zip(names, values, strict=True):
            if name in self.values or name in self.folded:
                raise MilError("mlProgram", "name is defined twice", got=name)
            self.values[name] = value

    def _is_folded(self, operation: Any) -> bool:
        """Whether a packed constant is unpacked here: no row has it, or a part is no value."""
        if operation.type not in ROWS:
            return True
        names = [b.name for argument in operation.inputs.values() for b in argument.arguments]
        types = [b.value.type for arg in operation.inputs.values() for b in arg.arguments]
        ranks = [len(of.tensorType.dimensions) for of in types]
        return max(ranks, default=0) > MAX_RANK or any(name in self.folded for name in names)

    def _fold(self, operation: Any) -> None:
        """A packed constant, as arrays until an op that is none of its kind asks for it."""
        op, label = operation.type, operation.outputs[0].name if operation.outputs else ""
        given: dict[str, Array] = {
            key: self.constants.array(value, label)
            for key, value in operation.attributes.items()
            if key != "name"
        }
        for key, argument in operation.inputs.items():
            if len(argument.arguments) != 1:
                raise MilError(op, f"{key} has the wrong kind", want="one value")
            given[key] = self._array(op, key, argument.arguments[0])
        try:
            found = fold(op, given)
        except OrionError as error:
            raise _unsupported(op, error) from error
        if len(found) != len(operation.outputs):
            raise MilError(op, "wrong number of results", got=len(operation.outputs))
        for result, array in zip(operation.outputs, found, strict=True):
            of = read_type(result.type)
            if of != (DType.of(array.dtype).value, array.shape):
                got = f"{array.dtype}{list(array.shape)}"
                raise MilError(op, "result has another type", got=of, want=got)
            if result.name in self.values or result.name in self.folded:
                raise MilError("mlProgram", "name is defined twice", got=result.name)
            self.folded[result.name] = array

    def _array(self, op: str, key: str, binding: Any) -> Array:
        if binding.WhichOneof("binding") != "name":
            return self.constants.array(binding.value, key)
        if binding.name in self.folded:
            return self.folded[binding.name]
        found = self.constants.array_of(self._value(binding.name))
        if found is None:
            raise MilError(op, "not a constant", got=binding.name)
        return found

    def _value(self, name: str) -> Value:
        if name not in self.values and name in self.folded:
            self.values[name] = self.constants.value(self.folded[name], name)
        if name not in self.values:
            raise MilError("mlProgram", "no such value", got=name)
        return self.values[name]

    def _arguments(self, operation: Any, label: str) -> dict[str, Argument]:
        """Every parameter: until iOS17 those of a constexpr op stand among its attributes."""
        op: str = operation.type
        found = {
            key: self._argument(arg, f"{label}_{key}") for key, arg in operation.inputs.items()
        }
        for key, value in operation.attributes.items():
            if key == "name":
                continue
            if op != "const" and not op.startswith("constexpr_"):
                raise MilError(op, "unknown attribute", got=key, want="name")
            if key in found:
                raise MilError(op, "parameter is given twice", got=key)
            name = label if key == "val" else f"{label}_{key}"
            found[key] = self.constants.read(value, name)
        return found

    def _argument(self, argument: Any, label: str) -> Argument:
        found = []
        for binding in argument.arguments:
            if binding.WhichOneof("binding") == "name":
                found.append(self._value(binding.name))
            else:
                found.append(self.constants.read(binding.value, f"{label}_{len(found)}"))
        return found[0] if len(found) == 1 else tuple(found)

    def _const(self, args: dict[str, Argument]) -> tuple[Value]:
        value = args.get("val")
        if len(args) != 1 or value is None or isinstance(value, tuple):
            raise MilError("const", "unknown parameter", got=list(args)[:8], want="val")
        return (value,)


def _shape(value: Value) -> tuple[int, ...]:
    return value.type.shape if isinstance(value, Node) else value.shape


def _unsupported(op: str, error: OrionError) -> OrionError:
    """What a row refuses: the program may be sound, but its form has no place here."""
    if isinstance(error, UnsupportedError):
        return error
    what = error.what if error.where in (op, "mil") else f"{error.where}: {error.what}"
    return UnsupportedError(op, what, got=error.got, want=error.want, hint=error.hint)
