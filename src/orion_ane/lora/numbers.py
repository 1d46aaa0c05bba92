"""The numbers of an adapter's file, whatever float it keeps them in."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from orion_ane.errors import CheckpointError
from orion_ane.models.weights.tensors import Stored, frozen
from orion_ane.types import Array


def numbers_of(path: Path, name: str, stored: Stored) -> Array:
    """A tensor in fp32, every number finite; float64 is rounded to it, as PEFT does.

    Raises:
        CheckpointError: another type, or a number that is not finite or that fp32 has no room for.
    """
    if stored.read is None:
        raise CheckpointError(str(path), f"{name} has a type that is not read", got=stored.kind)
    array = stored.read()
    with np.errstate(over="ignore"):
        found = np.array(array, np.float32)
    if not np.isfinite(found).all():
        if np.isfinite(array).all():
            what, got = "numbers that fp32 has no room for", f"{float(abs(array).max()):g}"
            raise CheckpointError(str(path), f"{name} has {what}", got=got)
        raise CheckpointError(str(path), f"{name} has numbers that are not finite")
    return frozen(found)
