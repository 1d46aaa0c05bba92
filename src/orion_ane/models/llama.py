"""The Llama family: kernels for prefill and decode, top to bottom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from orion_ane.host.rope import tables
from orion_ane.ir import Graph, Node
from orion_ane.models.config import LlamaConfig
from orion_ane.models.decoder import Ports, matrix, vector
from orion_ane.nn.blocks import Cache, Precision, attention, linear, rms_norm, rotate, silu
from orion_ane.ops import input_, reshape
from orion_ane.types import Array, TensorType


@dataclass(frozen=True)
class Llama:
    """Stories, SmolLM2, TinyLlama and their kin, at the size of `config`."""

    config: LlamaConfig

    @property
    def kv_channels(self) -> int:
        """Channels of a layer's keys."""
        return self.config.kv_heads * self.config.head_dim

    @property
    def host_names(self) -> tuple[str, ...]:
        """The tensors that `embed` looks up."""
        return ("embed",)

    def body(self, layers: range, *, lanes: int, cached: int, precision: Precision) -> Graph:
        """The layers as one graph; see `Decoder`."""
        c = self.config
        ports = Ports(c.dim, lanes=lanes, cached=cached, precision=precision)
        cos = ports.add("cos", (1, 1, c.head_dim, lanes))
        sin = ports.add("sin", (1, 1, c.head_dim, lanes))
        x = ports.x
        outputs: dict[str, Node] = {}
        for i in layers:
            cache = ports.cache(i, c.kv_heads, c.head_dim)
            x, k, v = self._layer(i, x, cos, sin, ports.mask, cache, precision)
            outputs |= {f"k_{i:02d}": k, f"v_{i:02d}": v}
        return Graph(ports.inputs, {"hidden": x, **outputs})

    def _layer(
        self,
        i: int,
        x: Node,
        cos: Node,
        sin: Node,
        mask: Node,
        cache: Cache | None,
        precision: Precision,
    ) -> tuple[Node, Node, Node]:
        c, name = self.config, f"layers.{i}."
        s = x.type.shape[3]
        wide = c.heads * c.head_dim
        per_key = (1, c.kv_heads, c.head_dim, s)
        h = rms_norm(x, precision.vector(name + "attn_norm", c.dim), c.norm_eps)
        q = linear(h, precision.matrix(name + "wq", wide, c.dim))
        k = linear(h, precision.matrix(name + "wk", self.kv_channels, c.dim))
        v = linear(h, precision.matrix(name + "wv", self.kv_channels, c.dim))
        q = rotate(reshape(q, (c.heads // c.kv_heads, *per_key[1:])), cos, sin)
        k = rotate(reshape(k, per_key), cos, sin)
        mixed = attention(q, k, reshape(v, per_key), mask=mask, cache=cache)
        mixed = reshape(mixed, (1, wide, 1, s))
        x = x + linear(mixed, precision.matrix(name + "wo", c.dim, wide))
        h = rms_norm(x, precision.vector(name + "ffn_norm", c.dim), c.norm_eps)
        gate = silu(linear(h, precision.matrix(name + "w1", c.hidden, c.dim)))
        up = linear(h, precision.matrix(name + "w3", c.hidden, c.dim))
        x = x + linear(gate * up, precision.matrix(name + "w2", c.dim, c.hidden))
        return x, reshape(k, (1, self.kv_channels, 1, s)), v

    def head(self, *, lanes: int, precision: Precision) -> Graph:
        """The final norm and the vocabulary."""
        c = self.config
        x = input_("hidden", TensorType(precision.compute, (1, c.dim, 1, lanes)))
        h = rms_norm(x, precision.vector("norm", c.dim), c.norm_eps)
        label = "embed" if c.tied else "head"
        return Graph({"hidden": x}, {"logits": linear(h, precision.matrix(label, c.vocab, c.dim))})

    def weights(self, tensors: Mapping[str, Array], precision: Precision) -> dict[str, Array]:
        """Canonical tensors as the programs' weights.

        Query heads are put in the order [group, key head], so that a reshape alone pairs each
        with its key head; the rows of wq and the columns of wo move together.
        """
        c = self.config
        found = {}
        for name, array in tensors.items():
            ordered = array
            if name.endswith(".wq"):
                ordered = self._grouped(array, axis=0)
            elif name.endswith(".wo"):
                ordered = self._grouped(array, axis=1)
            elif name == "embed" and not c.tied:
                continue  # the host's alone
            as_weight = vector if array.ndim == 1 else matrix
            found[name] = as_weight(ordered, precision)
        return found

    def _grouped(self, array: Array, *, axis: int) -> Array:
        """Heads [key head, group] on `axis` in the order [group, key head]."""
        c = self.config
        heads = np.arange(c.heads).reshape(c.kv_heads, -1).T.ravel()
        rows = (heads[:, None] * c.head_dim + np.arange(c.head_dim)).ravel()
        return array if c.heads == c.kv_heads else np.take(array, rows, axis=axis)

    def embed(self, tensors: Mapping[str, Array], ids: Array, positions: Array) -> Array:
        """The vectors of tokens, [S, C]; positions enter by rotation."""
        return tensors["embed"][ids].astype(np.float32)

    def tables(self, positions: Array) -> dict[str, Array]:
        """The rotary tables, [1,1,D,S]."""
        c = self.config
        cos, sin = tables(positions, c.rope, head_dim=c.head_dim, context=c.context)
        return {"cos": cos[None, None], "sin": sin[None, None]}
