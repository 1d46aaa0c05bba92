"""GPT-2: kernels for prefill and decode, top to bottom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from orion_ane.ir import Graph, Node
from orion_ane.models.config import GPT2Config
from orion_ane.models.decoder import Ports, Rows, logits, matrix, vector, vocabulary
from orion_ane.nn.blocks import Cache, Precision, attention, gelu, layer_norm, linear
from orion_ane.ops import input_, reshape
from orion_ane.types import Array, TensorType


@dataclass(frozen=True)
class GPT2:
    """GPT-2 at the size of `config`: learned positions."""

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
        x, k, v = self.attn(i, x, mask, cache, precision)
        return self.ffn(i, x, precision), k, v

    def product(self, i: int, which: str, x: Node, precision: Precision) -> Node:
        """The matrix `which` of layer i times x, and its bias: [1,O,1,S]."""
        rows = self.config.hidden if which == "w1" else self.config.dim
        w = precision.matrix(f"layers.{i}.{which}", rows, x.type.shape[1])
        return linear(x, w, precision.vector(f"layers.{i}.{which.replace('w', 'b')}", rows))

    def norm(self, label: str, x: Node, precision: Precision) -> Node:
        """The layer norm whose gain and bias are `label`_g and `label`_b."""
        c = self.config
        gain, bias = (precision.vector(f"{label}_{part}", c.dim) for part in "gb")
        return layer_norm(x, gain, bias, c.norm_eps)

    def projections(self, i: int, x: Node, precision: Precision) -> tuple[Node, Node, Node]:
        """Queries, keys and values of layer i, each [1,C,1,S]."""
        h = self.norm(f"layers.{i}.ln1", x, precision)
        q, k, v = (self.product(i, which, h, precision) for which in ("wq", "wk", "wv"))
        return q, k, v

    def attn(
        self, i: int, x: Node, mask: Node, cache: Cache | None, precision: Precision
    ) -> tuple[Node, Node, Node]:
        """The attention half of layer i with its residual, and the keys and values."""
        c, s = self.config, x.type.shape[3]
        q, k, v = self.projections(i, x, precision)
        heads = (1, c.heads, c.head_dim, s)
        mixed = attention(
            reshape(q, heads), reshape(k, heads), reshape(v, heads), mask=mask, cache=cache
        )
        return x + self.product(i, "wo", reshape(mixed, (1, c.dim, 1, s)), precision), k, v

    def ffn(self, i: int, x: Node, precision: Precision) -> Node:
        """The feed-forward half of layer i with its residual."""
        inner = gelu(self.product(i, "w1", self.norm(f"layers.{i}.ln2", x, precision), precision))
        return x + self.product(i, "w2", inner, precision)

    def head(self, *, lanes: int, precision: Precision) -> Graph:
        """The final norm and the vocabulary."""
        c = self.config
        x = input_("hidden", TensorType(precision.compute, (1, c.dim, 1, lanes)))
        h = self.norm("lnf", x, precision)
        return Graph({"hidden": x}, logits(h, self._head, c.vocab, precision))

    @property
    def _head(self) -> str:
        return "wte" if self.config.tied else "head"

    def weights(self, tensors: Mapping[str, Array], precision: Precision) -> dict[str, Array]:
        """Canonical tensors as the programs' weights; the position table stays with the host."""
        found = {
            name: (vector if array.ndim == 1 else matrix)(array, precision)
            for name, array in tensors.items()
            if name not in ("wpe", "wte", "head")
        }
        own = self._head
        for end, rows in vocabulary(self.config.vocab).items() if own in tensors else ():
            found[own + end] = matrix(tensors[own][rows.start : rows.stop], precision)
        return found

    def unit(self, name: str) -> int:
        """Nothing: columns stay where they are."""
        del name
        return 0

    def embed(self, tensors: Mapping[str, Rows], ids: Array, positions: Array) -> Array:
        """The vectors of tokens at positions, [S, C]."""
        tokens = tensors["wte"][ids].astype(np.float32)
        return tokens + tensors["wpe"][positions].astype(np.float32)

    def tables(self, positions: Array) -> dict[str, Array]:
        """None: positions enter with the embedding."""
        return {}
