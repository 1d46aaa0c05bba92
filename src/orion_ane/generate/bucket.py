"""What the body programs of one bucket read and write, kept from one run to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from orion_ane.ane.layout import unpack
from orion_ane.generate.adapters import BARE, Worn
from orion_ane.generate.kv_cache import KVCache
from orion_ane.generate.programs import Programs
from orion_ane.nn.blocks import MASKED
from orion_ane.runtime.backend import Executable
from orion_ane.runtime.portable import PortableProgram, Run
from orion_ane.types import Array

TURNED = 64  # positions whose tables are made at once


class Bucket:
    """The ports of a sequence's body programs, over S = `lanes` new and T = `cached` positions.

    Attributes:
        lanes, cached: the sizes; T is 0 where nothing came before.
        new: the new keys and values of the last run, as `KVCache.append` takes them.
        news: the same by the names of ports.
        fills: how often it was filled.
    """

    def __init__(
        self, programs: Programs, cache: KVCache, lanes: int, cached: int, worn: Worn = BARE
    ) -> None:
        """Take the places of the cache as it is, and must not grow; `cached` 0 is without it."""
        decoder, compute = programs.decoder, programs.precision.compute
        masked, dtype = MASKED[compute], compute.numpy
        self.lanes, self.cached = lanes, cached
        self.decoder, self.slices, self.worn = decoder, programs.slices, worn
        self._host = {**programs.host_tensors, **worn.host}
        self._hidden = [  # before, between and after the programs
            np.zeros((1, decoder.config.dim, 1, lanes), dtype) for _ in range(len(self.slices) + 1)
        ]
        self._cache_mask = np.full((1, 1, lanes, self.cached), masked, dtype)
        self._seen = self._count = self.fills = 0
        self._is_mask_new = False
        self._caches, self.new = cache.ports, cache.room(lanes)
        self.news = {
            name: part[None, :, None] for name, part in zip(cache.news, self.new, strict=True)
        }
        self._ahead: tuple[range, dict[str, Array]] = range(0), {}
        self._tables = {
            name: np.zeros(table.shape, dtype)
            for name, table in decoder.tables(self._positions(0, lanes)).items()
        }
        self._masked, self._shared = masked, {"mask": np.zeros((1, 1, lanes, lanes), dtype)}
        if cached:
            self._shared["mask_cache"] = self._cache_mask
        self._runs: dict[int, tuple[Executable, Run | None]] = {}

    def fill(self, ids: Sequence[int], start: int) -> None:
        """Set what the programs read: tokens at the positions from `start` on."""
        decoder, count, x = self.decoder, len(ids), self._hidden[0]
        self.fills += 1
        positions = self._positions(start, count)
        x[0, :, 0, :count] = decoder.embed(self._host, np.asarray(ids), positions).T
        if count < self.lanes:  # lanes without a token are all alike, which a device may use
            x[..., count:] = 0
        self._is_mask_new = count != self._count
        if self._is_mask_new:
            self._count, self._shared["mask"][...] = count, self._causal(count)
        self._cache_mask[..., self._seen : start] = 0
        self._seen = start
        if self._tables:
            for name, table in self._turned(start, count).items():
                self._tables[name][...] = table

    def run(self, layers: range, loaded: Executable) -> None:
        """Run the program of some layers, on the hidden vectors of those before."""
        found = self._runs.get(layers.start)
        if found is None or found[0] is not loaded:
            found = self._runs[layers.start] = loaded, self._bound(layers, loaded)
        run = found[1]
        if run is not None:
            run(filled=self._seen)  # what is behind is zeros until the cache takes it
            return
        outputs = loaded.run(self.inputs(layers))
        for name, to in self._written(layers).items():
            to[...] = outputs[name]

    @property
    def changed(self) -> set[str]:
        """The ports, of all programs alike, that the last `fill` set."""
        return {"mask_cache", *self._tables, *(["mask"] if self._is_mask_new else [])}

    def take(self, outputs: Mapping[str, Array]) -> None:
        """Set the new keys and values."""
        for name, to in self.news.items():
            to[...] = outputs[name]

    def hidden(self, count: int) -> Array:
        """The first `count` hidden vectors after the last program, [S, C]."""
        found = self._hidden[-1]
        return found.reshape(1, -1) if self.lanes == 1 else unpack(found, count)

    def _positions(self, start: int, count: int) -> Array:
        found, last = np.arange(start, start + count), self.decoder.config.context - 1
        return found if start + count <= last + 1 else np.minimum(found, last)

    def _causal(self, count: int) -> Array:
        """[S,S]: each lane sees itself and those before, one without a token what the last sees."""
        lane = np.arange(self.lanes)
        is_hidden = lane > np.minimum(lane, count - 1)[:, None]
        return np.where(is_hidden, np.float32(self._masked), np.float32(0))

    def _turned(self, start: int, count: int) -> dict[str, Array]:
        """The tables of the positions from `start` on; of single ones, many are made at once."""
        if self.lanes > 1:
            positions = self._positions(start, self.lanes)
            return self.decoder.tables(np.minimum(positions, positions[count - 1]))
        known, tables = self._ahead
        if start not in known:
            known = range(start, start + TURNED)
            tables = self.decoder.tables(self._positions(start, TURNED))
            self._ahead = known, tables
        at = start - known.start
        return {name: table[..., at : at + 1] for name, table in tables.items()}

    def _bound(self, layers: range, loaded: Executable) -> Run | None:
        if not isinstance(loaded, PortableProgram):
            return None
        return loaded.bind(self.inputs(layers), self._written(layers), self._caches)

    def inputs(self, layers: range) -> dict[str, Array]:
        """What the program of some layers reads, as it is now."""
        names = [f"{kind}_cache_{i:02d}" for i in layers for kind in "kv"] if self.cached else []
        x = self._hidden[self.slices.index(layers)]
        caches = {name: self._caches[name] for name in names}
        return {"x": x, **self._shared, **self._tables, **caches, **self.worn.body(layers)}

    def _written(self, layers: range) -> dict[str, Array]:
        names = [f"{kind}_{i:02d}" for i in layers for kind in "kv"]
        hidden = self._hidden[self.slices.index(layers) + 1]
        return {"hidden": hidden, **{name: self.news[name] for name in names}}
