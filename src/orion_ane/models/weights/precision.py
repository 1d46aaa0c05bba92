"""From fp32 weights to fp16 ones, with a count of what did not survive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from orion_ane.host.pages import forget
from orion_ane.models.weights.fields import MAX_LISTED
from orion_ane.types import Array

INFINITY = 0x7C00  # fp16's, and NaN is above
CHUNK = 1 << 20  # elements looked at at once, so that counting needs no second copy of a model


@dataclass(frozen=True)
class Loss:
    """What became of one tensor's numbers in fp16.

    Attributes:
        name: the tensor.
        overflowed: finite numbers that became infinite (from 65520 on).
        underflowed: numbers that became 0 (up to 2⁻²⁵).
        non_finite: numbers that were NaN or infinite before.
        largest: the largest finite magnitude before.
    """

    name: str
    overflowed: int
    underflowed: int
    non_finite: int
    largest: float

    def __str__(self) -> str:
        counts = {
            "overflow": self.overflowed,
            "underflow to 0": self.underflowed,
            "are not finite": self.non_finite,
        }
        told = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        return f"{self.name}: {told} (largest {self.largest:g})"


@dataclass(frozen=True)
class Report:
    """Tensors that lost something on the way to fp16, in the model's order."""

    losses: tuple[Loss, ...] = ()

    @property
    def is_damaged(self) -> bool:
        """Whether a number is infinite or NaN: the model's results will be too."""
        return any(loss.overflowed or loss.non_finite for loss in self.losses)

    def lines(self) -> tuple[str, ...]:
        """A line for each tensor that lost something, the worst first; a dozen, and a rest."""
        ranked = sorted(self.losses, key=lambda loss: (loss.overflowed + loss.non_finite) == 0)
        shown = tuple(f"fp16: {loss}" for loss in ranked[:MAX_LISTED])
        rest = len(ranked) - len(shown)
        return (*shown, f"fp16: and {rest} more tensors lost something") if rest else shown


class Rounded(Mapping[str, Array]):
    """Tensors in fp16, each rounded to nearest even when it is asked for, and not held.

    Arrays that are fp16 already are passed on as they are; their non-finite numbers count too.
    """

    def __init__(self, tensors: Mapping[str, Array]) -> None:
        self._tensors = tensors
        self._losses: dict[str, Loss] = {}

    def __getitem__(self, name: str) -> Array:
        array = self._tensors[name]
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            rounded = array.astype(np.float16, copy=False)
        if name not in self._losses:
            self._losses[name] = _compare(name, array, rounded)
        return rounded

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    @property
    def report(self) -> Report:
        """What it cost those that were asked for."""
        losses = (self._losses[name] for name in self._tensors if name in self._losses)
        lost = (one for one in losses if one.overflowed or one.underflowed or one.non_finite)
        return Report(tuple(lost))


def to_fp16(tensors: Mapping[str, Array]) -> tuple[dict[str, Array], Report]:
    """All tensors in fp16, and what that cost; see `Rounded`."""
    rounded = Rounded(tensors)
    return dict(rounded), rounded.report


def _compare(name: str, before: Array, after: Array) -> Loss:
    """Count what changed its kind, by the bits of fp16: its magnitudes are ordered as integers."""
    flat, words = before.reshape(-1), after.reshape(-1).view(np.uint16)
    infinite = underflowed = non_finite = 0
    for start in range(0, flat.size, CHUNK):
        x, magnitudes = flat[start : start + CHUNK], words[start : start + CHUNK] & 0x7FFF
        underflowed += int(np.count_nonzero(x)) - int(np.count_nonzero(magnitudes))
        if unbounded := int(np.count_nonzero(magnitudes >= INFINITY)):
            infinite += unbounded
            non_finite += x.size - int(np.count_nonzero(np.isfinite(x)))
        forget(x)
    lost = infinite or underflowed
    largest = float(np.max(np.abs(flat), where=np.isfinite(flat), initial=0)) if lost else 0.0
    return Loss(name, infinite - non_finite, underflowed, non_finite, largest)
