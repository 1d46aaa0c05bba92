"""The gradients of a stage's weights, added to the sums: the host's share of the way back."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from orion_ane.autodiff.taps import Pair
from orion_ane.engine import Threads
from orion_ane.train.layout import Place
from orion_ane.train.stages import Stage
from orion_ane.types import Array


def add_gradients(
    stage: Stage,
    every: Mapping[str, Array],
    places: Mapping[str, Place],
    sums: Mapping[str, Array],
    *,
    factor: float,
    threads: Threads,
) -> None:
    """Add the gradients of a stage's matrices and vectors to the sums of a step.

    Args:
        stage: whose weights.
        every: what its kernels read and gave, by port.
        places: where each weight lies in the tensors.
        sums: fp32 arrays by tensor, to be added to.
        factor: what the gradients were multiplied by; a power of two.
        threads: who may share in it; a run of theirs is held.
    """
    from orion_ane.engine.contraction import add_all  # it imports numba

    for turn in _turns(stage.pairs):
        targets = [_Target(pair, every, places, sums, factor) for pair in turn]
        add_all([target.product for target in targets], threads)
        threads.each(_Target.finish, [target for target in targets if target.is_apart])
    for name, label in stage.vectors.items():
        place, gradient = places[label], every[name].astype(np.float32)
        if factor != 1:
            gradient /= np.float32(factor)
        place.add(gradient, sums[place.tensor])


def _turns(pairs: tuple[Pair, ...]) -> list[list[Pair]]:
    """The pairs in groups in which no two are of one weight, in order."""
    turns: list[list[Pair]] = []
    count: dict[str, int] = {}
    for pair in pairs:
        at = count[pair.weight] = count.get(pair.weight, -1) + 1
        if at == len(turns):
            turns.append([])
        turns[at].append(pair)
    return turns


class _Target:
    """A product and where it goes: into the sum itself, where its rows and columns lie so there."""

    def __init__(
        self,
        pair: Pair,
        every: Mapping[str, Array],
        places: Mapping[str, Place],
        sums: Mapping[str, Array],
        factor: float,
    ) -> None:
        from orion_ane.engine.contraction import Outer

        x, dy = (_matrix(every[name]) for name in (pair.x, pair.dy))
        self.factor, self.place = factor, places[pair.weight]
        self.sum = sums[self.place.tensor]
        rows, columns = self.place.rows, self.place.columns
        self.is_apart = factor != 1 or not isinstance(rows, slice) or not isinstance(columns, slice)
        to = np.zeros((len(dy), len(x)), np.float32) if self.is_apart else self.sum[rows, columns]
        self.product = Outer(dy, x, to)

    def finish(self) -> None:
        """Take a product that was computed apart to its place."""
        gradient = self.product.to
        if self.factor != 1:
            gradient /= np.float32(self.factor)
        self.place.add(gradient, self.sum)


def _matrix(value: Array) -> Array:
    """[1, C, 1, S] as [C, S]."""
    return np.ascontiguousarray(value.reshape(value.shape[1], -1))
