"""Graph to commands: one or a few an op, or one a group; what only moves elements is a view."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from math import prod
from types import MappingProxyType

from orion_ane.engine.functions import ROUNDS_NOTHING
from orion_ane.engine.known import Known
from orion_ane.engine.plan.codes import Codes
from orion_ane.engine.plan.commands import Buffer, Command, Shape, Step, View, packed, whole
from orion_ane.engine.plan.layout import (
    COLUMNS,
    SMALL_PRODUCT,
    THIN_COLUMNS,
    WIDE,
    Do,
    Fold,
    Kind,
)
from orion_ane.engine.plan.patterns import Attention, Norm, Patterns, Rotation
from orion_ane.engine.plan.tile_sizes import PANEL, ROWS
from orion_ane.ir.graph import Graph
from orion_ane.ir.node import Node, Op
from orion_ane.ops.arithmetic import Add, GreaterEqual, Maximum, Mul, RealDiv, Select, Sub
from orion_ane.ops.curve import Clip, Exp, Neg, Relu, Rsqrt, Sigmoid, Sqrt, Tanh
from orion_ane.ops.linear import Conv1x1, Matmul
from orion_ane.ops.reduction import ReduceMax, ReduceMean, ReduceSum, Softmax
from orion_ane.ops.shape import Cast, Concat, Pad, Reshape, Slice, Transpose
from orion_ane.types import DType

NO_CODES: Mapping[Node, Codes] = MappingProxyType({})
UNPACKED = 1 << 22  # weights of codes that are unpacked at once

_ELEMENTWISE: dict[type[Op], Do] = {
    Add: Do.ADD,
    Sub: Do.SUB,
    Mul: Do.MUL,
    RealDiv: Do.DIV,
    Maximum: Do.MAXIMUM,
    GreaterEqual: Do.AT_LEAST,
    Select: Do.CHOOSE,
    Relu: Do.RELU,
    Neg: Do.NEG,
    Exp: Do.EXP,
    Tanh: Do.TANH,
    Sigmoid: Do.SIGMOID,
    Sqrt: Do.SQRT,
    Rsqrt: Do.RSQRT,
    Clip: Do.CLIP,
    Cast: Do.COPY,
}
_FOLDS: dict[type[Op], Fold] = {
    ReduceSum: Fold.SUM,
    ReduceMean: Fold.MEAN,
    ReduceMax: Fold.MAX,
}


class NoCommand(Exception):  # noqa: N818 - no error: the tape runs such a graph
    """An op that no command computes."""


class Builder:
    """The commands of a graph, in its order, and where its ports and constants are."""

    def __init__(self, graph: Graph, known: Known, codes: Mapping[Node, Codes] = NO_CODES) -> None:
        self.graph, self.known, self._kept = graph, known, codes
        self.commands: list[Command] = []
        self.constants: list[Node] = []
        self.inputs: dict[str, Buffer] = {}
        self.outputs: dict[str, Buffer] = {}
        self._patterns = Patterns(graph)
        self._views: dict[Node, View] = {}
        self._laid: dict[tuple[Buffer, Shape, Shape, int], View] = {}
        self._scales: dict[Buffer, tuple[View, int]] = {}  # of codes, and how many have one

    def build(self) -> None:
        """Fill the lists.

        Raises:
            NoCommand: an op has no command.
        """
        names = {node: name for name, node in self.graph.inputs.items()}
        for node in self.graph.nodes:
            if node in self._kept:
                self._views[node] = self._codes(self._kept[node])
            elif node in names:
                self._input(names[node], node)
            elif self.known.is_computed(node) and node not in self._patterns.within:
                self._views[node] = self._computed(node)
        for name, node in self.graph.outputs.items():
            self._output(name, node)

    def _input(self, name: str, node: Node) -> None:
        _want_float(node)
        half = node.type.dtype is DType.FP16
        is_turned = node in self._patterns.turned
        buffer = Buffer(node.type.elements, "input", name, is_half=half, is_turned=is_turned)
        self.inputs[name] = buffer
        self._views[node] = whole(buffer, node.type.shape)

    def _output(self, name: str, node: Node) -> None:
        _want_float(node)
        half = node.type.dtype is DType.FP16
        view = self._view(node)
        taken = view.buffer.place != "arena" or not view.is_whole
        if not half and not taken:
            view.buffer.place, view.buffer.name = "output", name
            self.outputs[name] = view.buffer
            return
        buffer = Buffer(view.elements, "output", name, is_half=half)
        self.outputs[name] = buffer
        self._copy(view, whole(buffer, view.shape))

    def _view(self, node: Node) -> View:
        """Where the value of a node is."""
        node = self.known.origin(node)
        if node in self._views:
            return self._views[node]
        if not node.type.dtype.is_float:
            raise NoCommand
        self._views[node] = self._constant(node)
        return self._views[node]

    def _constant(self, node: Node) -> View:
        constant = self.known.constants[node]
        half = constant.dtype.itemsize == 2
        buffer = Buffer(constant.size, "constant", str(len(self.constants)), is_half=half)
        self.constants.append(node)
        return whole(buffer, node.type.shape)

    def _codes(self, codes: Codes) -> View:
        """The codes of a weight, which only a product reads."""
        found = self._constant(codes.data)
        self._scales[found.buffer] = self._view(codes.scale), codes.block
        return found

    # Ops

    def _computed(self, node: Node) -> View:
        match self._patterns.ends.get(node):
            case Attention() as found:
                return self._attention(node, found)
            case Rotation() as found:
                return self._rotation(node, found)
            case Norm() as found:
                return self._norm(node, found)
        op, args = node.op, [self._view(arg) for arg in node.args]
        if type(op) in _ELEMENTWISE:
            return self._elementwise(node, args)
        if type(op) in _FOLDS:
            return self._reduced(node, args[0], _FOLDS[type(op)])
        match op:
            case Reshape(shape=shape):
                return self._packed(args[0]).reshaped(shape)
            case Transpose(perm=perm):
                return args[0].permuted(perm)
            case Slice(begin=begin, end=end):
                return args[0].cut(begin, end)
            case Concat(axis=axis):
                return self._concat(node, args, axis)
            case Pad(before=before):
                return self._pad(node, args[0], before)
            case Softmax(axis=axis):
                return self._softmax(node, args[0], axis % node.type.rank)
            case Conv1x1():
                return self._convolution(node, *args)
            case Matmul(tx=tx, ty=ty):
                return self._product(node, *args, tx=tx, ty=ty)
        raise NoCommand

    def _elementwise(self, node: Node, args: list[View]) -> View:
        op = node.op
        if isinstance(op, Cast):
            _want_float(node.args[0])
        if not isinstance(op, GreaterEqual):
            _want_float(node)
        if isinstance(op, GreaterEqual):
            _want_float(node.args[0])
        if not isinstance(op, Select) and any(arg.type.dtype is DType.BOOL for arg in node.args):
            raise NoCommand
        out = self._new(node.type.shape)
        reads = tuple(arg.stretched(node.type.shape) for arg in args)
        numbers: tuple[float, ...] = ()
        if isinstance(op, Clip):
            numbers = (op.lo, op.hi)
        elif isinstance(op, Rsqrt):
            numbers = (op.eps,)
        self._tape(Step(_ELEMENTWISE[type(op)], reads, out, self._rounds(node), numbers))
        return out

    def _reduced(self, node: Node, x: View, fold: Fold) -> View:
        _want_float(node)
        axes = sorted(axis % node.args[0].type.rank for axis in node.op.axes)  # type: ignore[attr-defined]  # a Reduction
        x, order = self._rows_of(x, axes)
        outer, rows, inner = order
        out = self._new(node.type.shape)
        self._jobs(Kind.REDUCE, node, x, out, (rows, inner, fold), outer)
        return out

    def _rows_of(self, x: View, axes: list[int]) -> tuple[View, tuple[int, int, int]]:
        """The value packed, its axes `axes` side by side, and the sizes before, of and after."""
        first = axes[0]
        if axes != list(range(first, first + len(axes))):
            rest = [axis for axis in range(len(x.shape)) if axis not in axes]
            x = x.permuted((*rest, *axes))
            rows = prod(x.shape[len(rest) :])
            return self._packed(x, single=True), (x.elements // rows, rows, 1)
        rows = prod(x.shape[axis] for axis in axes)
        outer = prod(x.shape[:first])
        return self._packed(x, single=True), (outer, rows, x.elements // outer // rows)

    def _softmax(self, node: Node, x: View, axis: int) -> View:
        """Along the last axis, which `axis` becomes."""
        order = (*(i for i in range(len(x.shape)) if i != axis), axis)
        moved = self._packed(x.permuted(order), single=True)
        out = self._new(moved.shape)
        size = moved.shape[-1]
        self._jobs(Kind.SOFTMAX, node, moved, out, (size, 1), x.elements // size, weight=16)
        return out.permuted(tuple(order.index(i) for i in range(len(order))))

    def _jobs(
        self,
        kind: Kind,
        node: Node,
        x: View,
        out: View,
        sizes: tuple[int, ...],
        outer: int,
        weight: int = 1,
    ) -> None:
        jobs = outer * -(-sizes[1] // COLUMNS)
        cost = x.elements * weight
        self.commands.append(
            Command(kind, (x,), (out,), sizes, self._rounds(node), cost=cost, total=jobs)
        )

    def _concat(self, node: Node, parts: list[View], axis: int) -> View:
        _want_float(node)
        out = self._new(node.type.shape)
        start = 0
        for part in parts:
            begin, end = [0] * node.type.rank, list(node.type.shape)
            begin[axis], end[axis] = start, start + part.shape[axis]
            start = end[axis]
            self._copy(part, out.cut(tuple(begin), tuple(end)))
        return out

    def _pad(self, node: Node, x: View, before: Shape) -> View:
        _want_float(node)
        return self._padded(x, node.type.shape, before)

    def _padded(self, x: View, shape: Shape, before: Shape) -> View:
        """The value amid zeros: those are written piece by piece, so that nothing is twice."""
        out = self._new(shape)
        zero = View(_ZERO, (1,), (0,))
        inner_begin, inner_end = [0] * len(shape), list(shape)
        for axis, (b, n, size) in enumerate(zip(before, x.shape, shape, strict=True)):
            for start, stop in ((0, b), (b + n, size)):
                if start < stop:
                    begin, end = list(inner_begin), list(inner_end)
                    begin[axis], end[axis] = start, stop
                    part = out.cut(tuple(begin), tuple(end))
                    self._copy(View(zero.buffer, part.shape, (0,) * len(shape)), part)
            inner_begin[axis], inner_end[axis] = b, b + n
        self._copy(x, out.cut(tuple(inner_begin), tuple(inner_end)))
        return out

    # Products

    def _convolution(self, node: Node, x: View, w: View) -> View:
        n, inner, h, s = x.shape
        outer, columns = node.type.shape[1], n * h * s
        matrix = _matrix(w) or self._packed(w).reshaped((outer, inner))
        side = x.permuted((1, 0, 2, 3))
        y = self._by_weight(node, matrix, side, inner, outer, columns)
        return _split(y, (outer, n, h, s)).permuted((1, 0, 2, 3))

    def _by_weight(
        self, node: Node, w: View, x: View, inner: int, outer: int, columns: int
    ) -> View:
        """w [O,I] times x, its axes [I, ...columns]: [O, columns]."""
        if w.buffer in self._scales:
            return self._by_codes(node, w, x, (inner, outer, columns))
        is_weight = w.buffer.place == "constant"
        if is_weight and columns <= THIN_COLUMNS:
            turned = x.permuted((1, 2, 3, 0))
            x = self._packed(turned, single=True).reshaped((columns, inner))
            out = self._new((outer, columns))
            self._work(
                Kind.ROWS, (w, x), out, (inner, columns), node, outer, outer * inner * columns
            )
            return out
        if outer < WIDE or outer * inner * columns <= SMALL_PRODUCT:
            flat = self._packed(x).reshaped((inner, columns))
            return self._matmul(node, w, flat, (outer, columns, inner))
        return self._wide(node, w, _matrix(x) or self._packed(x).reshaped((inner, columns)))

    def _by_codes(self, node: Node, w: View, x: View, sizes: Shape) -> View:
        """The same with a weight of codes: in small products row by row, else unpacked before."""
        inner, outer, columns = sizes
        scale, block = self._scales[w.buffer]
        if columns <= THIN_COLUMNS or outer * inner * columns <= SMALL_PRODUCT:
            x = self._packed(x.permuted((1, 2, 3, 0)), single=True).reshaped((columns, inner))
            out, cost = self._new((outer, columns)), outer * inner * columns
            self._work(Kind.CODES, (w, scale, x), out, (inner, columns, block), node, outer, cost)
            return out
        out, step = self._new((outer, columns)), max(1, UNPACKED // inner)
        for top in range(0, outer, step):
            rows = min(step, outer - top)
            part = self._new((rows, inner))
            sizes, cost = (inner, top, block), rows * inner
            self.commands.append(
                Command(Kind.UNPACK, (w, scale), (part,), sizes, cost=cost, total=rows)
            )
            found = self._by_weight(node, part, x, inner, rows, columns)
            if rows == outer:
                return found
            self._copy(found, out.cut((top, 0), (top + rows, columns)))
        return out

    def _product(self, node: Node, x: View, y: View, *, tx: bool, ty: bool) -> View:
        _want_float(node)
        x, y = _turned(x) if tx else x, _turned(y) if ty else y
        shape = node.type.shape
        m, n, k = shape[-2], shape[-1], x.shape[-1]
        x, y = x.stretched((*shape[:-2], m, k)), y.stretched((*shape[:-2], k, n))
        if m * n * k > SMALL_PRODUCT and min(m, n) >= WIDE:
            return self._wide(node, x, y)
        if 1 < n < WIDE <= m:  # what loops go along is the longer side
            return _turned(self._matmul(node, _turned(y), _turned(x), (n, m, k)))
        return self._matmul(node, x, y, (m, n, k))

    def _matmul(self, node: Node, x: View, y: View, sizes: Shape) -> View:
        """Row by row in our own kernel, for any strides of x and y that it can follow."""
        m, n, k = sizes
        if n == 1 < m:  # a column is a row, and a row of y is read by one loop
            found = self._matmul(node, _turned(y), _turned(x), (1, m, k))
            return _turned(found)
        batch = x.shape[:-2]
        if m == prod(batch) == 1 and k > 1 and (row := self._row(node, x, y)) is not None:
            return row
        out = self._new((*batch, m, n))
        if y.strides[-1] != 1 and y.strides[-2] != 1 and n > 1 < k:
            y = self._packed(_base(y)).stretched(y.shape)
        self._work(
            Kind.MATMUL, (x, _turned(y)), out, sizes, node, prod(batch) * m, prod(batch) * m * n * k
        )
        return out

    def _row(self, node: Node, x: View, y: View) -> View | None:
        """A row x times y, dealt out by columns; None where neither axis of y is packed."""
        k, n = y.shape[-2:]
        out = self._new((*x.shape[:-2], 1, n))
        x = self._packed(x, single=True).reshaped((1, k))
        if y.strides[-2:] == (1, k):
            w = View(y.buffer, (n, k), (k, 1), y.offset)
            self._work(Kind.ROWS, (w, x), out.reshaped((n, 1)), (k, 1), node, n, n * k)
        elif y.strides[-1] == 1:
            w = View(y.buffer, (k, n), y.strides[-2:], y.offset)
            self._work(Kind.COLUMNS, (x, w), out, (n, k), node, n, n * k)
        else:
            return None
        return out

    def _wide(self, node: Node, x: View, y: View) -> View:
        """x [.., m, k] times y [.., k, n], which is laid out in panels."""
        batch, (m, k), n = x.shape[:-2], x.shape[-2:], y.shape[-1]
        panels = self._panels(y).stretched((*batch, 1, -(-n // PANEL) * PANEL * k))
        out = self._new((*batch, m, n))
        total = prod(batch) * -(-m // ROWS)
        cost = prod(batch) * m * n * k
        self._work(Kind.WIDE, (x, panels), out, (m, n, k), node, total, cost)
        return out

    def _panels(self, y: View) -> View:
        """The panels of each matrix of y, once for all products that read it."""
        y = _base(y)
        batch, (k, n) = y.shape[:-2], y.shape[-2:]
        key = y.buffer, y.shape, y.strides, y.offset
        if key not in self._laid:
            count = -(-n // PANEL)
            out = self._new((*batch, 1, count * PANEL * k))
            total = prod(batch) * count
            self.commands.append(
                Command(Kind.PANELS, (y,), (out,), (k, n), cost=out.elements, total=total)
            )
            self._laid[key] = out
        return self._laid[key]

    # Groups of ops

    def _attention(self, node: Node, of: Attention) -> View:
        groups, heads, depth, _ = of.q.type.shape
        room = of.cached_k.type.shape[-1]
        q, k, v = (self._packed(self._view(x), single=True) for x in (of.q, of.k, of.v))
        masks = [self._packed(self._view(mask)) for mask in (of.cached_mask, of.mask)]
        kept = [self._positions(cached, port) for cached, port in of.caches]
        out, cost = self._new(node.type.shape), 2 * groups * heads * room * depth
        reads, sizes = (q, *kept, masks[0], k, v, masks[1]), (groups, room, depth)
        self._work(Kind.ATTEND, reads, out, sizes, node, heads, cost)
        return out

    def _positions(self, cached: Node, port: Node | None) -> View:
        """A cache as [K,T,D]: a port that lies position by position, or what is laid so."""
        _, heads, depth, room = cached.type.shape
        if port is not None:
            buffer = self._view(port).buffer
            return View(buffer, (heads, room, depth), (depth, heads * depth, 1))
        return self._packed(self._view(cached).permuted((0, 1, 3, 2))).reshaped(
            (heads, room, depth)
        )

    def _rotation(self, node: Node, of: Rotation) -> View:
        *lead, depth, lanes = node.type.shape
        reads = tuple(self._packed(self._view(x), single=True) for x in (of.x, of.cos, of.sin))
        out, half = self._new(node.type.shape), depth // 2 * lanes
        self._work(Kind.ROTATE, reads, out, (half,), node, prod(lead), 4 * out.elements)
        return out

    def _norm(self, node: Node, of: Norm) -> View:
        x, (outer, rows, inner) = self._rows_of(self._view(of.x), [1])
        out = self._new(node.type.shape)
        zero = View(_ZERO, (1,), (0,))
        given = (zero if number is None else self._view(number) for number in (of.floor, of.root))
        steps = of.is_centred + 2 * (of.floor is not None)
        eps = struct.unpack("<q", struct.pack("<d", of.eps))[0]
        jobs = outer * -(-inner // COLUMNS)
        self._work(
            Kind.NORM, (x, *given), out, (rows, inner, steps, eps), node, jobs, 8 * out.elements
        )
        return out

    # What all share

    def _work(
        self,
        kind: Kind,
        reads: tuple[View, ...],
        out: View,
        sizes: tuple[int, ...],
        node: Node,
        total: int,
        cost: int,
    ) -> None:
        rounds = self._rounds(node)
        self.commands.append(Command(kind, reads, (out,), sizes, rounds, cost=cost, total=total))

    def _rounds(self, node: Node) -> bool:
        is_half = node.type.dtype is DType.FP16
        return self.known.rounds and is_half and not isinstance(node.op, ROUNDS_NOTHING)

    def _new(self, shape: Shape) -> View:
        return whole(Buffer(prod(shape)), shape)

    def _tape(self, step: Step) -> None:
        reads, out = step.reads, step.writes
        self.commands.append(
            Command(Kind.TAPE, reads, (out,), cost=_cost(step), total=out.elements, steps=[step])
        )

    def _copy(self, x: View, to: View) -> None:
        self._tape(Step(Do.COPY, (x,), to))

    def _packed(self, x: View, *, single: bool = False) -> View:
        """The view, or a copy of it that lies row by row; fp32 if it must be `single`."""
        if x.is_packed and not (single and x.buffer.is_half):
            return x
        out = self._new(x.shape)
        self._copy(x, out)
        return out


_ZERO = Buffer(1, "constant", "zero")


_DEAR = {Do.EXP: 8, Do.TANH: 12, Do.SIGMOID: 10, Do.SQRT: 2, Do.RSQRT: 4, Do.DIV: 2}


def _cost(step: Step) -> int:
    return step.writes.elements * _DEAR.get(step.do, 1)


def _base(x: View) -> View:
    """The view without what broadcasting repeats."""
    end = tuple(1 if stride == 0 else size for size, stride in zip(x.shape, x.strides, strict=True))
    return x.cut((0,) * len(end), end)


def _turned(x: View) -> View:
    """The last two axes in the other order."""
    rank = len(x.shape)
    return x.permuted((*range(rank - 2), rank - 1, rank - 2))


def _matrix(x: View) -> View | None:
    """[I, ...columns] as a matrix of the same memory, if all but one axis of columns are single."""
    wide = [axis for axis in range(1, len(x.shape)) if x.shape[axis] > 1]
    if len(wide) > 1:
        return None
    axis = wide[0] if wide else 1
    return View(x.buffer, (x.shape[0], x.shape[axis]), (x.strides[0], x.strides[axis]), x.offset)


def _split(y: View, shape: Shape) -> View:
    """[O, columns] with the columns as several axes, whatever lies between rows."""
    return View(y.buffer, shape, (y.strides[0], *packed(shape[1:])), y.offset)


def _want_float(node: Node) -> None:
    if not node.type.dtype.is_float:
        raise NoCommand
