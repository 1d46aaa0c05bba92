"""What every decoder family gives: graphs of its layers and head, and what the host adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeAlias

import numpy as np

from orion_ane.ir import Graph, Node
from orion_ane.models.config import ModelConfig
from orion_ane.models.weights.quantised import Quantised
from orion_ane.nn.blocks import Cache, Precision, linear
from orion_ane.ops import input_, reshape
from orion_ane.types import Array, DType, TensorType

Rows: TypeAlias = Array | Quantised
"""A table of vectors that the host looks up."""

MOST_TOKENS = 65536
"""The longest axis of a device (ane-facts, 4): a larger vocabulary leaves by several ports."""


class Decoder(Protocol):
    """A model family at one size; it knows no device.

    The body's ports: `x` [1,C,1,S], `mask` [1,1,S,S], `mask_cache` [1,1,S,T], for each layer
    `k_cache_NN`, `v_cache_NN` [1,K·D,1,T], and the family's tables; out come `x` as `hidden` and
    `k_NN`, `v_NN` [1,K·D,1,S].  The head turns `hidden` into `logits` [1,V,1,S],
    or into `logits_0`, … of stretches of a large vocabulary.
    """

    @property
    def config(self) -> ModelConfig:
        """The model's shape."""
        ...

    @property
    def kv_channels(self) -> int:
        """Channels of a layer's keys, K·D."""
        ...

    @property
    def host_names(self) -> tuple[str, ...]:
        """The tensors that `embed` looks up."""
        ...

    def body(self, layers: range, *, lanes: int, cached: int, precision: Precision) -> Graph:
        """The layers, over S = `lanes` new and T = `cached` earlier positions (0: none)."""
        ...

    def head(self, *, lanes: int, precision: Precision) -> Graph:
        """The final norm and the product with the vocabulary."""
        ...

    def weights(self, tensors: Mapping[str, Array], precision: Precision) -> dict[str, Array]:
        """Canonical tensors as the programs' weights: shaped, ordered, in their stored types."""
        ...

    def unit(self, name: str) -> int:
        """Columns of a matrix that move together, so that blocks of codes may not cross; 0: all."""
        ...

    def embed(self, tensors: Mapping[str, Rows], ids: Array, positions: Array) -> Array:
        """The vectors of tokens at positions, [S, C] in fp32."""
        ...

    def tables(self, positions: Array) -> dict[str, Array]:
        """The body's further inputs that depend on positions alone, by port, in fp32."""
        ...


class Ports:
    """The inputs of a body as they are declared, so that each family lists them alike."""

    def __init__(self, channels: int, *, lanes: int, cached: int, precision: Precision) -> None:
        self.dtype, self.lanes, self.cached = precision.compute, lanes, cached
        self.inputs: dict[str, Node] = {}
        self.x = self.add("x", (1, channels, 1, lanes))
        self.mask = self.add("mask", (1, 1, lanes, lanes))
        self.mask_cache = self.add("mask_cache", (1, 1, lanes, cached)) if cached else None

    def add(self, name: str, shape: tuple[int, ...]) -> Node:
        """Declare an input."""
        self.inputs[name] = input_(name, TensorType(self.dtype, shape))
        return self.inputs[name]

    def cache(self, layer: int, heads: int, head_dim: int) -> Cache | None:
        """Declare the cache of a layer, where there is one."""
        if self.mask_cache is None:
            return None
        flat = (1, heads * head_dim, 1, self.cached)
        k, v = (self.add(f"{kind}_cache_{layer:02d}", flat) for kind in "kv")
        per_head = (1, heads, head_dim, self.cached)
        return Cache(reshape(k, per_head), reshape(v, per_head), self.mask_cache)


def vocabulary(size: int) -> dict[str, range]:
    """The stretches of a vocabulary, by what the names of their port and weight end in."""
    count = -(-size // MOST_TOKENS)
    step = -(-size // count)
    starts = range(0, size, step)
    found = {f"_{i}": range(at, min(at + step, size)) for i, at in enumerate(starts)}
    return found if count > 1 else {"": range(size)}


def logits(
    h: Node, label: str, size: int, precision: Precision, *, port: str = "logits"
) -> dict[str, Node]:
    """The head's outputs: the product with each stretch of the vocabulary's matrix."""
    return {
        f"{port}{end}": linear(h, precision.matrix(label + end, len(rows), h.type.shape[1]))
        for end, rows in vocabulary(size).items()
    }


def matrix(array: Array, precision: Precision) -> Array:
    """[O, I] as the weight of a 1×1 convolution, in the type that matrices are stored in."""
    return stored(array.reshape(*array.shape, 1, 1), precision.matrices)


def vector(array: Array, precision: Precision) -> Array:
    """[C] as a column of channels, in the compute type."""
    return stored(array.reshape(1, -1, 1, 1), precision.compute)


def stored(array: Array, dtype: DType) -> Array:
    """The array in a float type; what overflows is counted by whoever loads (case N17)."""
    with np.errstate(over="ignore"):
        return array.astype(dtype.numpy, copy=False)
