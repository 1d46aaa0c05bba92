"""The Llama family: kernels for prefill and decode, top to bottom."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from orion_ane.host.rope import tables
from orion_ane.ir import Graph, Node
from orion_ane.models.config import LlamaConfig
from orion_ane.models.decoder import Ports, Rows, logits, matrix, vector, vocabulary
from orion_ane.nn.blocks import Cache, Precision, attention, linear, rms_norm, rotate, silu
from orion_ane.ops import input_, reshape
from orion_ane.types import Array, TensorType


class Attention(NamedTuple):
    """What half a layer computes; all packed [1,·,1,S], q and k turned to their positions."""

    out: Node
    q: Node
    k: Node
    v: Node
    mixed: Node
    normed: Node


class FeedForward(NamedTuple):
    """What the other half computes: `gate` is silu(h1) · h3."""

    out: Node
    h1: Node
    h3: Node
    gate: Node
    normed: Node


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
        def product(which: str, x: Node) -> Node:
            return self.product(i, which, x, precision)

        a = self.attn(i, x, (cos, sin), mask, cache, precision, product)
        x = x + a.out
        return x + self.ffn(i, x, precision).out, a.k, a.v

    def product(self, i: int, which: str, x: Node, precision: Precision) -> Node:
        """The matrix `which` of layer i times x, [1,O,1,S]."""
        c = self.config
        wide, kv = c.heads * c.head_dim, self.kv_channels
        rows = {"wq": wide, "wk": kv, "wv": kv, "wo": c.dim}
        rows |= {"w1": c.hidden, "w3": c.hidden, "w2": c.dim}
        label = f"layers.{i}.{which}"
        w = precision.matrix(label, rows[which], x.type.shape[1], unit=self.unit(label))
        return linear(x, w)

    def attn(
        self,
        i: int,
        x: Node,
        tables: tuple[Node, Node],
        mask: Node,
        cache: Cache | None,
        precision: Precision,
        product: Callable[[str, Node], Node],
    ) -> Attention:
        """The attention half of layer i, without its residual; `product` is as `self.product`."""
        c, s = self.config, x.type.shape[3]
        per_key = (1, c.kv_heads, c.head_dim, s)
        flat = (1, c.heads * c.head_dim, 1, s)
        h = rms_norm(x, precision.vector(f"layers.{i}.attn_norm", c.dim), c.norm_eps)
        q, k, v = (product(which, h) for which in ("wq", "wk", "wv"))
        q = rotate(reshape(q, (c.heads // c.kv_heads, *per_key[1:])), *tables)
        k = rotate(reshape(k, per_key), *tables)
        mixed = reshape(attention(q, k, reshape(v, per_key), mask=mask, cache=cache), flat)
        packed = reshape(k, (1, self.kv_channels, 1, s))
        return Attention(product("wo", mixed), reshape(q, flat), packed, v, mixed, h)

    def ffn(self, i: int, x: Node, precision: Precision) -> FeedForward:
        """The feed-forward half of layer i, without its residual."""
        c = self.config
        h = rms_norm(x, precision.vector(f"layers.{i}.ffn_norm", c.dim), c.norm_eps)
        h1, h3 = (self.product(i, which, h, precision) for which in ("w1", "w3"))
        gate = silu(h1) * h3
        return FeedForward(self.product(i, "w2", gate, precision), h1, h3, gate, h)

    def head(self, *, lanes: int, precision: Precision) -> Graph:
        """The final norm and the vocabulary."""
        c = self.config
        x = input_("hidden", TensorType(precision.compute, (1, c.dim, 1, lanes)))
        h = rms_norm(x, precision.vector("norm", c.dim), c.norm_eps)
        label = "embed" if c.tied else "head"
        return Graph({"hidden": x}, logits(h, label, c.vocab, precision))

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
            if name in ("embed", "head"):
                for end, rows in vocabulary(c.vocab).items():
                    found[name + end] = matrix(array[rows.start : rows.stop], precision)
                continue
            as_weight = vector if array.ndim == 1 else matrix
            found[name] = as_weight(ordered, precision)
        return found

    def _grouped(self, array: Array, *, axis: int) -> Array:
        """Heads [key head, group] on `axis` in the order [group, key head]."""
        c = self.config
        heads, size = np.arange(c.heads).reshape(c.kv_heads, -1).T.ravel(), array.shape[axis]
        each = size // c.heads  # channels of a head, or blocks of codes
        rows = (heads[:, None] * each + np.arange(each)).ravel()
        return array if c.heads == c.kv_heads else np.take(array, rows, axis=axis)

    def unit(self, name: str) -> int:
        """A head, where heads are ordered anew."""
        c = self.config
        return c.head_dim if name.endswith(".wo") and c.heads != c.kv_heads else 0

    def embed(self, tensors: Mapping[str, Rows], ids: Array, positions: Array) -> Array:
        """The vectors of tokens, [S, C]; positions enter by rotation."""
        return tensors["embed"][ids].astype(np.float32)

    def tables(self, positions: Array) -> dict[str, Array]:
        """The rotary tables, [1,1,D,S]."""
        c = self.config
        cos, sin = tables(positions, c.rope, head_dim=c.head_dim, context=c.context)
        return {"cos": cos[None, None], "sin": sin[None, None]}
