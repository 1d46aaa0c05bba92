"""The transposed convolution: what a convolution's gradient does to its results."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np

from orion_ane.errors import MilError, ShapeError
from orion_ane.ir.node import Arrays, Node, Op, Types
from orion_ane.ir.spelling import Literal, MilArgs, MilCall
from orion_ane.ops.foreign.linear import fitted
from orion_ane.ops.rules import FLOATS, typed, want_count, want_dtypes, want_same_dtype
from orion_ane.types import Array, TensorType

PAD_TYPES = ("valid", "same", "custom")
MAX_SIZE = 1 << 31


@dataclass(frozen=True)
class ConvTranspose(Op, name="conv_transpose"):
    """Each element of x times the kernel, summed where the copies overlap, plus a bias if any.

    x: F[N,I,*D], w: F[I,O/groups,*K], bias: F[O] -> F[N,O,*D'].  Copies lie `strides` apart;
    `pad` is what of the sum is left out, before and after on each axis in turn.  `output_shape`,
    if not empty, says the shape instead of what is left out behind, with zeros beyond the sum.
    No gradient: models are trained with conv1x1 alone.
    """

    strides: tuple[int, ...]
    pad: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int = 1
    has_bias: bool = False
    output_shape: tuple[int, ...] = ()

    def infer(self, args: Types) -> TensorType:
        want_count(self, args, 2 + self.has_bias)
        x, w = args[:2]
        want_dtypes(self, x, FLOATS)
        for other in args[1:]:
            want_same_dtype(self, x, other, "xw")
        axes, got = x.rank - 2, f"x {x} and w {w}, groups {self.groups}"
        if not 1 <= axes <= 3 or w.rank != x.rank:
            raise ShapeError(self.name, "shapes do not fit", got=got, want="1 to 3 spatial axes")
        if self.groups < 1 or x.shape[1] % self.groups or x.shape[1] != w.shape[0]:
            raise ShapeError(self.name, "channels do not fit", got=got, want="[N,I], [I,O/groups]")
        channels = w.shape[1] * self.groups
        if self.has_bias and args[2].shape != (channels,):
            want = f"{channels} numbers"
            raise ShapeError(self.name, "bias does not fit", got=args[2], want=want)
        for name, value, count, least in (
            ("strides", self.strides, axes, 1),
            ("dilations", self.dilations, axes, 1),
            ("pad", self.pad, 2 * axes, 0),
        ):
            if len(value) != count or min(value) < least or max(value) >= MAX_SIZE:
                want = f"{count} numbers from {least}"
                raise ShapeError(self.name, f"{name} do not fit", got=value[:8], want=want)
        whole = self.whole(x.shape[2:], w.shape[2:])
        typed(self, x.dtype, (x.shape[0], channels, *whole))
        outer = (x.shape[0], channels)
        if self.output_shape and (self.output_shape[:2], len(self.output_shape)) != (outer, x.rank):
            want = f"{[*outer]} and {axes} sizes"
            raise ShapeError(
                self.name, "output_shape does not fit", got=self.output_shape[:8], want=want
            )
        cut = zip(whole, self.pad[::2], self.pad[1::2], strict=True)
        left = tuple(size - before - after for size, before, after in cut)
        return typed(self, x.dtype, self.output_shape or (*outer, *left))

    def whole(self, x: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[int, ...]:
        """The sizes of the sum, nothing left out."""
        walk = zip(x, kernel, self.strides, self.dilations, strict=True)
        return tuple((n - 1) * s + (k - 1) * d + 1 for n, k, s, d in walk)

    def eval(self, args: Arrays) -> Array:
        w, x = self.sides(*args[:2])
        return self.summed(np.matmul(w.swapaxes(-1, -2), x), args)

    def sides(self, x: Array, w: Array) -> tuple[Array, Array]:
        """[groups, I, O · taps] and [N, groups, I, places]: what is multiplied over I."""
        n, i = x.shape[:2]
        inner = i // self.groups
        return w.reshape(self.groups, inner, -1), x.reshape(n, self.groups, inner, -1)

    def summed(self, products: Array, args: Arrays) -> Array:
        """The op's value of its operands and of their products [N, groups, O · taps, places]."""
        x, w = args[:2]
        n, _, *shape = x.shape
        o, kernel = w.shape[1] * self.groups, w.shape[2:]
        copies = products.reshape(n, o, prod(kernel), *shape)
        whole = np.zeros((n, o, *self.whole(tuple(shape), kernel)), x.dtype)
        for at, place in enumerate(product(*map(range, kernel))):
            walk = zip(place, shape, self.strides, self.dilations, strict=True)
            where = (slice(k * d, k * d + (m - 1) * s + 1, s) for k, m, s, d in walk)
            whole[:, :, *where] += copies[:, :, at]
        y = self._cut(whole)
        return y + args[2].reshape(o, *(1,) * len(shape)) if self.has_bias else y

    def _cut(self, whole: Array) -> Array:
        """What of the sum is the result."""
        sizes, before, after = whole.shape[2:], self.pad[::2], self.pad[1::2]
        if not self.output_shape:
            ends = (size - a for size, a in zip(sizes, after, strict=True))
            return whole[:, :, *map(slice, before, ends)]
        y = np.zeros(self.output_shape, whole.dtype)
        ends = (b + size for b, size in zip(before, y.shape[2:], strict=True))
        found = whole[:, :, *map(slice, before, ends)]
        y[tuple(map(slice, found.shape))] = found
        return y

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (None,) * len(y.args)

    def mil(self) -> MilCall:
        said: dict[str, Literal] = {
            "strides": self.strides,
            "pad_type": "custom",
            "pad": self.pad,
            "dilations": self.dilations,
            "groups": self.groups,
        }
        if self.output_shape:
            said["output_shape"] = self.output_shape
        return MilCall("conv_transpose", ("x", "weight", *(("bias",) * self.has_bias)), said)

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        x, bias = args.node("x"), args.maybe("bias")
        operands = (x, *(fitted(v, x) for v in (args.node("weight"), bias) if v is not None))
        axes = max(x.type.rank - 2, 1)
        pad_type = args.text("pad_type", "valid")
        if pad_type not in PAD_TYPES:
            want = ", ".join(PAD_TYPES)
            raise MilError("conv_transpose", "no such pad_type", got=pad_type, want=want)
        ones, zeros = (1,) * axes, (0,) * (2 * axes)
        strides, pad = args.integers("strides", ones), args.integers("pad", zeros)
        op = cls(
            strides,
            pad if pad_type == "custom" else zeros,
            args.integers("dilations", ones),
            args.integer("groups", 1),
            bias is not None,
            args.integers("output_shape", ()),
        )
        return Node(op.same(*operands) if pad_type == "same" else op, operands)

    def same(self, x: Node, w: Node, *bias: Node) -> ConvTranspose:
        """This op with as much left out as makes x's sizes times the strides, half of it before.

        Raises:
            ShapeError: the op does not take these operands.
        """
        outer = self.infer((x.type, w.type, *(b.type for b in bias))).shape[:2]
        sizes = zip(x.type.shape[2:], self.strides, strict=True)
        wanted = self.output_shape[2:] or tuple(size * stride for size, stride in sizes)
        pad: tuple[int, ...] = ()
        whole = self.whole(x.type.shape[2:], w.type.shape[2:])
        for size, want in zip(whole, wanted, strict=True):
            extra = max(size - want, 0)
            pad += (extra // 2, extra - extra // 2)
        is_beyond = any(size < want for size, want in zip(whole, wanted, strict=True))
        said = (*outer, *wanted) if self.output_shape or is_beyond else ()
        return replace(self, pad=pad, output_shape=said)
