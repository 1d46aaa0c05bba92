"""An adapter as programs' ports hold it: ranks padded, scales in B, rows in the programs' order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from orion_ane.errors import ConfigError
from orion_ane.lora.adapter import LowRank
from orion_ane.lora.inject import LAYERED, RANKS, Site
from orion_ane.lora.modules import HEAD, head_name
from orion_ane.models.decoder import Decoder, vocabulary
from orion_ane.models.weights import shapes
from orion_ane.nn.blocks import Precision
from orion_ane.types import Array, DType

PROBE = Precision(DType.FP32, DType.FP32)


@dataclass(frozen=True, eq=False)
class Order:
    """How a program's matrix lies beside the canonical one; None is as it is."""

    rows: Array | None
    columns: Array | None


class Layout:
    """Where a decoder's canonical matrices are in its programs, told by the decoder itself.

    Args:
        decoder: the model.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._orders = {name: _order(decoder, name) for name in _of_first_layer(decoder)}
        config = decoder.config
        head = head_name(config)
        self._head = {f"{head}{end}": rows for end, rows in vocabulary(config.vocab).items()}

    def by_label(self, parts: Mapping[str, LowRank]) -> dict[str, LowRank]:
        """Matrices by their programs' labels, rows and columns as those have them."""
        found: dict[str, LowRank] = {}
        for name, one in parts.items():
            a = self.columns(name, one.a)
            for label, b in self.rows(name, one.b).items():
                found[label] = LowRank(a, b, one.scale)
        return found

    def labels(self, name: str) -> tuple[str, ...]:
        """The programs' matrices that a canonical one is; the head is `lm_head`."""
        return tuple(self._head) if name == HEAD else (name,)

    def columns(self, name: str, a: Array) -> Array:
        """[r, I] with its columns as the program's matrix has them."""
        order = self.columns_of(name)
        return a if order is None else a[:, order]

    def columns_of(self, name: str) -> Array | None:
        """The order of a program's columns among the canonical ones; None is as they are."""
        return None if name == HEAD else self._order(name).columns

    def rows(self, name: str, b: Array) -> dict[str, Array]:
        """[O, r] with its rows as the program's matrices have them, by label."""
        if name == HEAD:
            return {label: b[rows.start : rows.stop] for label, rows in self._head.items()}
        order = self._order(name).rows
        return {name: b if order is None else b[order]}

    def _order(self, name: str) -> Order:
        layered = LAYERED.fullmatch(name)
        assert layered is not None, name
        return self._orders[layered[2]]


def bucket_of(rank: int) -> int:
    """The rank that programs have for one so large.

    Raises:
        ConfigError: larger than any.
    """
    found = next((one for one in RANKS if one >= rank), None)
    if found is None:
        raise ConfigError("adapter", "too large a rank", got=rank, want=f"at most {RANKS[-1]}")
    return found


def ports_of(
    matrices: Mapping[str, LowRank], sites: Iterable[Site], rank: int, dtype: DType
) -> dict[str, Array]:
    """What the ports of programs hold, those alone that are not all zeros.

    Args:
        matrices: by their programs' labels.
        sites: of the program.
        rank: of its ports.
        dtype: of its ports.

    Raises:
        ConfigError: a number that the type has no room for.
    """
    found: dict[str, Array] = {}
    for site in sites:
        if not any(label in matrices for label in site.labels):
            continue
        a, b = (np.zeros(shape, dtype.numpy) for shape in site.shapes(rank))
        for i, label in enumerate(site.labels):
            if label in matrices:
                one = matrices[label]
                rows = slice(i * rank, i * rank + one.rank)
                with np.errstate(over="ignore"):
                    a[0, rows, 0] = one.a
                    b[0, rows, 0] = (one.b * np.float32(one.scale)).T
        for port, array in zip(site.ports, (a, b), strict=True):
            if dtype is DType.FP16 and not np.isfinite(array).all():
                raise ConfigError(port, "numbers that fp16 has no room for", want="device cpu")
            found[port] = array
    return found


def stacked(weighted: Iterable[tuple[Mapping[str, LowRank], float]]) -> dict[str, LowRank]:
    """The weighted sum of adapters: their ranks side by side."""
    lists: dict[str, list[tuple[LowRank, float]]] = {}
    for matrices, weight in weighted:
        for label, one in matrices.items():
            lists.setdefault(label, []).append((one, weight))
    return {label: _side_by_side(ones) for label, ones in lists.items()}


def _side_by_side(ones: list[tuple[LowRank, float]]) -> LowRank:
    if len(ones) == 1:
        one, weight = ones[0]
        return LowRank(one.a, one.b, one.scale * weight)
    a = np.concatenate([one.a for one, _ in ones])
    b = np.concatenate([one.b * np.float32(one.scale * weight) for one, weight in ones], axis=1)
    return LowRank(a, b, 1.0)


def _of_first_layer(decoder: Decoder) -> list[str]:
    return [
        name.removeprefix("layers.0.")
        for name, shape in shapes(decoder.config).items()
        if name.startswith("layers.0.") and len(shape) == 2
    ]


def _order(decoder: Decoder, name: str) -> Order:
    """Matrices whose values are the numbers of their rows, or columns, come back in order."""
    label = f"layers.0.{name}"
    shape = shapes(decoder.config)[label]

    def asked(axis: int) -> Array | None:
        numbers = np.arange(shape[axis], dtype=np.float32)
        probe = np.broadcast_to(numbers[:, None] if axis == 0 else numbers[None], shape)
        weight = decoder.weights({label: probe}, PROBE)[label][:, :, 0, 0]
        found = (weight[:, 0] if axis == 0 else weight[0]).astype(np.intp)
        return None if np.array_equal(found, np.arange(len(found))) else found

    return Order(asked(0), asked(1))
