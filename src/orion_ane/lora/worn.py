"""An adapter as programs' ports hold it: ranks padded, scales in B, rows in the programs' order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from orion_ane.errors import ConfigError
from orion_ane.lora.adapter import LowRank, times
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
        return a if order is None else np.take(a, order, axis=1)  # row by row, as programs read it

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


@dataclass(frozen=True, eq=False)
class Packed:
    """An adapter as the ports of a program hold it.

    Attributes:
        rank: of the ports.
        ports: by name, those alone that are not all zeros.
        used: by a site's name, the largest rank that it has in any layer.
    """

    rank: int
    ports: Mapping[str, Array]
    used: Mapping[str, int]


def packed(
    name: str, matrices: Mapping[str, LowRank], sites: Iterable[Site], rank: int, dtype: DType
) -> Packed:
    """Matrices as a program's ports.

    Args:
        name: the adapter's, for errors.
        matrices: by their programs' labels.
        sites: of the program.
        rank: of its ports.
        dtype: of its ports.

    Raises:
        ConfigError: a number that the type has no room for.
    """
    ports: dict[str, Array] = {}
    used: dict[str, int] = {}
    for site in sites:
        ones = [(i, matrices[label]) for i, label in enumerate(site.labels) if label in matrices]
        if not ones:
            continue
        used[site.name] = max(one.rank for _, one in ones)
        a, b = _empty(site, rank, dtype)
        with np.errstate(over="ignore"):
            for i, one in ones:
                a[i, : one.rank] = one.a
                np.multiply(one.b.T, np.float32(one.scale), out=b[i, : one.rank])
        _want_finite(name, site, a, b)
        ports |= _ports(site, rank, a, b)
    return Packed(rank, ports, used)


def regrown(one: Packed, sites: Iterable[Site], rank: int) -> Packed:
    """An adapter in ports of another rank, with room for it."""
    return stacked([("", one, 1.0)], sites, rank)


def stacked(
    weighted: Sequence[tuple[str, Packed, float]], sites: Iterable[Site], rank: int
) -> Packed:
    """The weighted sum of adapters, their ranks side by side in ports of a rank with room for them.

    Args:
        weighted: adapters by name, and their weights.
        sites: of the program.
        rank: of its ports.

    Raises:
        ConfigError: a weight that takes a number out of fp16's range, whatever the ports' type: a
            sum means the same on every device.
    """
    ports: dict[str, Array] = {}
    used: dict[str, int] = {}
    for site in sites:
        ones = [one for one in weighted if site.name in one[1].used]
        if not ones:
            continue
        a, b = _empty(site, rank, DType.of(ones[0][1].ports[site.ports[0]].dtype))
        at = 0
        for name, one, weight in ones:
            count = one.used[site.name]
            its_a, its_b = (_by_layer(site, one.ports[port]) for port in site.ports)
            a[:, at : at + count] = its_a[:, :count]
            b[:, at : at + count] = times(name, site.name, its_b[:, :count], weight)
            at += count
        used[site.name] = at
        ports |= _ports(site, rank, a, b)
    return Packed(rank, ports, used)


def room_for(ones: Iterable[Packed]) -> int:
    """The rank that a sum of adapters takes."""
    total: dict[str, int] = {}
    for one in ones:
        for name, rank in one.used.items():
            total[name] = total.get(name, 0) + rank
    return max(total.values(), default=0)


def _empty(site: Site, rank: int, dtype: DType) -> tuple[Array, Array]:
    """Zeros for a site's ports, [L,R,·]."""
    a, b = (_by_layer(site, np.zeros(shape, dtype.numpy)) for shape in site.shapes(rank))
    return a, b


def _by_layer(site: Site, port: Array) -> Array:
    return port.reshape(len(site.labels), -1, port.shape[-1])


def _want_finite(name: str, site: Site, *arrays: Array) -> None:
    for array in arrays:
        if not np.isfinite(array).all():
            hint = "take device cpu" if array.dtype == np.float16 else None
            what = f"numbers of {site.name} that {array.dtype} has no room for"
            raise ConfigError(f"adapter {name}", what, hint=hint)


def _ports(site: Site, rank: int, *arrays: Array) -> dict[str, Array]:
    """The ports of [L,R,·]."""
    shaped = zip(site.ports, arrays, site.shapes(rank), strict=True)
    return {port: array.reshape(shape) for port, array, shape in shaped}


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
