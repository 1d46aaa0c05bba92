"""linear -> linear + adapter inputs, so that another adapter is another value, not another program.

Beside each product y = W x stands B (A x).  A and B are read from ports, one pair of ports for all
layers of a program that have such a matrix: `lora_a_wq` [1,L·R,1,I] and `lora_b_wq` [1,L·R,1,O],
R rows a layer, B transposed and with the adapter's scale in it.  R is a bucket: what a rank leaves
of it is zeros, and a port of zeros is no adapter, whose sum is the product's own number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from orion_ane.ir import Graph, Node
from orion_ane.ops import Weight, input_, matmul, reshape, slice_by_index
from orion_ane.ops.linear import Conv1x1
from orion_ane.types import TensorType

LAYERED = re.compile(r"layers\.(\d+)\.(.+)")
RANKS = (8, 16, 32, 64, 128, 256)
"""What ranks are padded to, so that adapters of many ranks share one program."""


@dataclass(frozen=True)
class Site:
    """A matrix that may carry an adapter, in all layers of a program that have it.

    Attributes:
        name: what its ports' names end in: the weight's label, without its layer.
        labels: the weights, in order of their layers.
        rows, columns: of each.
    """

    name: str
    labels: tuple[str, ...]
    rows: int
    columns: int

    @property
    def ports(self) -> tuple[str, str]:
        """The names of the ports of A and of B."""
        return f"lora_a_{self.name}", f"lora_b_{self.name}"

    def shapes(self, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What the ports of A and of B hold."""
        rows = len(self.labels) * rank
        return (1, rows, 1, self.columns), (1, rows, 1, self.rows)


def sites_of(graph: Graph) -> dict[str, Site]:
    """The matrices of a graph's products, by the name of their ports."""
    found: dict[str, Site] = {}
    for node, label in products_of(graph).items():
        layered = LAYERED.fullmatch(label)
        name = layered[2] if layered else label
        rows, columns = node.args[1].type.shape[:2]
        before = found[name].labels if name in found else ()
        found[name] = Site(name, (*before, label), rows, columns)
    return found


def with_adapters(graph: Graph, rank: int) -> Graph:
    """The graph with ports for an adapter of up to `rank` beside every product with a matrix."""
    products, sites = products_of(graph), sites_of(graph)
    ports: dict[str, Node] = {}
    beside: dict[str, tuple[Node, Node]] = {}
    for site in sites.values():
        dtype = next(n for n, label in products.items() if label == site.labels[0]).type.dtype
        pair = [
            input_(name, TensorType(dtype, shape))
            for name, shape in zip(site.ports, site.shapes(rank), strict=True)
        ]
        ports |= dict(zip(site.ports, pair, strict=True))
        for i, label in enumerate(site.labels):
            a, b = (_stretch(port, i, rank) for port in pair)
            beside[label] = a, b
    made: dict[Node, Node] = {}
    for node in graph.nodes:
        args = tuple(made[arg] for arg in node.args)
        made[node] = node if args == node.args else Node(node.op, args)
        if node in products:
            made[node] = made[node] + low_rank(args[0], *beside[products[node]])
    outputs: Mapping[str, Node] = {name: made[node] for name, node in graph.outputs.items()}
    return Graph({**graph.inputs, **ports}, outputs)


def low_rank(x: Node, a: Node, b: Node) -> Node:
    """B (A x) for each lane: x [1,I,1,S], a [1,1,R,I], b [1,1,R,O] -> [1,O,1,S]."""
    (_, i, _, s), o = x.type.shape, b.type.shape[3]
    inner = matmul(a, reshape(x, (1, 1, i, s)))  # [1,1,R,S]
    return reshape(matmul(b, inner, tx=True), (1, o, 1, s))


def products_of(graph: Graph) -> dict[Node, str]:
    """The products with a weight matrix, and its label."""
    found: dict[Node, str] = {}
    for node in graph.nodes:
        if isinstance(node.op, Conv1x1):
            w = node.args[1]
            while w.args and not isinstance(w.op, Weight):  # as it is stored: cast, or in codes
                w = w.args[0]
            if isinstance(w.op, Weight):
                found[node] = w.op.label
    return found


def _stretch(port: Node, index: int, rank: int) -> Node:
    """One layer's rows of a port, as a matrix [1,1,R,·]."""
    _, rows, _, width = port.type.shape
    if rows != rank:
        port = slice_by_index(port, (0, index * rank, 0, 0), (1, (index + 1) * rank, 1, width))
    return reshape(port, (1, 1, rank, width))
