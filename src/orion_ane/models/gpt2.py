"""GPT-2: kernels for prefill and decode, top to bottom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from orion_ane.ir import Graph, Node
from orion_ane.models.config import GPT2Config
from orion_ane.models.decoder import Ports, matrix, vector
from orion_ane.nn.blocks import Cache, Precision, attention, gelu, layer_norm, linear
from orion_ane.ops import input_, reshape
from orion_ane.types import Array, TensorType


@dataclass(frozen=True)
class GPT2:
    """GPT-2 at the size of `config`: learned positions, the head tied to the embedding."""

    config: GPT2Config

    @property
    def kv_channels(self) -> int:
        """Channels of a layer's keys."""
        return self.config.dim

    @property
    def host_names(self) -> tuple[str, ...]:
        """The tensors that `embed` looks up."""
        return ("wte", "wpe")

    def body(self, layers: range, *, lanes: int, cached: int, precision: Precision) -> Graph:
        """The layers as one graph; see `Decoder`."""
        c = self.config
        ports = Ports(c.dim, lanes=lanes, cached=cached, precision=precision)
        x = ports.x
        outputs: dict[str, Node] = {}
        for i in layers:
            cache = ports.cache(i, c.heads, c.head_dim)
            x, k, v = self._layer(i, x, ports.mask, cache, precision)
            outputs |= {f"k_{i:02d}": k, f"v_{i:02d}": v}
        return Graph(ports.inputs, {"hidden": x, **outputs})

    def _layer(
        self, i: int, x: Node, mask: Node, cache: Cache | None, precision: Precision
    ) -> tuple[Node, Node, Node]:
        c, name = self.config, f"layers.{i}."
        s = x.type.shape[3]

        def dense(x: Node, w: str, b: str, outputs: int) -> Node:
            w_node = precision.matrix(name + w, outputs, x.type.shape[1])
            return linear(x, w_node, precision.vector(name + b, outputs))

        def norm(x: Node, which: str) -> Node:
            gain = precision.vector(name + which + "_g", c.dim)
            return layer_norm(x, gain, precision.vector(name + which + "_b", c.dim), c.norm_eps)

        h = norm(x, "ln1")
        q, k, v = (dense(h, f"w{part}", f"b{part}", c.dim) for part in "qkv")
        heads = (1, c.heads, c.head_dim, s)
        mixed = attention(
            reshape(q, heads), reshape(k, heads), reshape(v, heads), mask=mask, cache=cache
        )
        x = x + dense(reshape(mixed, (1, c.dim, 1, s)), "wo", "bo", c.dim)
        x = x + dense(gelu(dense(norm(x, "ln2"), "w1", "b1", c.hidden)), "w2", "b2", c.dim)
        return x, k, v

    def head(self, *, lanes: int, precision: Precision) -> Graph:
        """The final norm and the vocabulary."""
        c = self.config
        x = input_("hidden", TensorType(precision.compute, (1, c.dim, 1, lanes)))
        gain, bias = precision.vector("lnf_g", c.dim), precision.vector("lnf_b", c.dim)
        h = layer_norm(x, gain, bias, c.norm_eps)
        return Graph({"hidden": x}, {"logits": linear(h, precision.matrix("wte", c.vocab, c.dim))})

    def weights(self, tensors: Mapping[str, Array], precision: Precision) -> dict[str, Array]:
        """Canonical tensors as the programs' weights; the position table stays with the host."""
        return {
            name: (vector if array.ndim == 1 else matrix)(array, precision)
            for name, array in tensors.items()
            if name != "wpe"
        }

    def embed(self, tensors: Mapping[str, Array], ids: Array, positions: Array) -> Array:
        """The vectors of tokens at positions, [S, C]."""
        tokens = tensors["wte"][ids].astype(np.float32)
        return tokens + tensors["wpe"][positions].astype(np.float32)

    def tables(self, positions: Array) -> dict[str, Array]:
        """None: positions enter with the embedding."""
        return {}
