"""gelu, in its three forms, and silu, spelled in curves that every device has.

ANE010 refuses gelu.  Nobody reports of silu on such a device, so it is not asked for either.
"""

from __future__ import annotations

from math import sqrt

from orion_ane.ane.targets import Target
from orion_ane.ir import Graph, Node
from orion_ane.nn import blocks
from orion_ane.ops import clip, const, exp, maximum, power, relu, sigmoid
from orion_ane.ops.foreign.gates import SIGMOID, TANH, Gelu, Silu
from orion_ane.passes.rewrite import rewrite

TAIL_END = 12.0
"""From here on Φ(-x) is below 2e-33, nothing beside x."""
_POLE = 0.3275911
_SERIES = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
"""erfc(z) ≈ exp(-z²) Σ aᵢ tⁱ with t = 1 / (1 + 0.3275911 z), to 1.5e-7 (Abramowitz and Stegun,
7.1.26)."""
FORM_ERROR = 3e-7
"""The most by which the exact form that is spelled here errs for that reason: |x| · 1.5e-7 / 2, as
far as the exponential leaves it."""


def spell_gate(node: Node) -> Node | None:
    """gelu(x) -> x · Φ(x) in one of three forms, silu(x) -> x · sigmoid(x)."""
    match node:
        case Node(op=Gelu(mode=mode), args=(x,)):
            if mode == TANH:
                return blocks.gelu(x)
            if mode == SIGMOID:
                return x * sigmoid(x * const(1.702, x.type.dtype))
            return exact_gelu(x)
        case Node(op=Silu(), args=(x,)):
            return blocks.silu(x)
    return None


def exact_gelu(x: Node) -> Node:
    """relu(x) - |x| Φ(-|x|), which is x Φ(x): near x nothing cancels, and small parts stay small.

    |x| is held at 12, so that no square overflows (case N07).
    """
    dtype = x.type.dtype
    near = clip(x, -TAIL_END, TAIL_END)
    size = maximum(near, -near)
    z = size * const(sqrt(0.5), dtype)
    t = power(z * const(_POLE, dtype) + const(1, dtype), -1.0)
    series = t * const(_SERIES[-1] / 2, dtype)
    for factor in _SERIES[-2::-1]:
        series = (series + const(factor / 2, dtype)) * t
    return relu(x) - size * (series * exp(-(z * z)))


def gelu(graph: Graph, target: Target) -> Graph:
    """The graph without gelu and silu."""
    return rewrite(graph, spell_gate) if "ANE010" in target.limits else graph
