"""Several processes that train one model: each has rows of its own, all learn from the sum.

A launcher such as `torchrun` starts them and says by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
who they are.  PyTorch's collectives over gloo carry the sums; nothing else of it is used.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Literal, TypeAlias

import numpy as np

from orion_ane.errors import BackendError, ConfigError
from orion_ane.train.extras import extra
from orion_ane.train.fingerprint import fingerprint
from orion_ane.train.gradients import Gradients
from orion_ane.train.settings import differences, option
from orion_ane.train.state import State
from orion_ane.types import Array

Wish: TypeAlias = Literal["interrupted", "time"] | None

COUNTS = ("step", "updates", "skipped", "tokens_seen", "loss_scale", "streak", "scales")
SLOT, SLOT_A_TENSOR = 512, 32
"""Bytes that a process says of itself beside its gradients: at least, and for each tensor."""


class Peers:
    """A process alone, which asks nobody.

    Attributes:
        rank: its number, from 0.
        size: how many there are.
        wish: why this process would end the run after the step in hand; None where it would not.
    """

    rank, size = 0, 1

    def __init__(self) -> None:
        self.wish: Callable[[], Wish] = lambda: None

    @property
    def is_first(self) -> bool:
        """Whether it is the one that speaks and writes files."""
        return not self.rank

    def threads(self, asked: int | None) -> int | None:
        """How many threads it may use, where several share a machine."""
        return asked

    def total(self, found: Gradients, state: State) -> None:
        """Make a step's sums those of all processes, in place."""

    def agreed(self) -> Wish:
        """Why all end after this step; None where they go on."""
        return self.wish()

    def least(self, scales: Mapping[str, float]) -> dict[str, float]:
        """The lowest that any process has chosen."""
        return dict(scales)

    def summed(self, loss: float, tokens: int) -> tuple[float, int]:
        """The sums of all."""
        return loss, tokens

    def share(self, state: State, cursor: Mapping[str, Any]) -> Mapping[str, Any]:
        """Give every process the state of the first, in place, and its place in the data."""
        return cursor

    def want_same(self, what: Mapping[str, Any]) -> None:
        """Refuse processes that were started for other runs."""


class Group(Peers):
    """One of several processes, joined by torch.distributed.

    Args:
        rank: its number.
        size: how many there are.
        timeout_s: how long it waits for another.

    Raises:
        ConfigError: PyTorch is not installed.
        BackendError: the others were not there in time.
    """

    def __init__(self, rank: int, size: int, *, timeout_s: float) -> None:
        super().__init__()
        self.rank, self.size, self._patience = rank, size, timeout_s
        self._torch = extra("torch", option="WORLD_SIZE", name="distributed")
        self._group = extra("torch.distributed", option="WORLD_SIZE", name="distributed")
        self._buffer = np.zeros(0, np.float32)
        self._agreed: Wish = None
        with self._asking():
            self._group.init_process_group(
                "gloo", rank=rank, world_size=size, timeout=timedelta(seconds=timeout_s)
            )

    def threads(self, asked: int | None) -> int | None:
        """As asked, or this process's share of the machine."""
        here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        return asked if asked is not None else max(1, (os.cpu_count() or 1) // here)

    def total(self, found: Gradients, state: State) -> None:
        """Add up gradients, losses and tokens of all, in one exchange of one flat buffer.

        Behind the gradients each process has a slot, which is 0 in the buffers of the others: what
        it says there arrives unchanged.  Losses are added in double, in the order of the ranks.

        Raises:
            BackendError: another process is gone, does not answer, or has learnt something else.
        """
        sizes = [array.size for array in found.arrays.values()]
        slot = SLOT + SLOT_A_TENSOR * len(sizes)
        ends = np.cumsum([0, *sizes])
        if self._buffer.size != (length := int(ends[-1]) + self.size * slot):
            self._buffer = np.zeros(length, np.float32)
        flat, slots = self._buffer, self._buffer[ends[-1] :].reshape(self.size, slot)
        for array, at in zip(found.arrays.values(), ends, strict=False):
            flat[at : at + array.size] = array.reshape(-1)
        slots[:] = 0
        said = json.dumps(self._said(found, state)).encode()[:slot]
        slots[self.rank, : len(said)] = np.frombuffer(said, np.uint8)
        with self._asking():
            self._group.all_reduce(self._torch.from_numpy(flat))
        for array, at in zip(found.arrays.values(), ends, strict=False):
            array[...] = flat[at : at + array.size].reshape(array.shape)
        self._hear(found, [json.loads(bytes(one.astype(np.uint8)).rstrip(b"\0")) for one in slots])

    def _said(self, found: Gradients, state: State) -> dict[str, Any]:
        return {
            "loss": found.loss,
            "tokens": found.tokens,
            "bad": found.bad,
            "back": found.bad_back,
            "wish": self.wish(),
            "state": [state.step, hashlib.sha256(fingerprint(state.masters)).hexdigest()[:16]],
            "largest": found.largest,
        }

    def _hear(self, found: Gradients, said: list[dict[str, Any]]) -> None:
        """Take what all have said."""
        for rank, one in enumerate(said):
            if one["state"] != said[0]["state"]:
                raise BackendError(
                    f"process {rank}",
                    "has learnt something else than process 0",
                    got=one["state"],
                    want=said[0]["state"],
                    hint="go on from the last checkpoint, on machines that round alike",
                )
        found.loss = sum(one["loss"] for one in said)
        found.tokens = sum(one["tokens"] for one in said)
        bad = next((rank for rank, one in enumerate(said) if one["bad"] is not None), None)
        if bad is not None:
            found.bad = f"{said[bad]['bad']}, process {bad}"
            found.bad_back = said[bad]["back"]
        names = {name for one in said for name in one["largest"]}
        found.largest = {
            name: max(one["largest"].get(name, 0.0) for one in said) for name in sorted(names)
        }
        self._agreed = next((one["wish"] for one in said if one["wish"] is not None), None)

    def agreed(self) -> Wish:
        """What any of them had wished when the sums were made."""
        return self._agreed

    def least(self, scales: Mapping[str, float]) -> dict[str, float]:
        """The lowest of all, by name."""
        all_of_them = self._gathered(dict(scales))
        names = sorted({name for one in all_of_them for name in one})
        return {name: min(one[name] for one in all_of_them if name in one) for name in names}

    def summed(self, loss: float, tokens: int) -> tuple[float, int]:
        """The sums of all, in the order of the ranks."""
        found = self._gathered([loss, tokens])
        return sum(one[0] for one in found), sum(one[1] for one in found)

    def share(self, state: State, cursor: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the first process has, which alone reads checkpoints."""
        counts = {name: getattr(state, name) for name in COUNTS}
        first = self._gathered({"counts": counts, "cursor": dict(cursor)})[0]
        for name, value in first["counts"].items():
            setattr(state, name, value)
        arrays = [*state.masters.values()]
        arrays += [part for one in state.moments.values() for part in (one.mean, one.square)]
        for array in arrays:
            self._send(array)
        return dict(first["cursor"])

    def want_same(self, what: Mapping[str, Any]) -> None:
        """Every process has the model, settings and data of the first.

        Raises:
            ConfigError: naming what differs.
        """
        first, *rest = self._gathered(json.loads(json.dumps(what)))
        for rank, other in enumerate(rest, 1):
            for name, want in first.items():
                if differing := list(differences(want, other[name])):
                    raise ConfigError(
                        name,
                        "not the same everywhere",
                        got=f"{_told((at, one) for at, _, one in differing)} in process {rank}",
                        want=_told((at, one) for at, one, _ in differing),
                        hint="start every process with the same options and files",
                    )

    def close(self, *, wait: bool) -> None:
        """Leave, once all are done where they are waited for."""
        if wait:
            with self._asking():
                self._group.barrier()
        self._group.destroy_process_group()

    def _send(self, array: Array) -> None:
        with self._asking():
            self._group.broadcast(self._torch.from_numpy(array), src=0)

    def _gathered(self, value: Any) -> list[Any]:
        found = [None] * self.size
        with self._asking():
            self._group.all_gather_object(found, value)
        return found

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # what PyTorch raises, whoever is gone
            why = str(error).partition("\n")[0]
            hint = "what was learnt is saved by process 0; start all again with `resume`"
            if "timed out" in why.lower():
                hint += f"; `peer_timeout` is {self._patience:g} s"
            raise BackendError(
                f"process {self.rank} of {self.size}",
                "another process of this run has ended or does not answer",
                got=why,
                hint=hint,
            ) from error


def _told(values: Iterable[tuple[str, Any]]) -> str:
    """Values by the option that each is, or alone where they are all there is."""
    return ", ".join(option(at, one) if at else str(one) for at, one in values)


def place() -> tuple[int, int]:
    """This process's number, and how many there are: what a launcher says, or alone.

    Raises:
        ConfigError: it says what cannot be.
    """
    said = {name: os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR")}
    if None in said.values():
        return 0, 1
    try:
        rank, size = int(said["RANK"] or ""), int(said["WORLD_SIZE"] or "")
    except ValueError as error:
        raise ConfigError("RANK and WORLD_SIZE", "no numbers", got=error) from error
    if not 0 <= rank < size:
        got = f"{rank} of {size}"
        raise ConfigError("RANK and WORLD_SIZE", "no such process", got=got)
    return rank, size


@contextmanager
def joined(*, timeout_s: float) -> Iterator[Peers]:
    """The processes of this run, left when it is over."""
    rank, size = place()
    if size == 1:
        yield Peers()
        return
    group = Group(rank, size, timeout_s=timeout_s)
    try:
        yield group
    except BaseException:
        group.close(wait=False)
        raise
    group.close(wait=True)
