"""A model that learns an adapter: its own weights, and A and B as further ones beside them.

y = W x + s · B (A x) is spelled as products with weights like any other, so that whoever derives
backward programs and multiplies gradients of weights needs to know nothing of adapters.  Where the
adapter has dropout, x is multiplied by a mask before A, which is one more input (`lora.dropout`).
"""

from __future__ import annotations

from collections.abc import Mapping

from orion_ane.ir import Graph, Node
from orion_ane.lora.adapter import Adapter, LowRank, selected
from orion_ane.lora.config import AdapterConfig
from orion_ane.lora.dropout import END, Dropout, Dropped
from orion_ane.lora.inject import products_of
from orion_ane.lora.modules import Module, modules_of
from orion_ane.lora.worn import Layout
from orion_ane.models.config import ModelConfig
from orion_ane.models.decoder import Decoder, Rows, matrix
from orion_ane.nn.blocks import Precision, linear
from orion_ane.ops import const, input_
from orion_ane.types import Array, TensorType

A, B = ".lora_A", ".lora_B"


class Adapted:
    """A decoder with an adapter among its weights; see `Decoder`.

    Its tensors are the model's, and for each linear `<path>.lora_A` [r, I] and `<path>.lora_B`
    [O, r], as PEFT has them.

    Args:
        decoder: the model.
        adapter: which linears, and with which ranks and scales.

    Raises:
        ConfigError: no linear of the model is named.
    """

    def __init__(self, decoder: Decoder, adapter: AdapterConfig) -> None:
        self._decoder, self.adapter = decoder, adapter
        modules = modules_of(decoder.config)
        self._modules: dict[str, Module] = {p: modules[p] for p in selected(modules, adapter)}
        self._layout = Layout(decoder)
        # Of each program's matrix: its linear, with the rank and scale of that.
        self._of = {
            label: path
            for path, module in self._modules.items()
            for part in module.parts
            for label in self._layout.labels(part)
        }

    @property
    def config(self) -> ModelConfig:
        """The model's shape."""
        return self._decoder.config

    @property
    def kv_channels(self) -> int:
        """Channels of a layer's keys."""
        return self._decoder.kv_channels

    @property
    def host_names(self) -> tuple[str, ...]:
        """The tensors that `embed` looks up."""
        return self._decoder.host_names

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The adapter's tensors."""
        found: dict[str, tuple[int, ...]] = {}
        for path, module in self._modules.items():
            rank = self.adapter.rank_of(path)
            found |= {path + A: (rank, module.columns), path + B: (module.rows, rank)}
        return found

    def dropout(self, seed: int) -> Dropout | None:
        """What fills the programs' masks in a run of this seed; None where they have none."""
        if not self.adapter.dropout:
            return None
        ports = {}
        for number, path in enumerate(modules_of(self.config)):
            if path in self._modules:
                module = self._modules[path]
                order = self._layout.columns_of(next(iter(module.parts)))
                ports[path + END] = Dropped(number, module.columns, order)
        return Dropout(self.adapter.dropout, seed, ports)

    def body(self, layers: range, *, lanes: int, cached: int, precision: Precision) -> Graph:
        """The layers as one graph."""
        graph = self._decoder.body(layers, lanes=lanes, cached=cached, precision=precision)
        return self._beside(graph, precision)

    def head(self, *, lanes: int, precision: Precision) -> Graph:
        """The final norm and the product with the vocabulary."""
        return self._beside(self._decoder.head(lanes=lanes, precision=precision), precision)

    def unit(self, name: str) -> int:
        """Columns of a matrix that move together."""
        return self._decoder.unit(name)

    def embed(self, tensors: Mapping[str, Rows], ids: Array, positions: Array) -> Array:
        """The vectors of tokens at positions."""
        return self._decoder.embed(tensors, ids, positions)

    def tables(self, positions: Array) -> dict[str, Array]:
        """The body's further inputs."""
        return self._decoder.tables(positions)

    def weights(self, tensors: Mapping[str, Array], precision: Precision) -> dict[str, Array]:
        """Tensors as the programs' weights, those of the adapter in the order of their matrices."""
        own = {name: t for name, t in tensors.items() if not name.endswith((A, B))}
        found = self._decoder.weights(own, precision)
        for path, module in self._modules.items():
            if (a := tensors.get(path + A)) is not None:
                part = next(iter(module.parts))
                found[path + A] = matrix(self._layout.columns(part, a), precision)
            if (b := tensors.get(path + B)) is not None:
                for part, rows in module.parts.items():
                    for label, array in self._layout.rows(part, b[rows.start : rows.stop]).items():
                        found[label + B] = matrix(array, precision)
        return found

    def learnt(self, tensors: Mapping[str, Array], *, origin: str = "trained") -> Adapter:
        """The adapter of these tensors."""
        matrices = {}
        for path in self._modules:
            a, b = tensors[path + A], tensors[path + B]
            matrices[path] = LowRank(a, b, self.adapter.scale_of(path, a.shape[0]))
        return Adapter(self.adapter, self.config, matrices, {}, origin)

    def _beside(self, graph: Graph, precision: Precision) -> Graph:
        products = products_of(graph)
        made: dict[Node, Node] = {}
        masks: dict[str, Node] = {}
        for node in graph.nodes:
            args = tuple(made[arg] for arg in node.args)
            made[node] = node if args == node.args else Node(node.op, args)
            path = self._of.get(products.get(node, ""))
            if path is None:
                continue
            x, rows = args[0], node.type.shape[1]
            if self.adapter.dropout:
                kind = TensorType(x.type.dtype, x.type.shape)
                x *= masks.setdefault(path + END, input_(path + END, kind))
            made[node] += self._low_rank(x, rows, products[node], path, precision)
        outputs = {name: made[node] for name, node in graph.outputs.items()}
        return Graph({**graph.inputs, **masks}, outputs)

    def _low_rank(self, x: Node, rows: int, label: str, path: str, precision: Precision) -> Node:
        rank = self.adapter.rank_of(path)
        a = precision.matrix(path + A, rank, x.type.shape[1])
        b = precision.matrix(label + B, rows, rank)
        inner = linear(x, a) * const(self.adapter.scale_of(path, rank), x.type.dtype)
        return linear(inner, b)


def tensors_of(adapter: Adapter) -> dict[str, Array]:
    """An adapter as the tensors that `Adapted` has beside its model's."""
    found: dict[str, Array] = {}
    for path, one in adapter.matrices.items():
        found |= {path + A: one.a, path + B: one.b}
    return found
