"""Windows of ids in a seeded order, from any place of which a run can go on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from orion_ane.errors import ConfigError, DataError
from orion_ane.host.loss import IGNORED
from orion_ane.train.batch import Batch
from orion_ane.train.corpus import Tokens
from orion_ane.types import Array

SAMPLED = 1 << 16


class Windows:
    """Sequences of `seq` ids and the ids after each, cut side by side from stretches of ids.

    Documents lie one after another in a stretch, so that a window may hold several, or a part; what
    is left at the end of a stretch is too short for a window.

    Raises:
        ConfigError: no such length.
        DataError: a stretch too short for one window (case D03).
    """

    def __init__(self, stretches: Sequence[Tokens], seq: int) -> None:
        if seq < 1:
            raise ConfigError("seq", "no such length", got=seq, want="at least 1")
        self.seq, self.stretches = seq, tuple(stretches)
        if not stretches:
            raise DataError("data", "no tokens")
        for one in stretches:
            if len(one.ids) < seq + 1:
                raise DataError(
                    one.origin,
                    "too short for one sequence",
                    got=f"{len(one.ids)} tokens",
                    want=f"at least {seq + 1} for `seq` {seq}",
                    hint=f"give more text, or `seq` {max(1, len(one.ids) - 1)}",
                )
        counts = [(len(one.ids) - 1) // seq for one in stretches]
        self._ends = np.cumsum(counts)

    def __len__(self) -> int:
        """How many windows there are."""
        return int(self._ends[-1])

    def batch(self, numbers: Sequence[int] | Array) -> Batch:
        """The windows of these numbers."""
        rows = [self._window(*self._place(int(number))) for number in numbers]
        return Batch(np.stack([ids for ids, _ in rows]), np.stack([t for _, t in rows]))

    def every(self, batch: int) -> Iterator[Batch]:
        """Each window once, in order, then what is left at the end of each stretch.

        A row that is too short is filled up with what does not count: every token of a stretch
        but its first is asked for exactly once.
        """
        for start in range(0, len(self), batch):
            yield self.batch(range(start, min(start + batch, len(self))))
        for one in self.stretches:
            at = (len(one.ids) - 1) // self.seq * self.seq
            if at < len(one.ids) - 1:
                ids, targets = self._window(one, at)
                yield Batch(ids[None], targets[None])

    @cached_property
    def fingerprint(self) -> str:
        """What tells other data from these: their lengths, and ids at both ends of each stretch."""
        digest = hashlib.sha256(f"{self.seq}".encode())
        for one in self.stretches:
            digest.update(f"|{len(one.ids)} {one.ids.dtype.itemsize}".encode())
            for part in (one.ids[:SAMPLED], one.ids[-SAMPLED:]):
                digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()[:32]

    def _place(self, number: int) -> tuple[Tokens, int]:
        """The stretch of a window, and where it starts there."""
        which = int(np.searchsorted(self._ends, number, side="right"))
        before = int(self._ends[which - 1]) if which else 0
        return self.stretches[which], (number - before) * self.seq

    def _window(self, one: Tokens, at: int) -> tuple[Array, Array]:
        """The ids from a place on, and what should come after each."""
        end = min(at + self.seq, len(one.ids) - 1)
        ids, targets = np.zeros(self.seq, np.int64), np.full(self.seq, IGNORED, np.int64)
        ids[: end - at] = one.ids[at:end]
        targets[: end - at] = one.ids[at + 1 : end + 1]
        if one.learnt is not None:
            targets[: end - at][~one.learnt[at + 1 : end + 1]] = IGNORED
        return ids, targets


class Batches:
    """Batches without end: each window once an epoch, in an order of its own by seed and epoch.

    Args:
        windows: what is drawn from.
        batch: rows of each; one may hold the end of an epoch and the start of the next.
        seed: of the orders.
        shuffle: else in the order of the data, every time.
        part: of several processes this one's number, and how many share each batch evenly.

    Raises:
        ConfigError: no rows, or no such seed.
    """

    def __init__(
        self,
        windows: Windows,
        *,
        batch: int,
        seed: int = 0,
        shuffle: bool = True,
        part: tuple[int, int] = (0, 1),
    ) -> None:
        if batch < 1:
            raise ConfigError("batch", "no rows", got=batch, want="at least 1")
        if seed < 0:
            raise ConfigError("seed", "no such seed", got=seed, want="0 or more")
        self.windows, self.rows, self.seed, self.shuffle = windows, batch, seed, shuffle
        rank, size = part
        if batch % size:
            raise ConfigError("batch", "no equal parts", got=batch, want=f"a multiple of {size}")
        self._part = slice(rank * batch // size, (rank + 1) * batch // size)
        self._drawn = 0
        self._order: tuple[int, Array] | None = None

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        """The next batch, or this process's part of it."""
        drawn = range(self._drawn, self._drawn + self.rows)[self._part]
        self._drawn += self.rows
        return replace(self.windows.batch([self._number(i) for i in drawn]), first=drawn.start)

    @property
    def epoch(self) -> float:
        """How often the data have been drawn."""
        return self._drawn / len(self.windows)

    @property
    def cursor(self) -> dict[str, Any]:
        """The place, for a checkpoint."""
        return {
            "drawn": self._drawn,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "windows": len(self.windows),
            "data": self.windows.fingerprint,
        }

    def seek(self, cursor: Mapping[str, Any]) -> None:
        """Go on from a place (case C07).

        Raises:
            ConfigError: it is a place in other data, or in another order.
        """
        own = self.cursor
        for name in ("windows", "data", "seed", "shuffle"):
            if cursor.get(name) != own[name]:
                raise ConfigError(
                    "data",
                    f"not those of the checkpoint, whose {name} differ",
                    got=own[name],
                    want=cursor.get(name),
                    hint="resume with the same files, `seq` and `seed`, or start anew",
                )
        drawn = cursor.get("drawn")
        if type(drawn) is not int or drawn < 0:
            raise ConfigError("data", "no such place", got=drawn, want="rows drawn")
        self._drawn = drawn

    def _number(self, row: int) -> int:
        """The window that is drawn as the row-th."""
        epoch, at = divmod(row, len(self.windows))
        if not self.shuffle:
            return at
        if self._order is None or self._order[0] != epoch:
            rng = np.random.default_rng([self.seed, epoch])
            self._order = (epoch, rng.permutation(len(self.windows)))
        return int(self._order[1][at])
