"""KernelBuilder: a named kernel for any model, with its sizes and its ports' types checked once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, signature
from math import isfinite
from typing import Any

from orion_ane.autodiff.reverse import substitute
from orion_ane.errors import ConfigError
from orion_ane.ir import Graph, Node
from orion_ane.models.config import ModelConfig
from orion_ane.nn.blocks import Precision
from orion_ane.ops import cast, input_, slice_by_index, weight
from orion_ane.types import DType, TensorType

HALF = Precision(DType.FP16, DType.FP16)
MOST = 1 << 16
"""No axis of any chip is longer."""


@dataclass(frozen=True)
class KernelBuilder:
    """A kernel by name: called with a model's config and sizes, it gives the graph.

    Attributes:
        name: as the table lists it.
        families: of the models that it can be built for.
        build: config, precision and sizes to a graph whose ports have the compute type.
        takes: the type of the float inputs where nothing else is asked for.
        gives: the type of the outputs, likewise.
    """

    name: str
    families: tuple[str, ...]
    build: Callable[..., Graph]
    takes: DType = DType.FP16
    gives: DType = DType.FP16

    @property
    def sizes(self) -> Mapping[str, object]:
        """The sizes by name with their defaults; `Parameter.empty` where one must be given."""
        given = signature(self.build).parameters
        return {key: at.default for key, at in given.items() if at.kind is Parameter.KEYWORD_ONLY}

    def __call__(
        self,
        config: ModelConfig,
        *,
        precision: Precision = HALF,
        ports: DType | None = None,
        **sizes: Any,
    ) -> Graph:
        """The graph.

        Args:
            config: the model.
            precision: element types inside.
            ports: the type of all ports. None is as the paper has them where fp16 is computed
                in, else the compute type.
            **sizes: what `sizes` lists.

        Raises:
            ConfigError: another family, a size that is missing, unknown or of no meaning.
        """
        if config.family not in self.families:
            want = " or ".join(self.families)
            raise ConfigError(self.name, "not for this family", got=config.family, want=want)
        known = self.sizes
        missing = [key for key, value in known.items() if value is Parameter.empty]
        if absent := [key for key in missing if key not in sizes]:
            raise ConfigError(self.name, f"{' and '.join(absent)} must be given")
        if unknown := [key for key in sizes if key not in known]:
            raise ConfigError(self.name, "no such size", got=unknown[0], want=", ".join(known))
        every = {**known, **sizes}
        for key, value in every.items():
            want, is_right = _rule(self.name, config, key, value)
            if not is_right:
                raise ConfigError(self.name, f"no such {key}", got=value, want=want)
        graph = self.build(config, precision, **every)
        usual = precision.compute if precision.compute is not DType.FP16 else None
        return ported(graph, ports or usual or self.takes, ports or usual or self.gives)


def ported(graph: Graph, takes: DType, gives: DType) -> Graph:
    """The graph with other port types: inputs are cast on the way in, outputs on the way out."""
    inputs, read = dict(graph.inputs), dict[Node, Node]()
    for name, leaf in graph.inputs.items():
        if leaf.type.dtype != takes:
            inputs[name] = input_(name, leaf.type.with_dtype(takes))
            read[leaf] = cast(inputs[name], leaf.type.dtype)
    outputs = substitute(graph.outputs, read) if read else dict(graph.outputs)
    for name, node in outputs.items():
        if node.type.dtype != gives:
            outputs[name] = cast(node, gives)
    return graph if outputs == dict(graph.outputs) else Graph(inputs, outputs)


def packed(label: str, channels: int, lanes: int, precision: Precision) -> Node:
    """An input [1, channels, 1, lanes]."""
    return input_(label, TensorType(precision.compute, (1, channels, 1, lanes)))


def unpacked(x: Node, *channels: int) -> tuple[Node, ...]:
    """The values that lie one after the other in the channels of one port."""
    parts, start, lanes = [], 0, x.type.shape[3]
    for count in channels:
        parts.append(slice_by_index(x, (0, start, 0, 0), (1, start + count, 1, lanes)))
        start += count
    return tuple(parts)


def causal(lanes: int, precision: Precision) -> Node:
    """The mask that a kernel holds itself, [1,1,S,S], as a weight (see `weights.for_kernel`)."""
    return weight(f"causal_{lanes}", TensorType(precision.compute, (1, 1, lanes, lanes)))


def transposed(label: str, rows: int, columns: int, precision: Precision) -> Node:
    """The transpose of a matrix, [rows, columns, 1, 1], as a weight that a backward kernel holds.

    The device takes no product with a computed matrix.
    """
    return precision.matrix(f"{label}_t", rows, columns)


def _rule(where: str, config: ModelConfig, key: str, value: object) -> tuple[str, bool]:
    """What a size may be, and whether this one is."""
    match key:
        case "layers":
            is_right = value is None or _is_stretch(value, config.layers)
            return f"a stretch of range({config.layers})", is_right
        case "alpha":
            return "a finite number", isinstance(value, int | float) and isfinite(value)
        case "target":
            return "one of q, k, v, o", value in tuple("qkvo")
        case "targets":
            is_right = isinstance(value, str) and value != "" and set(value) <= set("qkvo")
            return "some of q, k, v, o", is_right
    least = 0 if (where, key) == ("body_prefill", "cached") or key == "layer" else 1
    most = config.layers - 1 if key == "layer" else MOST
    return f"{least} to {most}", type(value) is int and least <= value <= most


def _is_stretch(layers: object, count: int) -> bool:
    if not isinstance(layers, range):
        return False
    return layers.step == 1 and 0 <= layers.start < layers.stop <= count
