"""Types and constants as a text writes them, and the values that they become."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from orion_ane.errors import MilError
from orion_ane.ir.node import Node
from orion_ane.ir.spelling import Literal, Scalar
from orion_ane.mil.lex import MAX_NUMBER, Tokens, number
from orion_ane.mil.names import TYPE_WORDS
from orion_ane.ops.leaf import MAX_CONST_ELEMENTS, BlobRef, Const, Weight
from orion_ane.types import MAX_RANK, DType, TensorType

MAX_ELEMENTS = 1 << 21
"""Elements that all lists of a text may have together."""
MAX_OFFSET = 1 << 62
MAX_SIZE = 1 << 62

_PLAIN = re.compile(r"tensor<[a-z0-9]+, ?\[[0-9, ]*\]>")
_NUMBER = rf"(?:[-+.0-9A-Za-z]{{1,{MAX_NUMBER}}}+)"
_ROW = re.compile(rf"\[({_NUMBER}(?:, ?{_NUMBER})*+)\]")
DTYPES = {dtype.value: dtype for dtype in DType}
TRUTHS = {"true": True, "false": False}
_COMPOUND = frozenset({"state", "list", "dict", "tuple"})


class Written(NamedTuple):
    """A type in the text; `string` and `uint64` are types of parameters alone."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    def tensor(self) -> TensorType:
        """The type of a value.

        Raises:
            MilError: no value of a graph has this element type.
            ShapeError: no value has this shape.
        """
        dtype = DTYPES.get(self.dtype)
        if dtype is None:
            raise MilError("mil", "element type not supported", got=self, want=list(DTYPES))
        return TensorType(dtype, self.shape)


@dataclass(frozen=True)
class Constant:
    """A constant: its elements row by row, and its element type where the text says it.

    Raises:
        MilError: an element does not fit the type.
    """

    dtype: str | None
    shape: tuple[int, ...]
    elements: tuple[Scalar, ...]

    @classmethod
    def typed(
        cls, written: Written, shape: tuple[int, ...], elements: Sequence[Scalar]
    ) -> Constant:
        """A constant of a type that the text says, its elements rounded to it."""
        if shape != written.shape:
            raise MilError("mil", "constant has another shape", got=list(shape), want=written)
        return cls(written.dtype, shape, tuple(_fitted(written.dtype, elements)))

    def literal(self) -> Literal | None:
        """The value as a parameter, or None where it is no scalar or list."""
        if not self.shape:
            return self.elements[0]
        return self.elements if len(self.shape) == 1 else None

    @cached_property
    def node(self) -> Node:
        """The value as a node.

        Raises:
            MilError: it is a string, or its element type is not known.
        """
        if self.dtype is None:
            hint = "write its type, as fp16(0.5)"
            raise MilError("mil", "a literal has no type here", got=self.elements[:4], hint=hint)
        of = Written(self.dtype, self.shape).tensor()
        return Node(Const(of, np.array(self.elements, of.dtype.numpy).tobytes()))

    @cached_property
    def has_floats(self) -> bool:
        """Whether an element is written as a float."""
        return any(type(element) is float for element in self.elements)

    def of_type(self, dtype: DType | None) -> Constant:
        """A literal without a type, as one of the type that its statement suggests."""
        if self.elements and isinstance(self.elements[0], str):
            return Constant.typed(Written("string", self.shape), self.shape, self.elements)
        if self.elements and isinstance(self.elements[0], bool):
            dtype = DType.BOOL
        if dtype is None:
            return self
        return Constant.typed(Written(dtype.value, self.shape), self.shape, self.elements)


def _fitted(dtype: str, elements: Sequence[Scalar]) -> Sequence[Scalar]:
    """The elements as values of the type: floats rounded to nearest, the rest as it is."""
    if dtype not in DTYPES and dtype not in ("string", "uint64"):
        raise MilError("mil", "element type not supported", got=dtype, want=list(DTYPES))
    kinds: tuple[type, ...] = {"string": (str,), "bool": (bool,)}.get(dtype, (int,))
    is_float = dtype in DTYPES and DTYPES[dtype].is_float
    kinds = (int, float) if is_float else kinds
    misfit = next((element for element in elements if type(element) not in kinds), None)
    if misfit is not None:
        raise MilError("mil", f"not a constant of {dtype}", got=misfit)
    if is_float:
        return _rounded(DTYPES[dtype], elements)
    numbers = [element for element in elements if type(element) is int]
    info = None if dtype == "uint64" else np.iinfo(DTYPES[dtype].numpy) if numbers else None
    low, high = (int(info.min), int(info.max)) if info else (0, MAX_OFFSET)
    for end in (min(numbers, default=low), max(numbers, default=low)):
        if not low <= end <= high:
            raise MilError("mil", f"does not fit {dtype}", got=end, want=f"{low} to {high}")
    return elements


def _rounded(dtype: DType, elements: Sequence[Scalar]) -> Sequence[Scalar]:
    """Floats as the type has them."""
    wide = np.array(elements, np.float64)
    with np.errstate(over="ignore"):
        narrow = wide.astype(dtype.numpy)
    lost = np.isfinite(wide) & ~np.isfinite(narrow)
    if lost.any():
        limit = float(np.finfo(dtype.numpy).max)
        raise MilError("mil", f"does not fit {dtype}", got=wide[lost][0], want=f"at most {limit}")
    found: list[Scalar] = narrow.tolist()
    return found


def read_type(tokens: Tokens) -> Written:
    """A type, as `tensor<fp16, [1, 64]>` or `fp16`; sizes may be 0 here."""
    plain = _PLAIN.match(tokens.text, tokens.match.start(1))
    if plain is None:
        return _read_type(tokens)
    text = plain[0]
    if text not in tokens.types:
        tokens.types[text] = _read_type(tokens)
    else:
        tokens.go_to(plain.end())
    return Written(*tokens.types[text])


def _read_type(tokens: Tokens) -> Written:
    at = tokens.match
    word = tokens.word("a type")
    if word in _COMPOUND:
        raise tokens.fail(f"{word} types are not supported", at=at)
    if word not in TYPE_WORDS:
        raise tokens.fail("no such type", at=at, got=word)
    if word != "tensor":
        return Written(word, ())
    tokens.expect("<")
    at = tokens.match
    dtype = tokens.word("an element type")
    if dtype not in TYPE_WORDS or dtype in _COMPOUND or dtype == "tensor":
        raise tokens.fail("no such element type", at=at, got=dtype)
    tokens.expect(",")
    tokens.expect("[")
    shape: list[int] = []
    while tokens.next != "]":
        if shape:
            tokens.expect(",")
        shape.append(_size(tokens))
        if len(shape) > MAX_RANK:
            raise tokens.fail("rank too high", at=at, want=f"at most {MAX_RANK}")
    tokens.advance()
    tokens.expect(">")
    return Written(dtype, tuple(shape))


def _size(tokens: Tokens) -> int:
    if tokens.next == "?":
        raise tokens.fail("unknown sizes are not supported", got="?")
    at = tokens.match
    size = tokens.number()
    if not isinstance(size, int) or not 0 <= size < MAX_SIZE:
        raise tokens.fail("not a size", at=at, got=at[1])
    return size


def read_constant(tokens: Tokens, label: str) -> Constant | Node:
    """A constant with its type, as `fp16(0x1p-3)`; from a blob file, a weight named `label`."""
    at = tokens.match
    written = read_type(tokens)
    tokens.expect("(")
    found: Constant | Node
    if tokens.next == "BLOBFILE":
        found = Node(Weight(label, written.tensor(), _read_reference(tokens)))
    else:
        found = _read_typed(tokens, written, at)
    tokens.expect(")")
    return found


def _read_typed(tokens: Tokens, written: Written, at: re.Match[str]) -> Constant:
    bare = read_literal(tokens)
    try:
        return Constant.typed(written, bare.shape, bare.elements)
    except MilError as error:
        raise tokens.located(error, at) from None


def _read_reference(tokens: Tokens) -> BlobRef:
    """`BLOBFILE(path = string("…"), offset = uint64(64))`, in either order."""
    start = tokens.match
    tokens.advance()
    tokens.expect("(")
    given: dict[tuple[str, Written], Scalar] = {}
    while not given or tokens.accept(","):
        at = tokens.match
        key = tokens.word("path or offset")
        tokens.expect("=")
        written = read_type(tokens)
        tokens.expect("(")
        if (key, written) in given:
            raise tokens.fail("parameter is given twice", at=at, got=key)
        given[key, written] = _read_typed(tokens, written, at).elements[0]
        tokens.expect(")")
    tokens.expect(")")
    path = given.pop(("path", Written("string", ())), None)
    offset = given.pop(("offset", Written("uint64", ())), None)
    if given or not isinstance(path, str) or not isinstance(offset, int):
        want = "path = string(…), offset = uint64(…)"
        raise tokens.fail("not a blob reference", at=start, want=want)
    return BlobRef(path, offset)


def read_literal(tokens: Tokens) -> Constant:
    """A number, bool or string, or nested lists of them, whose type is not said."""
    elements: list[Scalar] = []
    if tokens.next != "[":
        return Constant(None, (), (_read_scalar(tokens),))
    at = tokens.match
    shape = _read_list(tokens, elements, 1)
    tokens.elements += len(elements)
    if tokens.elements > MAX_ELEMENTS:
        raise tokens.fail("too many constants in the text", at=at, want=f"{MAX_ELEMENTS} elements")
    return Constant(None, shape, tuple(elements))


def _read_list(tokens: Tokens, elements: list[Scalar], depth: int) -> tuple[int, ...]:
    """The shape of a nested list, its elements added to `elements`."""
    at = tokens.match
    if depth > MAX_RANK:
        raise tokens.fail("lists nested too deep", want=f"at most {MAX_RANK}")
    row = _read_row(tokens)
    if row is not None:
        elements += row
        return (len(row),)
    tokens.advance()
    count, inner = 0, None
    while tokens.next != "]":
        if count:
            tokens.expect(",")
        count += 1
        shape: tuple[int, ...] = ()
        if tokens.next == "[":
            shape = _read_list(tokens, elements, depth + 1)
        else:
            elements.append(_read_scalar(tokens))
        if inner is not None and inner != shape:
            raise tokens.fail("list is ragged", at=at)
        inner = shape
        if len(elements) > MAX_CONST_ELEMENTS:
            raise tokens.fail("constant too long", at=at, want=f"at most {MAX_CONST_ELEMENTS}")
    tokens.advance()
    return (count, *(inner or ()))


def _read_row(tokens: Tokens) -> list[Scalar] | None:
    """A list of plain numbers or bools, in one piece: five times as fast as token by token.

    None is any other list; so is one with a fault, which the long way then names.
    """
    row = _ROW.match(tokens.text, tokens.match.start(1))
    if row is None or row[1].count(",") >= MAX_CONST_ELEMENTS:
        return None
    words = row[1].replace(" ", "").split(",")
    try:
        found: list[Scalar] = [TRUTHS[word] if word in TRUTHS else number(word) for word in words]
    except (ValueError, OverflowError):
        return None
    tokens.go_to(row.end())
    return found


def _read_scalar(tokens: Tokens) -> Scalar:
    if tokens.next in TRUTHS:
        truth = TRUTHS[tokens.next]
        tokens.advance()
        return truth
    if tokens.next.startswith('"'):
        return tokens.string()
    if tokens.at_number:
        return tokens.number()
    raise tokens.unexpected("a literal")
