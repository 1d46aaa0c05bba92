"""Whether programs run with the weights that are learnt: a few numbers of each tensor tell."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from orion_ane.types import Array

SAMPLES = 64


def fingerprint(tensors: Mapping[str, Array]) -> bytes:
    """Of at most some `2 × SAMPLES` numbers of each tensor, spread evenly.

    A step of AdamW moves every number, so that two steps, or two runs, never look alike; a change
    to a single number may.  All of a model would take longer to read than its step's update.
    """
    found = hashlib.blake2b()
    for name, array in tensors.items():
        flat = array.reshape(-1)
        found.update(name.encode())
        found.update(flat[:: max(1, flat.size // SAMPLES)].astype(np.float32).tobytes())
    return found.digest()
