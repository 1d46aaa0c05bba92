"""Ranges: what a run's values come to, tensor by tensor, and how near to where they break.

A sum of products breaks at 2^15, and its products vanish where their exponents sum to less than
-16 (docs/numerics.md).  Both are told for any numerics: values of fp32 show what would break.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from orion_ane.engine.lost import Factors, counted, factors, multiplies
from orion_ane.engine.lower import Numerics, lowering
from orion_ane.engine.threads import Threads
from orion_ane.ir.graph import Graph
from orion_ane.ir.node import Node
from orion_ane.ops.leaf import Weight
from orion_ane.types import Array, DType, TensorType

SUM_CEILING = 2.0**15
LARGEST_SUM, LARGEST_HALF = 32752.0, 65504.0
NEAR = 2.0  # a sum that is not even this much below the ceiling is near it


@dataclass(frozen=True)
class Range:
    """What one tensor came to in a run, or in several.

    Attributes:
        name: of the value in the program's text; of an input, its port.
        op: the row of the op table that made it.
        type: as declared.
        largest: the largest finite magnitude.
        not_finite: how many values were infinite or NaN.
        saturated: how many were the largest finite number: 32752 of a sum of products, else 65504.
        products: how many products of two numbers other than 0 it sums; 0 where it sums none.
        lost: how many of them vanish: as exponents, each at least -14, sum to less than -16, or
            as the product of a subnormal number is nearer to 0 than to 2^-16.
        is_first: whether values were not finite although all operands were.
    """

    name: str
    op: str
    type: TensorType
    largest: float
    not_finite: int = 0
    saturated: int = 0
    products: int = 0
    lost: int = 0
    is_first: bool = False

    @property
    def room(self) -> float:
        """How many times larger values could be before they reach 2^15; 0 where some are."""
        if self.not_finite:
            return 0.0
        return SUM_CEILING / self.largest if self.largest else math.inf

    @property
    def lost_share(self) -> float:
        """The share of products that vanish."""
        return self.lost / self.products if self.products else 0.0

    @property
    def is_near(self) -> bool:
        """Whether it is a sum of products that comes near its ceiling."""
        return self.products > 0 and self.room < NEAR

    def merged(self, other: Range) -> Range:
        """Of two runs of one program."""
        return replace(
            self,
            largest=max(self.largest, other.largest),
            not_finite=self.not_finite + other.not_finite,
            saturated=self.saturated + other.saturated,
            products=self.products + other.products,
            lost=self.lost + other.lost,
            is_first=self.is_first or other.is_first,
        )

    def __str__(self) -> str:
        told = [f"largest {self.largest:.5g}"]
        if self.not_finite:
            told.insert(0, f"{self.not_finite} values not finite")
        elif self.is_near:
            share = self.largest / SUM_CEILING
            told.append(f"{share:.0%} of 32768, where a sum of products is infinite")
        return f"{self.op} {self.name} {self.type}: {', '.join(told)}"


@dataclass(frozen=True)
class RangeReport:
    """The tensors of a program, inputs first, then in the order of computation."""

    ranges: tuple[Range, ...]

    @property
    def first_bad(self) -> Range | None:
        """The first whose values are not finite though all that it was made of were."""
        return next((found for found in self.ranges if found.is_first), None)

    @property
    def nearest(self) -> Range | None:
        """The sum of products that comes nearest to its ceiling."""
        sums = [found for found in self.ranges if found.products]
        return min(sums, key=lambda found: found.room, default=None)

    @property
    def warning(self) -> Range | None:
        """What a user should know of: the first bad tensor, or else one near its ceiling."""
        nearest = self.nearest
        return self.first_bad or (nearest if nearest is not None and nearest.is_near else None)

    def merged(self, other: RangeReport) -> RangeReport:
        """Of two runs of one program."""
        pairs = zip(self.ranges, other.ranges, strict=True)
        return RangeReport(tuple(mine.merged(theirs) for mine, theirs in pairs))


class Meter:
    """Runs a graph step by step and measures each value.

    Args:
        graph: what to run.
        weights: as `lower` takes them.
        numerics: likewise; what is measured is what they compute.
        names: of nodes; others go by their op and their place.
        threads: likewise.
    """

    def __init__(
        self,
        graph: Graph,
        weights: Mapping[Weight, Array],
        *,
        numerics: Numerics,
        names: Mapping[Node, str],
        threads: int | None = None,
    ) -> None:
        self._graph, self._threads = graph, Threads(threads)
        self._lowering = lowering(graph, weights, numerics, self._threads)
        self._calls = self._lowering.calls()
        places = {node: f"#{i}" for i, node in enumerate(graph.nodes)}
        places |= {node: name for name, node in graph.outputs.items()}
        self._names = {**places, **names}
        self._last = {arg: i for i, (_, _, args) in enumerate(self._calls) for arg in args}
        self._counted: dict[Node, Factors] = {}  # of constants

    def measure(self, inputs: Mapping[str, Array]) -> RangeReport:
        """What the values of one run come to; `inputs` are of the ports' types."""
        values: dict[Node, Array] = {}
        odd: set[Node] = set()
        found: list[Range] = []
        with self._threads.running():
            for name, node in self._graph.inputs.items():
                values[node] = self._entered(node, inputs[name])
                found.append(self._range(name, node, values, odd))
            for i, (node, function, args) in enumerate(self._calls):
                rounded = self._lowering.known.rounder(node)
                y = function(*(self._value(arg, values) for arg in args))
                values[node] = y if rounded is None else rounded(y)
                found.append(self._range(self._names[node], node, values, odd))
                for arg in args:
                    if self._last[arg] == i:
                        values.pop(arg, None)
        return RangeReport(tuple(found))

    def _entered(self, node: Node, fed: Array) -> Array:
        enter = self._lowering.entering(is_half=node.type.dtype is DType.FP16)
        return fed if enter is None else enter(fed)

    def _value(self, node: Node, values: Mapping[Node, Array]) -> Array:
        known = self._lowering.known
        return values[node] if node in values else known.held(known.constants[node])

    def _range(self, name: str, node: Node, values: Mapping[Node, Array], odd: set[Node]) -> Range:
        value = values[node]
        if value.dtype.kind != "f":
            return Range(name, node.op.name, node.type, float(np.abs(value.astype(float)).max()))
        finite = np.isfinite(value)
        size = np.abs(np.where(finite, value, 0))
        bad = value.size - int(finite.sum())
        products, lost = self._products(node, values)
        end = LARGEST_SUM if products else LARGEST_HALF
        inherited = any(self._lowering.known.origin(arg) in odd for arg in node.args)
        if bad:
            odd.add(node)
        return Range(
            name,
            node.op.name,
            node.type,
            float(size.max()),
            bad,
            int((size >= end).sum()) if node.type.dtype is DType.FP16 else 0,
            products,
            lost,
            is_first=bool(bad) and not inherited,
        )

    def _products(self, node: Node, values: Mapping[Node, Array]) -> tuple[int, int]:
        """How many products of numbers other than 0 a node sums, and how many of them vanish."""
        if not multiplies(node):
            return 0, 0
        known = self._lowering.known
        operands = [known.origin(arg) for arg in node.args[:2]]
        arrays = [
            (known.constants[of] if of in known.constants else values[of]).reshape(arg.type.shape)
            for of, arg in zip(operands, node.args, strict=False)
        ]
        left, right = factors(node, arrays[0], arrays[1], self._counted.get(node))
        if operands[1] in known.constants:
            self._counted[node] = right
        return counted(left, right)
