"""The weights of a kernel: the model's own, transposed copies of them, and masks."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from orion_ane.errors import CheckpointError
from orion_ane.ir import Graph
from orion_ane.models.build import decoder_of
from orion_ane.models.config import ModelConfig
from orion_ane.nn.blocks import MASKED, Precision
from orion_ane.ops import Weight
from orion_ane.types import Array

TRANSPOSED, CAUSAL = "_t", "causal_"
_STRETCH = re.compile(r"^(embed|head|wte)_\d+$")  # of a large vocabulary


def for_kernel(
    graph: Graph, config: ModelConfig, tensors: Mapping[str, Array], precision: Precision
) -> dict[str, Array]:
    """The arrays that a kernel's graph reads, by label; `tensors` are canonical.

    Raises:
        CheckpointError: a tensor that the kernel needs is not there.
    """
    labels = {leaf.op.label: leaf.type for leaf in graph.nodes if isinstance(leaf.op, Weight)}
    sources = {label: label.removesuffix(TRANSPOSED) for label in labels}
    wanted = {
        _STRETCH.sub(r"\1", source) for source in sources.values() if not source.startswith(CAUSAL)
    }
    missing = sorted(wanted - set(tensors))
    if missing:
        raise CheckpointError("kernel", "tensors are missing", got=missing)
    read = {name: array for name, array in tensors.items() if name in wanted}
    model = decoder_of(config).weights(read, precision)
    found: dict[str, Array] = {}
    for label, source in sources.items():
        if source.startswith(CAUSAL):
            found[label] = causal_mask(labels[label].shape[3], precision)
        elif label != source:
            found[label] = np.ascontiguousarray(model[source].transpose(1, 0, 2, 3))
        else:
            found[label] = model[source]
    return found


def causal_mask(lanes: int, precision: Precision) -> Array:
    """0 where a position may see another and itself, far below any score elsewhere: [1,1,S,S]."""
    masked = MASKED[precision.compute]
    return np.triu(np.full((lanes, lanes), masked, precision.compute.numpy), 1)[None, None]
