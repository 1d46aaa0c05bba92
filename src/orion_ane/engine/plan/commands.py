"""What a plan is made of before it is a table: buffers, views of them, commands."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Literal, TypeAlias

from orion_ane.engine.plan.layout import Do, Kind

Shape: TypeAlias = tuple[int, ...]
Place: TypeAlias = Literal["arena", "constant", "input", "output"]


@dataclass(eq=False)
class Buffer:
    """Memory for one value.

    Attributes:
        elements: of fp32, or of fp16.
        place: whose memory it is.
        name: of the port, or the number of the constant.
    """

    elements: int
    place: Place = "arena"
    name: str = ""
    is_half: bool = False
    offset: int = 0
    """Bytes from the start of the arena, once that is planned."""
    is_turned: bool = False
    """Of a port: whether its last axis lies first."""


@dataclass(frozen=True)
class View:
    """Some elements of a buffer in some order: strides count elements."""

    buffer: Buffer
    shape: Shape
    strides: Shape
    offset: int = 0

    @property
    def elements(self) -> int:
        """How many elements it shows, those shown twice counted twice."""
        return prod(self.shape)

    @property
    def is_packed(self) -> bool:
        """Whether it shows elements as they lie, each once."""
        return self.strides == packed(self.shape) or all(
            size == 1 or stride == want
            for size, stride, want in zip(self.shape, self.strides, packed(self.shape), strict=True)
        )

    @property
    def is_whole(self) -> bool:
        """Whether it shows its buffer as it lies."""
        return self.is_packed and self.elements == self.buffer.elements

    def reshaped(self, shape: Shape) -> View:
        """The same elements in another shape, of a packed view."""
        return View(self.buffer, shape, packed(shape), self.offset)

    def permuted(self, perm: Shape) -> View:
        """Axes in another order."""
        shape, strides = (tuple(of[axis] for axis in perm) for of in (self.shape, self.strides))
        return View(self.buffer, shape, strides, self.offset)

    def cut(self, begin: Shape, end: Shape) -> View:
        """From begin to end on each axis."""
        at = sum(b * stride for b, stride in zip(begin, self.strides, strict=True))
        shape = tuple(e - b for b, e in zip(begin, end, strict=True))
        return View(self.buffer, shape, self.strides, self.offset + at)

    def stretched(self, shape: Shape) -> View:
        """Broadcast to a shape."""
        lead = len(shape) - len(self.shape)
        strides = (0,) * lead + tuple(
            0 if size == 1 != want else stride
            for size, want, stride in zip(self.shape, shape[lead:], self.strides, strict=True)
        )
        return View(self.buffer, shape, strides, self.offset)

    def squeezed(self) -> View:
        """Without axes of one element, and with axes that lie in one line made one."""
        shape: list[int] = []
        strides: list[int] = []
        for size, stride in zip(self.shape, self.strides, strict=True):
            if size == 1:
                continue
            if shape and strides[-1] == size * stride:
                shape[-1] *= size
                strides[-1] = stride
            else:
                shape.append(size)
                strides.append(stride)
        return View(self.buffer, tuple(shape) or (1,), tuple(strides) or (1,), self.offset)


def packed(shape: Shape) -> Shape:
    """The strides of elements that lie row by row."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


def whole(buffer: Buffer, shape: Shape) -> View:
    """All of a buffer in a shape."""
    return View(buffer, shape, packed(shape))


@dataclass(frozen=True)
class Step:
    """One elementwise op of a tape: every view has the tape's shape."""

    do: Do
    reads: tuple[View, ...]
    writes: View
    rounds: bool = False
    numbers: tuple[float, ...] = ()


@dataclass(eq=False)
class Command:
    """Work on views.

    Attributes:
        kind: what it does.
        reads, writes: the views, in the order that the kernel takes them.
        sizes: its parameters, from column A on.
        rounds: whether results are rounded to fp16.
        cost: about how many operations it is.
        total: what there is to deal out: elements, rows or jobs.
        steps: of a tape.
    """

    kind: Kind
    reads: tuple[View, ...]
    writes: tuple[View, ...]
    sizes: tuple[int, ...] = ()
    rounds: bool = False
    cost: int = 0
    total: int = 1
    steps: list[Step] = field(default_factory=list)
    # How it is run, which `phases` decides
    phase: int = 0
    units: int = 0
    size: int = 0

    @property
    def shape(self) -> Shape:
        """Of a tape: without axes of one element, so that like ones are known as such."""
        return tuple(size for size in self.writes[0].shape if size > 1)
