"""Convolutions of any kernel, stride, padding, dilation and grouping, along one to three axes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from orion_ane.errors import MilError, ShapeError
from orion_ane.ir.node import Arrays, Node, Op, Types
from orion_ane.ir.spelling import MilArgs, MilCall
from orion_ane.ops.foreign.linear import fitted
from orion_ane.ops.linear import Conv1x1
from orion_ane.ops.rules import FLOATS, typed, want_count, want_dtypes, want_same_dtype
from orion_ane.types import Array, TensorType

PAD_TYPES = ("valid", "same", "same_lower", "custom")


@dataclass(frozen=True)
class Conv(Op, name="conv"):
    """Σ w · x under a kernel that walks over x, zeros around it, plus a bias if there is one.

    x: F[N,I,*D], w: F[O,I/groups,*K], bias: F[O] -> F[N,O,*D'].  `pad` is before and after on
    each axis in turn.  What is a `conv1x1` reads as that.  No gradient: models are trained with
    conv1x1 alone.
    """

    strides: tuple[int, ...]
    pad: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int = 1
    has_bias: bool = False

    def infer(self, args: Types) -> TensorType:
        want_count(self, args, 2 + self.has_bias)
        x, w = args[:2]
        want_dtypes(self, x, FLOATS)
        for other in args[1:]:
            want_same_dtype(self, x, other, "xw")
        axes = x.rank - 2
        got = f"x {x} and w {w}, groups {self.groups}"
        if not 1 <= axes <= 3 or w.rank != x.rank:
            raise ShapeError(self.name, "shapes do not fit", got=got, want="1 to 3 spatial axes")
        if self.groups < 1 or w.shape[0] % self.groups or x.shape[1] != w.shape[1] * self.groups:
            raise ShapeError(self.name, "channels do not fit", got=got, want="[N,I], [O,I/groups]")
        if self.has_bias and args[2].shape != w.shape[:1]:
            want = w.with_shape(w.shape[:1])
            raise ShapeError(self.name, "bias does not fit", got=args[2], want=want)
        self.want_walk(axes)
        sizes = tuple(self._steps(x.shape[2 + i], w.shape[2 + i], i) for i in range(axes))
        if min(sizes) < 1:
            raise ShapeError(self.name, "the kernel is larger than x", got=got)
        if w.shape[2:] == (1, 1) and self == BY_POINTS:
            raise ShapeError(self.name, "by points", got=got, hint="it is a conv1x1")
        return typed(self, x.dtype, (x.shape[0], w.shape[0], *sizes))

    def want_walk(self, axes: int) -> None:
        """Refuse a walk that is not over so many axes, or that stands still."""
        for name, value, count, least in (
            ("strides", self.strides, axes, 1),
            ("dilations", self.dilations, axes, 1),
            ("pad", self.pad, 2 * axes, 0),
        ):
            if len(value) != count or min(value) < least:
                want = f"{count} numbers from {least}"
                raise ShapeError(self.name, f"{name} do not fit", got=value[:8], want=want)

    def _steps(self, size: int, kernel: int, axis: int) -> int:
        """How often the kernel fits along an axis."""
        reach = self.dilations[axis] * (kernel - 1) + 1
        return (size + sum(self.pad[2 * axis : 2 * axis + 2]) - reach) // self.strides[axis] + 1

    def eval(self, args: Arrays) -> Array:
        x, w = args[:2]
        n, o, kernel = x.shape[0], w.shape[0], w.shape[2:]
        axes = len(kernel)
        columns, steps = x, []
        for i, size in enumerate(kernel):  # each axis becomes (place in the kernel, step)
            steps.append(self._steps(x.shape[2 + i], size, i))
            columns = self._columns(columns, 2 + 2 * i, size, steps[-1], i)
        order = (0, 1, *range(2, 2 + 2 * axes, 2), *range(3, 3 + 2 * axes, 2))
        rows = x.shape[1] // self.groups * prod(kernel)
        columns = columns.transpose(order).reshape(n, self.groups, rows, -1)
        y = np.matmul(w.reshape(self.groups, o // self.groups, rows), columns)
        y = y.reshape(n, o, *steps)
        return y + args[2].reshape(o, *(1,) * axes) if self.has_bias else y

    def _columns(self, x: Array, at: int, kernel: int, steps: int, axis: int) -> Array:
        """What each place of the kernel sees at each step: axis `at` becomes two."""
        first = np.arange(kernel)[:, None] * self.dilations[axis] - self.pad[2 * axis]
        seen = first + np.arange(steps) * self.strides[axis]  # [kernel, steps]
        inside = (seen >= 0) & (seen < x.shape[at])
        taken = np.take(x, np.where(inside, seen, 0), axis=at)
        inside = inside.reshape(*inside.shape, *(1,) * (x.ndim - at - 1))
        return np.where(inside, taken, np.zeros((), x.dtype))

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (None,) * len(y.args)

    def mil(self) -> MilCall:
        return MilCall(
            "conv",
            ("x", "weight", *(("bias",) if self.has_bias else ())),
            {
                "strides": self.strides,
                "pad_type": "custom" if any(self.pad) else "valid",
                "pad": self.pad,
                "dilations": self.dilations,
                "groups": self.groups,
            },
        )

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        x, bias = args.node("x"), args.maybe("bias")
        operands = (x, *(fitted(v, x) for v in (args.node("weight"), bias) if v is not None))
        axes = max(x.type.rank - 2, 1)
        pad_type = args.text("pad_type", "valid")
        if pad_type not in PAD_TYPES:
            raise MilError("conv", "no such pad_type", got=pad_type, want=", ".join(PAD_TYPES))
        strides = args.integers("strides", (1,) * axes)
        dilations = args.integers("dilations", (1,) * axes)
        pad = args.integers("pad", (0,) * (2 * axes))
        op = cls(strides, pad, dilations, args.integer("groups", 1), bias is not None)
        if pad_type != "custom":
            op = op.padded(pad_type, x.type, operands[1].type)
        return convolution(op, *operands)

    def padded(self, pad_type: str, x: TensorType, w: TensorType) -> Conv:
        """This op with the padding that a word asks for.

        `same` pads just so much that sizes would stay at stride one, an odd zero behind, with
        `same_lower` before.
        """
        axes = x.rank - 2
        none = replace(self, pad=(0,) * (2 * max(axes, 0)))
        if pad_type == "valid" or axes < 1 or w.rank != x.rank:
            return none
        none.want_walk(axes)
        pad: list[int] = []
        for i in range(axes):
            steps = -(-x.shape[2 + i] // self.strides[i])
            reach = self.dilations[i] * (w.shape[2 + i] - 1) + 1
            total = max((steps - 1) * self.strides[i] + reach - x.shape[2 + i], 0)
            less, more = total // 2, total - total // 2
            pad += [more, less] if pad_type == "same_lower" else [less, more]
        return replace(self, pad=tuple(pad))


def convolution(op: Conv, *operands: Node) -> Node:
    """The op on operands x, w and perhaps a bias: as a `conv1x1`, where it is one."""
    w = operands[1].type
    by_points = op == BY_POINTS and w.shape[2:] == (1, 1)
    return Node(Conv1x1() if by_points else op, operands)


BY_POINTS = Conv((1, 1), (0, 0, 0, 0), (1, 1))
"""The walk of a `conv1x1`."""
