"""How a random graph grows: for each row of the table, a way to use it on what is there.

Every value stays moderate: each node carries the interval its elements lie in, an op whose result
would leave +-LIMIT is not made, and one that needs a domain (a root, a quotient) gets a guard.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

import numpy as np
from hypothesis import strategies as st

import orion_ane.ops as o
from orion_ane.ir import Node, Op
from orion_ane.ops.shape import Slice
from orion_ane.types import MAX_RANK, Array, DType, TensorType

FP16, FP32, INT32, BOOL = DType.FP16, DType.FP32, DType.INT32, DType.BOOL
FLOATS = (FP16, FP32)
DTYPES = (FP16, FP32, INT32, BOOL)

LIMIT = 1024.0
"""No element of a random graph is larger than this."""
FED = 2.0
"""Inputs and weights are fed from -FED to FED."""
MAX_NODE_ELEMENTS = 256


def shapes(*, min_rank: int = 0, max_rank: int = MAX_RANK, max_size: int = 4):
    """Shapes of few elements, in which axes of size one are common."""
    size = st.one_of(st.just(1), st.integers(1, max_size))
    ranks = st.lists(size, min_size=min_rank, max_size=max_rank)
    return ranks.map(tuple).filter(lambda shape: prod(shape) <= MAX_NODE_ELEMENTS)


def types(dtypes: tuple[DType, ...] = DTYPES, **options: int):
    """Types with one of `dtypes` and a shape from `shapes(**options)`."""
    return st.builds(TensorType, st.sampled_from(dtypes), shapes(**options))


def values(of: TensorType, rng: np.random.Generator, lo: float, hi: float) -> Array:
    """A value of the type `of` whose elements lie evenly between `lo` and `hi`."""
    if of.dtype is BOOL:
        return np.asarray(rng.random(of.shape) < 0.5)
    if of.dtype.is_float:
        return np.asarray(rng.uniform(lo, hi, of.shape), of.dtype.numpy)
    floor = max(int(np.ceil(lo)), int(np.iinfo(of.dtype.numpy).min))
    return np.asarray(rng.integers(floor, int(hi), of.shape, endpoint=True), of.dtype.numpy)


@dataclass(frozen=True)
class Grown:
    """A node and the interval its elements lie in."""

    node: Node
    lo: float
    hi: float

    @property
    def type(self) -> TensorType:
        return self.node.type


Result = tuple[Node, float, float]


@dataclass
class Garden:
    """The nodes made so far, and the ways to choose or make an operand."""

    draw: Callable
    dtypes: tuple[DType, ...]
    smooth: bool
    weights: bool
    pool: list[Grown] = field(default_factory=list)
    labels: int = 0

    def add(self, node: Node, lo: float, hi: float) -> Grown:
        lo, hi = (0.0, 1.0) if node.type.dtype is BOOL else (lo, hi)
        grown = Grown(node, lo, hi)
        self.pool.append(grown)
        return grown

    def pick(self, dtypes: tuple[DType, ...], *, min_rank: int = 0, max_rank: int = 5) -> Grown:
        """A value of one of `dtypes`, made so far or a fresh leaf."""
        fit = [
            g for g in self.pool if g.type.dtype in dtypes and min_rank <= g.type.rank <= max_rank
        ]
        if fit:
            return self.draw(st.sampled_from(fit))
        allowed = tuple(d for d in dtypes if d in self.dtypes) or dtypes
        return self.leaf(self.draw(types(allowed, min_rank=min_rank, max_rank=max_rank)))

    def leaf(self, of: TensorType) -> Grown:
        """A constant, or a weight where MIL's blob files hold the type."""
        if self.weights and of.dtype.is_float and of.rank and self.draw(st.booleans()):
            self.labels += 1
            return Grown(o.weight(f"w{self.labels}", of), -FED, FED)
        eighths = values(of.with_dtype(INT32), self.rng(), -8 * FED, 8 * FED)  # exact in fp16
        value = eighths / 8 if of.dtype.is_float else eighths % 2 if of.dtype is BOOL else eighths
        hi = 1.0 if of.dtype is BOOL else FED if of.dtype.is_float else 8 * FED
        return Grown(o.const(value, of.dtype), 0.0 if of.dtype is BOOL else -hi, hi)

    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.draw(st.integers(0, 2**32 - 1)))

    def mate(self, x: Grown) -> Grown:
        """A second operand of x's element type that broadcasts with it."""
        fit = [
            g
            for g in self.pool
            if g.type.dtype is x.type.dtype and broadcast_elements(g, x) <= MAX_NODE_ELEMENTS
        ]
        if self.draw(st.integers(0, 3)):
            return self.draw(st.sampled_from([x, *fit]))
        keep = self.draw(st.lists(st.booleans(), min_size=x.type.rank, max_size=x.type.rank))
        shape = tuple(n if k else 1 for n, k in zip(x.type.shape, keep, strict=True))
        return self.leaf(x.type.with_shape(shape[self.draw(st.integers(0, len(shape))) :]))

    def above(self, x: Grown, floor: float) -> Grown:
        """x, held at `floor` from below where it may lie under it."""
        if x.lo >= floor:
            return x
        held = o.maximum(x.node, o.const(floor, x.type.dtype))
        return Grown(held, floor, max(x.hi, floor))

    def ranked(self, x: Grown, rank: int) -> Grown:
        """x reshaped to `rank` axes, where it has another number."""
        if x.type.rank == rank:
            return x
        shape = self.draw(shapes_of(x.type.elements, rank))
        return Grown(o.reshape(x.node, shape), x.lo, x.hi)


def broadcast_elements(a: Grown, b: Grown) -> float:
    try:
        return prod(np.broadcast_shapes(a.type.shape, b.type.shape))
    except ValueError:
        return np.inf


@st.composite
def shapes_of(draw, elements: int, rank: int) -> tuple[int, ...]:
    """Shapes of `rank` axes that hold just so many elements."""
    sizes, rest = [], elements
    for _ in range(rank - 1):
        size = draw(st.sampled_from([d for d in range(1, rest + 1) if rest % d == 0]))
        sizes.append(size)
        rest //= size
    return tuple(draw(st.permutations([*sizes, rest])))


def bounded(node: Node, *ends: float) -> Result | None:
    """The node with the interval its ends span, or None where it leaves +-LIMIT."""
    lo, hi = min(ends), max(ends)
    return (node, lo, hi) if max(-lo, hi) <= LIMIT else None


ARITHMETIC = (FP16, FP32, INT32)


def binary(make: Callable[[Node, Node], Node], ends: Callable[..., tuple[float, ...]]):
    def grow(garden: Garden) -> Result | None:
        x = garden.pick(ARITHMETIC)
        y = garden.mate(x)
        if garden.draw(st.booleans()):
            x, y = y, x
        return bounded(make(x.node, y.node), *ends(x, y))

    return grow


def products(x: Grown, y: Grown) -> tuple[float, ...]:
    return x.lo * y.lo, x.lo * y.hi, x.hi * y.lo, x.hi * y.hi


def grow_mul(garden: Garden) -> Result | None:
    grown = binary(lambda x, y: x * y, products)(garden)
    if grown is None:
        return None
    match grown[0].args[1]:
        case Node(op=o.Const() as c) if c.of.rank == 0 and c.value == -1:
            return None  # reads back as neg
    return grown


def grow_real_div(garden: Garden) -> Result | None:
    x = garden.pick(FLOATS)
    y = garden.above(garden.mate(x), 0.5)
    return bounded(x.node / y.node, x.lo / 0.5, x.hi / 0.5)


def grow_pow(garden: Garden) -> Result | None:
    x = garden.pick(FLOATS)
    p = garden.draw(st.sampled_from([2.0, 3.0, 0.0, 1.0, -1.0, 0.5, -0.5, 1.5]))
    if p < 0 or p != int(p):
        x = garden.above(x, 0.5)
    reach = max(-x.lo, x.hi)
    return bounded(o.power(x.node, p), -(reach ** max(p, 0)), reach ** max(p, 0), 0.5 ** min(p, 0))


def curve(make: Callable[[Node], Node], ends: Callable[[Grown], tuple[float, ...]]):
    def grow(garden: Garden) -> Result | None:
        x = garden.pick(FLOATS)
        return bounded(make(x.node), *ends(x))

    return grow


def grow_exp(garden: Garden) -> Result | None:
    x = garden.pick(FLOATS)
    if max(-x.lo, x.hi) > 4:
        x = Grown(o.clip(x.node, -4.0, 4.0), -4.0, 4.0)
    return bounded(o.exp(x.node), 0.0, float(np.exp(x.hi)))


def grow_sqrt(garden: Garden) -> Result | None:
    x = garden.pick(FLOATS)
    x = garden.above(x, 0.25 if garden.smooth else 0.0)  # steep at 0
    return bounded(o.sqrt(x.node), 0.0, float(np.sqrt(x.hi)))


def grow_rsqrt(garden: Garden) -> Result | None:
    x = garden.above(garden.pick(FLOATS), 0.0)
    eps = garden.draw(st.sampled_from([0.25, 0.5, 1.0]))
    return bounded(o.rsqrt(x.node, eps), 0.0, 2.0)


def grow_clip(garden: Garden) -> Result | None:
    x = garden.pick(FLOATS)
    lo = garden.draw(st.integers(-16, 12)) / 8
    hi = lo + garden.draw(st.integers(1, 16)) / 8
    return bounded(o.clip(x.node, lo, hi), lo, hi)


def grow_select(garden: Garden) -> Result | None:
    a = garden.pick(garden.dtypes)
    b = garden.mate(a)
    if garden.draw(st.booleans()):
        flag = garden.leaf(TensorType(BOOL, garden.draw(st.sampled_from([a, b])).type.shape)).node
    else:
        x = garden.pick(ARITHMETIC)
        flag = o.greater_equal(x.node, garden.mate(x).node)
    try:
        shape = np.broadcast_shapes(flag.type.shape, a.type.shape, b.type.shape)
    except ValueError:
        return None
    if prod(shape) > MAX_NODE_ELEMENTS:
        return None
    return bounded(o.select(flag, a.node, b.node), a.lo, a.hi, b.lo, b.hi)


def grow_conv1x1(garden: Garden) -> Result | None:
    x = garden.ranked(garden.pick(FLOATS), 4)
    channels = x.type.shape[1]
    w = garden.leaf(x.type.with_shape((garden.draw(st.integers(1, 4)), channels, 1, 1)))
    if x.type.elements // channels * w.type.shape[0] > MAX_NODE_ELEMENTS:
        return None
    return bounded(o.conv1x1(x.node, w.node), *(channels * p for p in products(x, w)))


def grow_matmul(garden: Garden) -> Result | None:
    x = garden.pick(ARITHMETIC, min_rank=2)
    tx, ty = garden.draw(st.booleans()), garden.draw(st.booleans())
    k = x.type.shape[-2 if tx else -1]
    if garden.draw(st.booleans()):
        n = garden.draw(st.integers(1, 4))
        batch = x.type.shape[garden.draw(st.integers(0, x.type.rank - 2)) : -2]
        y = garden.leaf(x.type.with_shape((*batch, *((n, k) if ty else (k, n)))))
    else:
        y, ty = x, not tx  # a Gram matrix: one node is both operands
    node = o.matmul(x.node, y.node, tx=tx, ty=ty)
    if node.type.elements > MAX_NODE_ELEMENTS:
        return None
    return bounded(node, *(k * p for p in products(x, y)))


def axes_in(garden: Garden, x: Grown) -> tuple[int, ...]:
    """Some axes of x, each counted from either end."""
    axes = garden.draw(st.lists(st.integers(0, x.type.rank - 1), min_size=1, unique=True))
    return tuple(a - x.type.rank if garden.draw(st.booleans()) else a for a in axes)


def reduction(name: str, dtypes: tuple[DType, ...]):
    def grow(garden: Garden) -> Result | None:
        x = garden.pick(dtypes, min_rank=1)
        axes = axes_in(garden, x)
        node = Node(Op.table[name](axes), (x.node,))
        count = prod(x.type.shape[a] for a in axes) if name == "reduce_sum" else 1
        return bounded(node, count * x.lo, count * x.hi)

    return grow


def grow_softmax(garden: Garden) -> Result | None:
    x = garden.pick(FLOATS, min_rank=1)
    axis = garden.draw(st.integers(-x.type.rank, x.type.rank - 1))
    return bounded(o.softmax(x.node, axis), 0.0, 1.0)


def grow_reshape(garden: Garden) -> Result | None:
    x = garden.pick(garden.dtypes)
    rank = garden.draw(st.integers(1 if x.type.elements > 1 else 0, MAX_RANK))
    shape = garden.draw(shapes_of(x.type.elements, rank)) if rank else ()
    return bounded(o.reshape(x.node, shape), x.lo, x.hi)


def grow_transpose(garden: Garden) -> Result | None:
    x = garden.pick(garden.dtypes, min_rank=1)
    perm = garden.draw(st.permutations(range(x.type.rank)))
    return bounded(o.transpose(x.node, tuple(perm)), x.lo, x.hi)


def grow_cast(garden: Garden) -> Result | None:
    x = garden.pick(garden.dtypes)
    to = garden.draw(st.sampled_from(garden.dtypes))
    if garden.smooth and x.type.dtype.is_float and not to.is_float:
        return None
    return bounded(o.cast(x.node, to), x.lo, x.hi)


def grow_slice(garden: Garden) -> Result | None:
    x = garden.pick(garden.dtypes, min_rank=1)
    begin = tuple(garden.draw(st.integers(0, n - 1)) for n in x.type.shape)
    end = tuple(
        garden.draw(st.integers(b + 1, n)) for b, n in zip(begin, x.type.shape, strict=True)
    )
    return bounded(Node(Slice(begin, end), (x.node,)), x.lo, x.hi)


def grow_pad(garden: Garden) -> Result | None:
    x = garden.pick(FLOATS, min_rank=1)
    before, after = (tuple(garden.draw(st.integers(0, 2)) for _ in x.type.shape) for _ in "ba")
    node = o.pad(x.node, before, after)
    return bounded(node, x.lo, x.hi, 0.0) if node.type.elements <= MAX_NODE_ELEMENTS else None


def grow_concat(garden: Garden) -> Result | None:
    x = garden.pick(garden.dtypes, min_rank=1)
    axis = garden.draw(st.integers(0, x.type.rank - 1))
    parts = [x]
    for _ in range(garden.draw(st.integers(0, 2))):
        shape = list(x.type.shape)
        shape[axis] = garden.draw(st.integers(1, 2))
        other = garden.leaf(x.type.with_shape(tuple(shape)))
        parts.insert(
            garden.draw(st.integers(0, len(parts))), garden.draw(st.sampled_from([x, other]))
        )
    node = o.concat(*(part.node for part in parts), axis=axis)
    if node.type.elements > MAX_NODE_ELEMENTS:
        return None
    return bounded(node, *(end for part in parts for end in (part.lo, part.hi)))


def grow_identity(garden: Garden) -> Result | None:
    x = garden.pick(garden.dtypes)
    return bounded(o.identity(x.node), x.lo, x.hi)


GROWERS: dict[str, Callable[[Garden], Result | None]] = {
    "add": binary(lambda x, y: x + y, lambda x, y: (x.lo + y.lo, x.hi + y.hi)),
    "sub": binary(lambda x, y: x - y, lambda x, y: (x.lo - y.hi, x.hi - y.lo)),
    "mul": grow_mul,
    "real_div": grow_real_div,
    "maximum": binary(o.maximum, lambda x, y: (max(x.lo, y.lo), max(x.hi, y.hi))),
    "pow": grow_pow,
    "greater_equal": binary(o.greater_equal, lambda x, y: (0.0, 1.0)),
    "select": grow_select,
    "relu": curve(o.relu, lambda x: (max(x.lo, 0.0), max(x.hi, 0.0))),
    "tanh": curve(o.tanh, lambda x: (-1.0, 1.0)),
    "sigmoid": curve(o.sigmoid, lambda x: (0.0, 1.0)),
    "exp": grow_exp,
    "sqrt": grow_sqrt,
    "rsqrt": grow_rsqrt,
    "neg": curve(lambda x: -x, lambda x: (-x.hi, -x.lo)),
    "clip": grow_clip,
    "conv1x1": grow_conv1x1,
    "matmul": grow_matmul,
    "reduce_sum": reduction("reduce_sum", ARITHMETIC),
    "reduce_mean": reduction("reduce_mean", FLOATS),
    "reduce_max": reduction("reduce_max", ARITHMETIC),
    "softmax": grow_softmax,
    "reshape": grow_reshape,
    "transpose": grow_transpose,
    "cast": grow_cast,
    "identity": grow_identity,
    "slice": grow_slice,
    "pad": grow_pad,
    "concat": grow_concat,
}
"""How each row of the table is grown; leaves are grown by `Garden.leaf`."""
STEPS = frozenset({"greater_equal", "select"})
"""Rows whose result jumps; so does a cast to integers or bools."""
