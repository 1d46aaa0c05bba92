"""Our own kernels: whole layers, as many as a program shall hold, and the head.

Attention is inside, over the cache of earlier positions as inputs; masks and rotary tables are
inputs; the keys and values of the new positions are outputs (see `Decoder`).
"""

from __future__ import annotations

from orion_ane.ir import Graph
from orion_ane.models.build import decoder_of
from orion_ane.models.config import ModelConfig
from orion_ane.nn.blocks import Precision


def body_prefill(
    config: ModelConfig,
    precision: Precision,
    *,
    layers: range | None = None,
    lanes: int,
    cached: int = 0,
) -> Graph:
    """Some layers, by default all, over many new positions; `cached` 0 has no cache at all."""
    stretch = range(config.layers) if layers is None else layers
    return decoder_of(config).body(stretch, lanes=lanes, cached=cached, precision=precision)


def body_decode(
    config: ModelConfig,
    precision: Precision,
    *,
    layers: range | None = None,
    lanes: int = 1,
    cached: int,
) -> Graph:
    """Some layers, by default all, over a new position and those that are cached."""
    return body_prefill(config, precision, layers=layers, lanes=lanes, cached=cached)


def head(config: ModelConfig, precision: Precision, *, lanes: int = 1) -> Graph:
    """The last norm and the product with the vocabulary."""
    return decoder_of(config).head(lanes=lanes, precision=precision)
