"""Programs for probes, statement by statement: no pass and no check stands between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from orion_ane.mil import DEFAULT_PATH, Port, Program, pack
from orion_ane.mil.dialect import Dialect
from orion_ane.types import Array, DType, TensorType

Value: TypeAlias = bool | int | float | str | tuple[int, ...]

ROOMY = (1, 768, 1, 32)
"""A port that no claim about sizes or rows speaks against: 49,152 bytes, in rows of 64."""


def fp16(*shape: int) -> TensorType:
    """A type."""
    return TensorType(DType.FP16, shape)


OF = fp16(*ROOMY)
CONV: dict[str, Value] = {
    "strides": (1, 1),
    "pad_type": "valid",
    "pad": (0, 0, 0, 0),
    "dilations": (1, 1),
    "groups": 1,
}
"""All that a 1x1 convolution is told besides its weight."""


class Text:
    """A program in the making.

    Args:
        dialect: of its text.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._inputs: list[Port] = []
        self._lines: list[str | tuple[str, str]] = []
        self._weights: dict[str, dict[str, Array]] = {}
        self._types: dict[str, TensorType] = {}
        self._count = 0

    def input(self, name: str, of: TensorType = OF) -> str:
        """One more input."""
        self._inputs.append(Port(name, name, of))
        self._types[name] = of
        return name

    def const(self, value: Value) -> str:
        """A named constant."""
        name = self._named("c")
        kind, _ = self._spelled(value)
        written = f"val = {self.inline(value)}"
        self._lines.append(f"{kind} {name} = const()[name = {self._string(name)}, {written}];")
        return name

    def inline(self, value: Value) -> str:
        """A constant as it is written in place."""
        kind, text = self._spelled(value)
        return f"{kind}({text})"

    def weight(self, values: Array, path: str = DEFAULT_PATH) -> str:
        """A weight of a blob file."""
        name = self._named("w")
        self._weights.setdefault(path, {})[name] = values
        self._types[name] = TensorType.of(values)
        self._lines.append((name, path))
        return name

    def call(
        self, op: str, of: TensorType = OF, /, *, to: str = "", **arguments: str | Sequence[str]
    ) -> str:
        """A statement; arguments are names, or constants written in place."""
        name = to or self._named("v")
        self._types[name] = of
        spelled = {
            key: value if isinstance(value, str) else f"({', '.join(value)})"
            for key, value in arguments.items()
        }
        given = ", ".join(f"{key} = {value}" for key, value in sorted(spelled.items()))
        typed = self._dialect.type(of)
        self._lines.append(f"{typed} {name} = {op}({given})[name = {self._string(name)}];")
        return name

    def told(self, values: Mapping[str, Value]) -> dict[str, str]:
        """Parameters, each a named constant."""
        return {key: self.const(value) for key, value in values.items()}

    def program(self, *outputs: str) -> Program:
        """What is written so far, as a program with these outputs."""
        files = {path: pack(arrays, path) for path, arrays in self._weights.items()}
        lines = []
        for line in self._lines:
            if isinstance(line, tuple):
                name, path = line
                line = self._blob(name, path, files[path].offsets[name])  # noqa: PLW2901
            lines.append(f"        {line}\n")
        taken = ", ".join(f"{self._dialect.type(p.type)} {p.symbol}" for p in self._inputs)
        text = (
            f"program({self._dialect.version})\n[buildInfo = {self._build_info()}]\n{{\n"
            f"    func main<{self._dialect.name}>({taken}) {{\n{''.join(lines)}"
            f"    }} -> ({', '.join(outputs)});\n}}\n"
        )
        ports = tuple(Port(name, name, self._types[name]) for name in outputs)
        data = {path: file.data for path, file in files.items()}
        return Program(text, data, tuple(self._inputs), ports)

    def _build_info(self) -> str:
        word = self._dialect.scalar("string")
        pairs = self._dialect.build_info
        joined = ", ".join(f'{{"{key}", "{value}"}}' for key, value in pairs)
        return f"dict<{word}, {word}>({{{joined}}})"

    def _blob(self, name: str, path: str, offset: int) -> str:
        kind = self._dialect.type(self._types[name])
        where = f"path = {self._string(path)}, offset = {self._dialect.scalar('uint64')}({offset})"
        value = f"{kind}(BLOBFILE({where}))"
        return f"{kind} {name} = const()[name = {self._string(name)}, val = {value}];"

    def _named(self, letter: str) -> str:
        self._count += 1
        return f"{letter}{self._count:03d}"

    def _string(self, text: str) -> str:
        return f'{self._dialect.scalar("string")}("{text}")'

    def _spelled(self, value: Value) -> tuple[str, str]:
        """A constant's type and digits."""
        match value:
            case bool():
                return self._dialect.scalar("bool"), str(value).lower()
            case int():
                return self._dialect.scalar("int32"), str(value)
            case float():
                return self._dialect.scalar("fp16"), float(np.float16(value)).hex()
            case str():
                return self._dialect.scalar("string"), f'"{value}"'
        return f"tensor<int32, [{len(value)}]>", f"[{', '.join(map(str, value))}]"


def filled(value: float, of: TensorType = OF) -> Array:
    """A port's array, the same everywhere."""
    return np.full(of.shape, value, of.dtype.numpy)


def counted(of: TensorType = OF) -> Array:
    """A port's array in which neighbours differ, of whole numbers below 100."""
    return (np.arange(of.elements) * 7 % 97).astype(of.dtype.numpy).reshape(of.shape)


def normal(seed: int, of: TensorType = OF) -> Array:
    """A port's array of random numbers."""
    return np.random.default_rng(seed).normal(size=of.shape).astype(of.dtype.numpy)
