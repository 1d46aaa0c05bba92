"""A model's adapters: any number in memory, and which of them a sequence wears.

What a sequence wears is arrays for its programs' ports, made when an adapter is added, so that a
switch compiles, loads and copies nothing.  Matrices that an adapter leaves alone share one array of
zeros.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import TypeAlias

import numpy as np

from orion_ane.errors import ConfigError
from orion_ane.lora.adapter import Adapter
from orion_ane.lora.inject import Site, sites_of
from orion_ane.lora.modules import HEAD, head_name, table_name
from orion_ane.lora.worn import Layout, Packed, bucket_of, packed, regrown, room_for, stacked
from orion_ane.mil import WeightFile, pack
from orion_ane.models.decoder import Decoder
from orion_ane.nn.blocks import Precision
from orion_ane.types import Array, TensorType

Chosen: TypeAlias = str | Mapping[str, float] | None
"""An adapter by its name, a weighted sum of several, or none."""

STACKS = 8
"""Weighted sums that are kept, the longest unused forgotten first."""
_HEAD = -1
"""The head's place among programs, which are known by their first layer."""


@dataclass(frozen=True, eq=False)
class Head:
    """A head that an adapter brings whole: a program of its own reads it."""

    name: str
    file: WeightFile


@dataclass(frozen=True, eq=False)
class Worn:
    """What a sequence's programs read beside their own weights.

    Attributes:
        rank: of the body's ports; 0 is a body without.
        head_rank: likewise of the head.
        bodies: the ports' values, by the first layer of their program.
        heads: those of the head.
        host: tables that the host looks up, in place of the model's.
        head: the head in place of the model's; None is the model's.
        called: what was chosen, for people; empty is the model alone.
    """

    rank: int = 0
    head_rank: int = 0
    bodies: Mapping[int, Mapping[str, Array]] = field(default_factory=dict)
    heads: Mapping[str, Array] = field(default_factory=dict)
    host: Mapping[str, Array] = field(default_factory=dict)
    head: Head | None = None
    called: str = ""

    def body(self, layers: range) -> Mapping[str, Array]:
        """The ports of the program of some layers."""
        return self.bodies.get(layers.start, {})


BARE = Worn()
"""Programs without ports."""


@dataclass(frozen=True, eq=False)
class _Held:
    """An adapter in memory: as it is, as ports by the programs' places, and its own head."""

    adapter: Adapter
    ports: Mapping[int, Packed]
    head: Head | None


class Wardrobe:
    """The adapters of one model on one device.

    Attributes:
        rank, head_rank: of the programs' ports; 0 where there are none.

    Args:
        decoder: the model.
        precision: of its programs.
        slices: the layers that one body program holds.
        head_file: the weights of the head's programs.
        rank: of adapters to come; 0 is none, and the first one decides.
    """

    def __init__(
        self,
        decoder: Decoder,
        precision: Precision,
        slices: list[range],
        head_file: WeightFile,
        *,
        rank: int = 0,
    ) -> None:
        self.decoder, self.precision, self._slices = decoder, precision, slices
        self._head_file = head_file
        self.rank, self.head_rank = bucket_of(rank) if rank else 0, 0
        self._held: dict[str, _Held] = {}
        self._worn: dict[str, Worn] = {}
        self._stacks: OrderedDict[tuple[tuple[str, float], ...], Worn] = OrderedDict()
        self._none: Worn | None = None
        self._sites: dict[int, dict[str, Site]] = {}
        self._layout: Layout | None = None
        self._zeros: dict[tuple[int, str], Array] = {}

    def __len__(self) -> int:
        return len(self._held)

    @property
    def names(self) -> tuple[str, ...]:
        """The adapters in memory."""
        return tuple(self._held)

    def adapter(self, name: str) -> Adapter:
        """The adapter of a name.

        Raises:
            ConfigError: there is none.
        """
        return self._want(name).adapter

    def add(self, name: str, adapter: Adapter) -> list[str]:
        """Take an adapter into memory; what people should know of it.

        Raises:
            ConfigError: the name is taken, or a rank larger than any program's.
        """
        if not name or name in self._held:
            raise ConfigError("adapter", "the name is taken" if name else "no name", got=name)
        notes = [f"adapter {name}: {note}" for note in adapter.notes]
        if self._layout is None:
            self._layout = Layout(self.decoder)
        parts = adapter.parts()
        head = self._head(name, adapter)
        if head is not None and head.file.digest == self._head_file.digest:  # the model's
            others = {key: one for key, one in adapter.tables.items() if key != HEAD}
            adapter, head = replace(adapter, tables=others), None
        if head is not None:
            notes.append(f"adapter {name} brings its head whole: a program of its own reads it")
        in_head = parts.get(HEAD)
        body_rank = max((one.rank for n, one in parts.items() if n != HEAD), default=0)
        ranks = self._ranks(body_rank, 0 if in_head is None else in_head.rank)
        matrices = self._layout.by_label(parts)
        dtype = self.precision.compute
        ports = {
            place: packed(name, matrices, self._of(place).values(), rank, dtype)
            for place, rank in self._places(*ranks)
        }
        notes += self._grow(*ranks)
        self._held[name] = _Held(adapter, ports, head)
        return notes

    def remove(self, name: str) -> None:
        """Forget an adapter; what wears it now may go on.

        Raises:
            ConfigError: there is none of that name.
        """
        self._want(name)
        del self._held[name]
        self._worn.pop(name, None)
        for key in [key for key in self._stacks if name in dict(key)]:
            del self._stacks[key]

    def wear(self, chosen: Chosen) -> Worn:
        """What programs read for a choice.

        Raises:
            ConfigError: no such adapter, or weights that mean nothing.
        """
        if chosen is None:
            return self._bare()
        if isinstance(chosen, str):
            if chosen not in self._worn:
                held = self._want(chosen)
                self._worn[chosen] = self._made(held.ports, held.adapter.tables, held.head, chosen)
            return self._worn[chosen]
        key = self.checked(chosen)
        if key not in self._stacks:
            self._stacks[key] = self._summed(key)
            while len(self._stacks) > STACKS:
                self._stacks.popitem(last=False)
        self._stacks.move_to_end(key)
        return self._stacks[key]

    def checked(self, chosen: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
        """A weighted sum, every name and weight of it known to be one.

        Raises:
            ConfigError: an unknown name, or a weight that is no finite number.
        """
        if not isinstance(chosen, Mapping) or not chosen:
            want = "a name, weights by name, or None"
            raise ConfigError("adapter", "no such choice", got=chosen, want=want)
        for name, weight in chosen.items():
            self._want(name)
            if isinstance(weight, bool) or not isinstance(weight, int | float):
                raise ConfigError(f"adapter {name}", "no such weight", got=weight, want="a number")
            if not _is_finite(weight):
                want = "a finite number"
                raise ConfigError(f"adapter {name}", "no such weight", got=weight, want=want)
        return tuple(sorted((name, float(weight)) for name, weight in chosen.items()))

    def _want(self, name: str) -> _Held:
        if name not in self._held:
            here = ", ".join(self._held) or "none"
            raise ConfigError("adapter", "no such adapter in memory", got=name, want=here)
        return self._held[name]

    def _summed(self, key: tuple[tuple[str, float], ...]) -> Worn:
        helds = [(self._want(name), weight) for name, weight in key]
        tables: dict[str, Array] = {}
        head = None
        for (held, weight), (name, _) in zip(helds, key, strict=True):
            if not held.adapter.tables:
                continue
            if weight != 1 or tables:
                raise ConfigError(
                    f"adapter {name}",
                    "brings tables whole, which cannot be summed",
                    want="weight 1, and no other such adapter beside it",
                )
            tables, head = dict(held.adapter.tables), held.head
        places = [place for place, _ in self._places(self.rank, self.head_rank)]
        needs = {place: room_for(held.ports[place] for held, _ in helds) for place in places}
        head_rank = needs.pop(_HEAD, 0)
        self._grow(*self._ranks(max(needs.values(), default=0), head_rank))
        weighted = [(name, self._want(name).ports, weight) for name, weight in key]
        ports = {
            place: stacked(
                [(n, p[place], w) for n, p, w in weighted], self._of(place).values(), rank
            )
            for place, rank in self._places(self.rank, self.head_rank)
        }
        called = " + ".join(f"{weight:g} of {name}" for name, weight in key)
        return self._made(ports, tables, head, called)

    def _ranks(self, rank: int, head_rank: int) -> tuple[int, int]:
        """The ranks that ports have once there are such adapters."""
        want = max(self.rank, bucket_of(max(rank, 1)))
        return want, max(self.head_rank, bucket_of(head_rank) if head_rank else 0)

    def _places(self, rank: int, head_rank: int) -> list[tuple[int, int]]:
        """The programs that have ports, and the rank of those."""
        bodies = [(layers.start, rank) for layers in self._slices]
        return [*bodies, (_HEAD, head_rank)] if head_rank else bodies

    def _grow(self, want: int, want_head: int) -> list[str]:
        """Have ports of such ranks; whatever was made for smaller ones is made again."""
        if (want, want_head) == (self.rank, self.head_rank):
            return []
        had = self.rank
        self.rank, self.head_rank = want, want_head
        self._worn.clear()
        self._stacks.clear()
        self._zeros.clear()
        self._none = None
        for name, held in self._held.items():
            self._held[name] = replace(held, ports=self._grown(held.ports))
        if not had:
            why = "programs now have ports for adapters"
        else:
            why = "an adapter needs larger ports, or other ones"
        ranks = f"rank {want}" + (f", {want_head} for the head" if want_head else "")
        return [f"{why} ({ranks}): each is compiled when it is next used"]

    def _grown(self, ports: Mapping[int, Packed]) -> dict[int, Packed]:
        """An adapter's ports, of the ranks that they have now."""
        found = {}
        for place, rank in self._places(self.rank, self.head_rank):
            one = ports.get(place, Packed(rank, {}, {}))
            if one.rank != rank:
                one = regrown(one, self._of(place).values(), rank)
            found[place] = one
        return found

    def _bare(self) -> Worn:
        if not self.rank:
            return BARE
        if self._none is None:
            self._none = self._made(self._grown({}), {}, None, "")
        return self._none

    def _made(
        self,
        ports: Mapping[int, Packed],
        tables: Mapping[str, Array],
        head: Head | None,
        called: str,
    ) -> Worn:
        every = {place: self._filled(place, one) for place, one in ports.items()}
        heads = every.pop(_HEAD, {})
        host = {}
        if "embed" in tables:
            host[table_name(self.decoder.config)] = tables["embed"]
        return Worn(self.rank, self.head_rank, every, heads, host, head, called)

    def _filled(self, place: int, one: Packed) -> dict[str, Array]:
        """All ports of a program: those that nothing is in are shared zeros."""
        every = dict(one.ports)
        for site in self._of(place).values():
            for port, shape in zip(site.ports, site.shapes(one.rank), strict=True):
                if port not in every:
                    if (place, port) not in self._zeros:
                        self._zeros[place, port] = np.zeros(shape, self.precision.compute.numpy)
                    every[port] = self._zeros[place, port]
        return every

    def _of(self, place: int) -> dict[str, Site]:
        """The sites of a program."""
        if place not in self._sites:
            if place == _HEAD:
                graph = self.decoder.head(lanes=1, precision=self.precision)
            else:
                layers = next(one for one in self._slices if one.start == place)
                graph = self.decoder.body(layers, lanes=1, cached=0, precision=self.precision)
            self._sites[place] = sites_of(graph)
        return self._sites[place]

    def _head(self, name: str, adapter: Adapter) -> Head | None:
        """The head that an adapter brings, as its program reads it."""
        table = adapter.tables.get(HEAD)
        if table is None:
            return None
        new = self.decoder.weights({head_name(self.decoder.config): table}, self.precision)
        file = self._head_file
        if not new.keys() <= file.types.keys() or any(
            TensorType.of(array) != file.types[label] for label, array in new.items()
        ):
            raise ConfigError(
                f"adapter {name}",
                "brings its head whole, and the programs read a head in other terms",
                want="weights auto, fp32 or fp16",
            )
        return Head(name, pack({label: new.get(label, file.array(label)) for label in file.types}))


def _is_finite(weight: float) -> bool:
    try:
        return isfinite(weight)
    except OverflowError:  # a whole number that no float holds
        return False
