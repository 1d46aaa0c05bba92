"""Windows that walk over images: their means, their largest elements, their lengths."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from orion_ane.errors import MilError, ShapeError
from orion_ane.ir.node import Arrays, Node, Op, Types
from orion_ane.ir.spelling import Literal, MilArgs, MilCall
from orion_ane.ops.rules import FLOATS, typed, unary, want_dtypes
from orion_ane.types import Array, TensorType

PAD_TYPES = ("valid", "same", "same_lower", "custom")
MAX_SIZE = 1 << 31


class Pool(Op):
    """A row that folds what a window sees of x, at each step on each spatial axis.

    `pad` is before and after on each axis in turn.  With `ceil_mode` a last step counts too that
    begins inside x and what is padded before it, though it ends outside.
    """

    kernel_sizes: tuple[int, ...]
    strides: tuple[int, ...]
    pad: tuple[int, ...]
    ceil_mode: bool
    most_axes: ClassVar[int] = 3

    def infer(self, args: Types) -> TensorType:
        x = unary(self, args)
        want_dtypes(self, x, FLOATS)
        axes = x.rank - 2
        if not 1 <= axes <= self.most_axes:
            want = f"[N,C,*D], rank 3 to {2 + self.most_axes}"
            raise ShapeError(self.name, "rank does not fit", got=x, want=want)
        for name, value, count, least in (
            ("kernel_sizes", self.kernel_sizes, axes, 1),
            ("strides", self.strides, axes, 1),
            ("pad", self.pad, 2 * axes, 0),
        ):
            if len(value) != count or min(value) < least or max(value) >= MAX_SIZE:
                want = f"{count} numbers from {least}"
                raise ShapeError(self.name, f"{name} do not fit", got=value[:8], want=want)
        steps = self.steps(x.shape)
        if min(steps) < 1:
            raise ShapeError(self.name, "the window is larger than x", got=x, want=str(self))
        return typed(self, x.dtype, (*x.shape[:2], *steps))

    def steps(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """How many steps fit on each axis."""
        return tuple(self._steps(size, axis) for axis, size in enumerate(shape[2:]))

    def _steps(self, size: int, axis: int) -> int:
        before, after = self.pad[2 * axis : 2 * axis + 2]
        stride, room = self.strides[axis], size + before + after - self.kernel_sizes[axis]
        if room < 0:
            return 0
        if not self.ceil_mode:
            return room // stride + 1
        steps = -(-room // stride) + 1
        is_outside = before + after > 0 and (steps - 1) * stride >= size + before
        return steps - is_outside

    def windows(self, x: Array, fill: float) -> Array:
        """What each step sees of x, which is padded with `fill`: the last axes are the window's."""
        amounts = [(0, 0), (0, 0)]
        for axis, steps in enumerate(self.steps(x.shape)):
            before, stride, kernel = self.pad[2 * axis], self.strides[axis], self.kernel_sizes[axis]
            reach = (steps - 1) * stride + kernel
            amounts.append((before, max(reach - before - x.shape[2 + axis], 0)))
        padded = np.pad(x, amounts, constant_values=fill)
        axes = tuple(range(2, x.ndim))
        seen = sliding_window_view(padded, self.kernel_sizes, axes)
        every = tuple(slice(None, None, stride) for stride in self.strides)
        return seen[:, :, *every]

    def mil(self) -> MilCall:
        said: dict[str, Literal] = {
            "kernel_sizes": self.kernel_sizes,
            "strides": self.strides,
            "pad_type": "custom",
            "pad": self.pad,
            "ceil_mode": self.ceil_mode,
        }
        return MilCall(self.name, ("x",), said)

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        x, walk = args.node("x"), read_walk(args)
        return Node(cls(*walk), (x,))  # type: ignore[call-arg]


def read_walk(args: MilArgs) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], bool]:
    """Window, strides, padding and ceil_mode of a statement, the words for padding worked out."""
    sizes = args.node("x").type.shape[2:]
    kernel = args.integers("kernel_sizes")
    strides = args.integers("strides", (1,) * len(kernel))
    pad = args.integers("pad", (0,) * (2 * len(kernel)))
    pad_type, ceil_mode = args.text("pad_type", "valid"), args.flag("ceil_mode", default=False)
    if pad_type not in PAD_TYPES:
        raise MilError(args.op, "no such pad_type", got=pad_type, want=", ".join(PAD_TYPES))
    fits = len(kernel) == len(strides) == len(sizes) and min(strides, default=0) > 0
    if pad_type == "valid":
        pad = (0,) * (2 * len(kernel))
    elif pad_type != "custom" and fits:
        pad = ()
        for size, window, stride in zip(sizes, kernel, strides, strict=True):
            total = max((-(-size // stride) - 1) * stride + window - size, 0)
            less, more = total // 2, total - total // 2  # the odd one behind, unless `same_lower`
            pad += (less, more) if pad_type == "same" else (more, less)
    return kernel, strides, pad, ceil_mode


@dataclass(frozen=True)
class MaxPool(Pool, name="max_pool"):
    """The largest element that each step sees.  x: F[N,C,*D] -> F[N,C,*D'].

    No gradient: models are trained without windows.
    """

    kernel_sizes: tuple[int, ...]
    strides: tuple[int, ...]
    pad: tuple[int, ...]
    ceil_mode: bool = False

    def eval(self, args: Arrays) -> Array:
        seen = self.windows(args[0], -np.inf)
        return seen.max(axis=tuple(range(args[0].ndim, seen.ndim)))

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (None,)


@dataclass(frozen=True)
class L2Pool(Pool, name="l2_pool"):
    """The root of the sum of squares that each step sees.  x: F[N,C,*D] -> F[N,C,*D'].

    MIL has it on one or two spatial axes.  No gradient: models are trained without windows.
    """

    most_axes = 2

    kernel_sizes: tuple[int, ...]
    strides: tuple[int, ...]
    pad: tuple[int, ...]
    ceil_mode: bool = False

    def eval(self, args: Arrays) -> Array:
        seen = self.windows(args[0] * args[0], 0.0)
        return np.sqrt(seen.sum(axis=tuple(range(args[0].ndim, seen.ndim))))

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (None,)


@dataclass(frozen=True)
class AvgPool(Pool, name="avg_pool"):
    """The mean of what each step sees.  x: F[N,C,*D] -> F[N,C,*D'].

    Zeros of the padding count, unless `exclude`; what a last step sees beyond them never does.
    No gradient: models are trained without windows.
    """

    kernel_sizes: tuple[int, ...]
    strides: tuple[int, ...]
    pad: tuple[int, ...]
    ceil_mode: bool = False
    exclude: bool = False

    def eval(self, args: Arrays) -> Array:
        (x,) = args
        seen = self.windows(x, 0.0)
        total = seen.sum(axis=tuple(range(x.ndim, seen.ndim)))
        counts = [self._counted(size, axis) for axis, size in enumerate(x.shape[2:])]
        return total / prod(np.ix_(*counts), start=np.ones((), x.dtype)).astype(x.dtype)

    def _counted(self, size: int, axis: int) -> Array:
        """How many elements each step counts along an axis; never none."""
        before, after = self.pad[2 * axis : 2 * axis + 2]
        low, high = (0, size) if self.exclude else (-before, size + after)
        first = np.arange(self._steps(size, axis)) * self.strides[axis] - before
        last = np.minimum(first + self.kernel_sizes[axis], high)
        return np.maximum(last - np.maximum(first, low), 1)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (None,)

    def mil(self) -> MilCall:
        call = super().mil()
        said = {**call.consts, "exclude_padding_from_average": self.exclude}
        return MilCall(call.op, call.operands, said)

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        exclude = args.flag("exclude_padding_from_average", default=False)
        x, walk = args.node("x"), read_walk(args)
        return Node(cls(*walk, exclude), (x,))
