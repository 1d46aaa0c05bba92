"""How each chip's numbers behave, as data: every rule with its state and its sources.

`NUMERICS["m5"].overflow.value` is "sticky"; `.state` says how much that is worth, and
`.sources` who says so.  Nothing here was run on a device: what is exact reproduces values that
others published of theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from orion_ane.errors import ConfigError

Overflow: TypeAlias = Literal["final", "sticky"]
ConvForm: TypeAlias = Literal["direct", "winograd"]
Subnormals: TypeAlias = Literal["kept", "flushed"]

T = TypeVar("T")


class State(Enum):
    """What a rule is worth."""

    EXACT = "exact"
    """It reproduces values published of devices, to the last digits printed."""
    APPROXIMATE = "approximate"
    """It follows a report that no published value confirms, or is only near to what is known."""
    DISPUTED = "disputed"
    """Sources exclude each other, or leave it open: the rule can be switched."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Rule(Generic[T]):
    """One answer, what it is worth, who gives it, and what else it could be.

    Sources are named after the collection of public material in docs/numerics.md.
    """

    value: T
    state: State
    sources: tuple[str, ...]
    choices: tuple[T, ...] = ()
    """What the rule may be switched to; without any, it is not a question."""

    def switched(self, name: str, value: T) -> Rule[T]:
        """The rule with another of its answers.

        Raises:
            ConfigError: not among its choices.
        """
        if value not in self.choices:
            want = " or ".join(map(str, self.choices)) or "no other answer"
            raise ConfigError(name, "no such answer", got=value, want=want)
        return replace(self, value=value)


@dataclass(frozen=True)
class Numerics:
    """The rules of one target.

    A *product-sum* is a sum of products with a constant weight: `linear`, and `conv`.
    """

    target: str
    product_grid: Rule[float]
    """Products are rounded to multiples of this, ties away from zero, and added exactly."""
    product_floor: Rule[int]
    """A product is 0 whose operands' exponents, each at least -14, sum to less."""
    sum_rounding: Rule[str]
    """How a sum becomes fp16."""
    sum_ceiling: Rule[float]
    """A sum of this magnitude, once rounded, is infinite."""
    overflow: Rule[Overflow]
    """Whether a partial sum may pass the ceiling and come back (final) or not (sticky)."""
    conv_3x3: Rule[ConvForm]
    """How a 3×3 convolution of stride 1 is computed; others are direct."""
    computed_products: Rule[str]
    """Products of two operands that are both computed: attention's."""
    difference: Rule[str]
    """Elementwise difference and sum: exact, rounded once, ties away."""
    product: Rule[str]
    """Elementwise product: rounded to 11 bits, then to the subnormal grid, both ties away."""
    elementwise_ceiling: Rule[float]
    """What a rounded elementwise result must stay below."""
    nan: Rule[str]
    """What an input that is NaN counts as."""
    indeterminate: Rule[float]
    """What inf - inf, 0 · inf and the square root of -1 give."""
    negative_zero: Rule[str]
    """What x + 0 makes of -0."""
    subnormals: Rule[Subnormals]
    """What elementwise ops make of numbers below 2^-14; product-sums know only their own grid."""
    slice_limit: Rule[float | None]
    """A slice of the last axis that does not begin at 0 makes larger magnitudes infinite."""
    activations: Rule[str]
    """Sigmoid, tanh, gelu and their like."""
    reductions: Rule[str]
    """Sums, means, norms and softmax."""

    def switched(self, **answers: Any) -> Numerics:
        """These rules with other answers, as a probe or a user gives them.

        Raises:
            ConfigError: no such rule, or not one of its choices.
        """
        rules = dict(self.rules())
        if unknown := ", ".join(sorted(set(answers) - set(rules))):
            want = " or ".join(sorted(name for name, rule in rules.items() if rule.choices))
            raise ConfigError("arithmetic", "no such rule", got=unknown, want=want)
        switched: dict[str, Any] = {
            name: rules[name].switched(f"arithmetic.{name}", value)
            for name, value in answers.items()
        }
        return replace(self, **switched)

    def rules(self) -> Iterator[tuple[str, Rule[Any]]]:
        """Each rule by name."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Rule):
                yield field.name, value


FINGERPRINTS = "fingerprints: results of M1, M2 Pro and M5 Pro"
SWEEPS = "saturation sweeps of M1, M4, M2 Pro and M5 Pro"
GUIDE = "guide, section 3: M1"
CLIFFS = "numeric cliffs: six machines, #115"
ROOFLINES = "rooflines: six machines"
CROSS_CHIP = "cross-chip: six machines"
NEIGHBOURS = "nothing published of this chip: as its neighbours"

_M1 = Numerics(
    target="m1",
    product_grid=Rule(2.0**-16, State.EXACT, (FINGERPRINTS,)),
    product_floor=Rule(-16, State.EXACT, (FINGERPRINTS,)),
    sum_rounding=Rule("away", State.EXACT, (FINGERPRINTS, ROOFLINES)),
    sum_ceiling=Rule(2.0**15, State.EXACT, (CLIFFS, GUIDE)),
    overflow=Rule("sticky", State.DISPUTED, (CLIFFS,), choices=("final", "sticky")),
    conv_3x3=Rule("direct", State.EXACT, (FINGERPRINTS, SWEEPS)),
    computed_products=Rule("product-sum", State.APPROXIMATE, (FINGERPRINTS,)),
    # Their own Jacobi values are met to 2.4e-8 only, since the host's BLAS made the matrix.
    difference=Rule("once", State.APPROXIMATE, (FINGERPRINTS,)),
    product=Rule("twice", State.APPROXIMATE, (FINGERPRINTS,)),
    elementwise_ceiling=Rule(2.0**16, State.APPROXIMATE, (GUIDE,)),
    nan=Rule("inf", State.APPROXIMATE, (GUIDE,)),
    indeterminate=Rule(0.0, State.APPROXIMATE, (GUIDE,)),
    negative_zero=Rule("+0", State.APPROXIMATE, (GUIDE,)),
    subnormals=Rule("kept", State.DISPUTED, (GUIDE, "#263"), choices=("kept", "flushed")),
    slice_limit=Rule(4094.0, State.APPROXIMATE, (CROSS_CHIP,)),
    activations=Rule("tables", State.APPROXIMATE, (GUIDE, "guide, sections 25 and 26")),
    reductions=Rule("fp32", State.APPROXIMATE, ("no rule meets the published values",)),
)


def _assumed(rule: Rule[T]) -> Rule[T]:
    return replace(rule, state=State.APPROXIMATE, sources=(NEIGHBOURS,))


_M3 = replace(
    _M1,
    target="m3",
    product_grid=_assumed(_M1.product_grid),
    product_floor=_assumed(_M1.product_floor),
    sum_rounding=_assumed(_M1.sum_rounding),
    sum_ceiling=_assumed(_M1.sum_ceiling),
    conv_3x3=Rule("direct", State.DISPUTED, (NEIGHBOURS,), choices=("direct", "winograd")),
    slice_limit=Rule(None, State.APPROXIMATE, ("decoded, not measured",)),
)
_M4 = replace(
    _M1,
    target="m4",
    conv_3x3=Rule("direct", State.EXACT, (SWEEPS,)),
    slice_limit=Rule(None, State.APPROXIMATE, (CROSS_CHIP,)),
)
_M5 = replace(
    _M4,
    target="m5",
    conv_3x3=Rule("winograd", State.EXACT, (FINGERPRINTS, SWEEPS)),
    difference=Rule("once", State.EXACT, (FINGERPRINTS,)),
    product=Rule("twice", State.EXACT, (FINGERPRINTS,)),
)

NUMERICS: Mapping[str, Numerics] = MappingProxyType(
    {
        "m1": _M1,
        "m2": replace(_M1, target="m2"),
        "m3": _M3,
        "m4": _M4,
        "m5": _M5,
        "strict": replace(_M1, target="strict"),  # the oldest chip knows the most limits
        # The paper's machine, and of overflow no more than the paper says.
        "paper": replace(_M4, target="paper").switched(overflow="final"),
    }
)
