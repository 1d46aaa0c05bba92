"""AdamW on fp32 arrays, step by step what torch computes, and the clipping of gradients."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from orion_ane.errors import ConfigError
from orion_ane.host.parts import Each, in_turn
from orion_ane.types import Array

CHUNK = 1 << 16
"""Elements updated at a time: they stay in the cache from the first operation to the last."""

CLIP_EPS = 1e-6
"""Added to the norm that divides, as in torch's `clip_grad_norm_`."""


@dataclass(frozen=True)
class AdamW:
    """The rule's constants.

    Attributes:
        beta1: how much of the mean of gradients is kept a step.
        beta2: how much of the mean of their squares is kept.
        eps: added to the root that divides.
        weight_decay: the share of a weight, times the rate, that goes each step, apart from
            the gradient.

    Raises:
        ConfigError: a value that means nothing.
    """

    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.1

    def __post_init__(self) -> None:
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(name, "out of range", got=getattr(self, name), want="0 to 1")
        for name in ("eps", "weight_decay"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(name, "out of range", got=getattr(self, name), want="0 or more")

    def update(
        self, weight: Array, gradient: Array, moments: Moments, *, step: int, lr: float, decay: bool
    ) -> None:
        """Move a weight and its moments by one step, in place; all are fp32 and contiguous.

        Args:
            weight: the master.
            gradient: of the mean loss.
            moments: of this weight; they and the master never leave fp32 (case O11).
            step: from 1.
            lr: this step's rate.
            decay: whether this weight decays.
        """
        size = math.sqrt(1 - self.beta2**step)
        length = -lr / (1 - self.beta1**step)
        kept = np.float32(1 - lr * self.weight_decay if decay else 1.0)
        room = np.empty(min(CHUNK, weight.size), np.float32)
        flat = [array.reshape(-1) for array in (weight, gradient, moments.mean, moments.square)]
        for at in range(0, weight.size, CHUNK):
            w, g, m, v = (array[at : at + CHUNK] for array in flat)
            t = room[: w.size]
            w *= kept
            np.subtract(g, m, out=t)
            t *= np.float32(1 - self.beta1)
            m += t
            np.multiply(g, g, out=t)
            t *= np.float32(1 - self.beta2)
            v *= np.float32(self.beta2)
            v += t
            np.sqrt(v, out=t)
            t /= np.float32(size)
            t += np.float32(self.eps)
            np.divide(m, t, out=t)
            t *= np.float32(length)
            w += t


@dataclass(frozen=True, eq=False)
class Moments:
    """What AdamW remembers of a weight: the means of its gradients and of their squares, in fp32.

    `mean` and `square` are of the weight's shape and written in place.
    """

    mean: Array
    square: Array

    @classmethod
    def zero(cls, shape: tuple[int, ...]) -> Moments:
        """Those of a weight that has seen no step."""
        return cls(np.zeros(shape, np.float32), np.zeros(shape, np.float32))


def global_norm(gradients: Iterable[Array], *, each: Each = in_turn) -> float:
    """The norm of all gradients as one vector, summed in double: inf or NaN where one has it."""
    arrays = list(gradients)
    squares = np.zeros(len(arrays))

    def square(i: int) -> None:
        with np.errstate(over="ignore", invalid="ignore"):  # a thread has its own
            squares[i] = _squares(arrays[i])

    each(square, range(len(arrays)))
    with np.errstate(over="ignore", invalid="ignore"):
        return math.sqrt(sum(squares.tolist()))


def _squares(array: Array) -> float:
    """The sum of squares, in double, without a double copy of the whole.

    By numpy itself: its BLAS would deal a part out among threads of its own, whose number showed.
    """
    flat = array.reshape(-1)
    total = 0.0
    for at in range(0, flat.size, CHUNK):
        part = flat[at : at + CHUNK].astype(np.float64)
        total += float(np.add.reduce(np.square(part, out=part)))
    return total


def clip(gradients: Iterable[Array], limit: float, *, each: Each = in_turn) -> float:
    """Shorten all gradients together to the norm `limit`, in place; the norm that they had.

    Gradients without a finite norm are left as they are: such a step is skipped (case O07).
    """
    arrays = list(gradients)
    norm = global_norm(arrays, each=each)
    factor = limit / (norm + CLIP_EPS)

    def shorten(i: int) -> None:
        np.multiply(arrays[i], np.float32(factor), out=arrays[i])

    if math.isfinite(norm) and factor < 1:
        each(shorten, range(len(arrays)))
    return norm
