"""A model cut into stages, each a forward kernel and the backward kernel derived from it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from orion_ane.autodiff.reverse import substitute
from orion_ane.autodiff.taps import Pair, backward
from orion_ane.ir import Graph, Node
from orion_ane.models.decoder import Decoder
from orion_ane.nn.blocks import Precision
from orion_ane.ops import Input, Weight, input_
from orion_ane.ops.linear import Conv1x1
from orion_ane.types import DType


@dataclass(frozen=True, eq=False)
class Stage:
    """A stretch of a model in both directions.

    The results of products are kept for the way back, and what the host multiplies; what lies
    between is computed again, which is cheap beside reading it.

    Attributes:
        name: `layers.0`, `layers.0-3` or `head`.
        takes: the input whose cotangent goes on.
        gives: the outputs whose cotangents come in.
        forward: the kernel, with what is kept among its outputs.
        backward: kept values, the forward inputs and `d_<output>` in; `d_<input>`, `d_<weight>`
            of vectors and the dy of pairs out, save those that came in as they are.
        pairs: what the host multiplies, by the names of forward and backward ports.
    """

    name: str
    takes: str
    gives: tuple[str, ...]
    forward: Graph
    backward: Graph
    pairs: tuple[Pair, ...]

    @property
    def dtype(self) -> DType:
        """In which it computes."""
        return self.forward.inputs[self.takes].type.dtype

    @property
    def is_half(self) -> bool:
        """Whether that is fp16, so that what flows back needs a scale."""
        return self.dtype is DType.FP16

    @property
    def labels(self) -> tuple[str, ...]:
        """The weights that the forward kernel reads, which are all."""
        return labels_of(self.forward)

    @property
    def vectors(self) -> dict[str, str]:
        """The outputs of the backward kernel that are gradients themselves, and of which weight."""
        known = {f"d_{label}": label for label in self.labels}
        return {name: known[name] for name in self.backward.outputs if name in known}

    @property
    def kept(self) -> tuple[str, ...]:
        """What the way back reads of the way there, inputs and outputs."""
        there = {*self.forward.inputs, *self.forward.outputs}
        asked = [*self.backward.inputs, *(pair.x for pair in self.pairs)]
        return tuple(dict.fromkeys(name for name in asked if name in there))


def stages_of(
    decoder: Decoder,
    *,
    lanes: int,
    precision: Precision,
    head_precision: Precision,
    layers_per_stage: int = 1,
    learnt: Collection[str] | None = None,
) -> tuple[Stage, ...]:
    """The stages of a model over sequences of so many lanes, in forward order, the head last.

    Of weights outside `learnt` no gradients are computed, and nothing is kept for them.
    """
    count = decoder.config.layers
    found = []
    for start in range(0, count, layers_per_stage):
        layers = range(start, min(start + layers_per_stage, count))
        body = decoder.body(layers, lanes=lanes, cached=0, precision=precision)
        graph = Graph(body.inputs, {"hidden": body.outputs["hidden"]})
        last = f"-{layers[-1]}" if len(layers) > 1 else ""
        found.append(derived(f"layers.{start}{last}", graph, takes="x", learnt=learnt))
    head = decoder.head(lanes=lanes, precision=head_precision)
    return (*found, derived("head", head, takes="hidden", learnt=learnt))


def derived(name: str, graph: Graph, *, takes: str, learnt: Collection[str] | None = None) -> Stage:
    """The stage of a forward kernel, whose outputs are all learnt from."""
    gives = tuple(graph.outputs)
    outputs = {*graph.outputs.values()}
    products = [n for n in graph.nodes if isinstance(n.op, Conv1x1) and n not in outputs]
    save = {f"keep_{i:02d}": node for i, node in enumerate(products)}
    made = backward(graph, of=gives, wrt=(takes,), save=save)
    asked = labels_of(graph) if learnt is None else learnt
    wanted = [pair for pair in made.pairs if pair.weight in asked]
    needed = {f"d_{takes}", *(f"d_{label}" for label in asked), *(pair.dy for pair in wanted)}
    way_back, same = _without_echoes(_only(made.graph, needed))
    pairs = tuple(replace(pair, dy=same.get(pair.dy, pair.dy)) for pair in wanted)
    read = {*gives, *way_back.inputs, *(pair.x for pair in pairs)}
    there = {port: node for port, node in made.forward.outputs.items() if port in read}
    return Stage(name, takes, gives, Graph(graph.inputs, there), way_back, pairs)


def _only(graph: Graph, names: Collection[str]) -> Graph:
    """The graph with these outputs alone, and the inputs that they are made of."""
    left = {name: node for name, node in graph.outputs.items() if name in names}
    if len(left) == len(graph.outputs):
        return graph
    read = set(Graph(graph.inputs, left).nodes)
    return Graph({name: node for name, node in graph.inputs.items() if node in read}, left)


def _without_echoes(graph: Graph) -> tuple[Graph, Mapping[str, str]]:
    """The graph without outputs that are its inputs, and which input each of those was."""
    inputs = {node: name for name, node in graph.inputs.items()}
    same = {name: inputs[node] for name, node in graph.outputs.items() if _is_input(node)}
    left = {name: node for name, node in graph.outputs.items() if name not in same}
    return Graph(graph.inputs, left), same


def _is_input(node: Node) -> bool:
    return isinstance(node.op, Input)


def labels_of(*graphs: Graph) -> tuple[str, ...]:
    """The weights that graphs read, each once."""
    leaves = (node.op for graph in graphs for node in graph.nodes)
    return tuple(dict.fromkeys(leaf.label for leaf in leaves if isinstance(leaf, Weight)))


def with_inputs(graph: Graph, labels: Collection[str]) -> Graph:
    """The graph with these weights of its as inputs of their names, behind its own."""
    given: dict[str, Node] = {}
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        if isinstance(node.op, Weight) and node.op.label in labels:
            new[node] = given.setdefault(node.op.label, input_(node.op.label, node.type))
    return Graph({**graph.inputs, **given}, substitute(graph.outputs, new))
