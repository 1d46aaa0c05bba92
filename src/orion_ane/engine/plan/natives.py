"""Which function does which command, and which ones run commands.

They are told by name: where their code is on the disk, no module of theirs is imported, nor numba.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import cached_property
from importlib import import_module
from subprocess import DEVNULL, PIPE, Popen
from types import MappingProxyType
from typing import Any

from orion_ane.engine import kept_code
from orion_ane.engine.compiling import compiling, tell
from orion_ane.engine.machine_code import function
from orion_ane.engine.plan.layout import COMMAND, ENLIST, FOLLOW, LEAD, Kind
from orion_ane.engine.threads import processors

_log = logging.getLogger("orion_ane")


class Held:
    """A kernel whose code is on the disk, or else made when it is first asked for."""

    def __init__(self, module: str, name: str, signature: str = COMMAND) -> None:
        self._module, self._name, self._signature = module, name, signature
        self._at: int | None = None

    @property
    def name(self) -> str:
        """Its module and its name there."""
        return f"{self._module}.{self._name}"

    def load(self) -> bool:
        """Put its code in memory, if that is on the disk; whether it is there now."""
        if self._at is None:
            self._at = kept_code.find(self.name)
        return self._at is not None

    @property
    def address(self) -> int:
        """Where its code is."""
        if self._at is None:
            with compiling():
                self._at = self._at if self.load() else self._made()
        assert self._at is not None
        return self._at

    def _made(self) -> int:
        kernel = getattr(import_module(f"{__package__}.{self._module}"), self._name)
        found = int(kernel.address)
        if kernel.code is not None:
            kept_code.keep(self.name, *kernel.code)
        return found

    def __call__(self, *args: int) -> Any:
        """Call it from Python."""
        return self._function(*args)

    @cached_property
    def _function(self) -> Callable[..., Any]:
        return function(self.address, self._signature)


NATIVES: Mapping[Kind, Held] = MappingProxyType({
    Kind.TAPE: Held("tapes", "tape"),
    Kind.REDUCE: Held("rows", "reduce"),
    Kind.SOFTMAX: Held("rows", "softmax"),
    Kind.ROWS: Held("products", "rows"),
    Kind.MATMUL: Held("products", "matmul"),
    Kind.PANELS: Held("panels", "lay_panels"),
    Kind.WIDE: Held("panels", "multiply"),
    Kind.CODES: Held("quantised", "rows_of_codes"),
    Kind.UNPACK: Held("quantised", "unpack_rows"),
    Kind.COLUMNS: Held("products", "columns"),
    Kind.ATTEND: Held("attention", "attend"),
    Kind.ROTATE: Held("rotary", "rotate"),
    Kind.NORM: Held("norms", "norm"),
})  # fmt: skip
"""Each is loaded or compiled when the first program that has such a command is lowered."""

enlist = Held("run", "enlist", ENLIST)
follow = Held("run", "follow", FOLLOW)
lead = Held("run", "lead", LEAD)

_HELD = {held.name: held for held in (*NATIVES.values(), enlist, follow, lead)}
_COSTS = {
    "attention.attend": 22, "tapes.tape": 17, "panels.multiply": 15, "norms.norm": 14,
    "quantised.rows_of_codes": 12, "panels.lay_panels": 8, "products.matmul": 6, "run.follow": 5,
    "rotary.rotate": 5, "rows.reduce": 4, "rows.softmax": 3, "run.lead": 2, "run.enlist": 1,
}  # fmt: skip
"""About how long each takes to be compiled, in tenths of a second."""


def prepare(kinds: Iterable[Kind]) -> None:
    """Have what commands of these kinds need, and is not on the disk, compiled by many processes.

    The compiler does one thing at a time in a process, and what it takes of memory goes with those.
    Where one fails, or nothing is kept, each kernel is compiled here when it is first asked for.
    """
    with compiling():
        asked = {*kinds}
        if Kind.ATTEND in asked:  # who goes on token by token has read a prompt
            asked |= {Kind.PANELS, Kind.WIDE, Kind.SOFTMAX}
        wanted = [*(NATIVES[kind] for kind in sorted(asked)), enlist, follow, lead]
        missing = [held.name for held in wanted if not held.load()]
        shares = _shares(missing, processors())
        if len(missing) < 2 or not kept_code.can_keep() or not sys.executable:
            return
        tell()
        path = json.dumps([place for place in sys.path if place])
        command = [sys.executable, "-P", "-c", _MAKE, path]
        with ExitStack() as started:
            makers = [
                started.enter_context(
                    Popen(  # noqa: S603 - Python itself, and names of kernels
                        [*command, *share], stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE
                    )
                )
                for share in shares
            ]
            for maker in makers:
                started.callback(maker.kill)  # after Ctrl-C; one that has ended is not hurt
            for maker in makers:
                _, said = maker.communicate()
                if maker.returncode:
                    _log.debug("kernels were not compiled aside: %s", said.decode(errors="replace"))


def _shares(missing: Iterable[str], most: int) -> list[list[str]]:
    """Names in up to `most` parts that take about as long; those of a module stay together.

    What they have in common is then compiled once.
    """
    modules: dict[str, list[str]] = {}
    for name in missing:
        modules.setdefault(name.partition(".")[0], []).append(name)
    shares: list[list[str]] = [[] for _ in range(min(len(modules), most))]
    for names in sorted(modules.values(), key=_cost, reverse=True):
        min(shares, key=_cost).extend(names)
    return shares


def _cost(names: Iterable[str]) -> int:
    return sum(_COSTS.get(name, 3) for name in names)


_MAKE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    f"from {__name__} import make; make(sys.argv[2:])"
)


def make(names: Iterable[str]) -> None:
    """Compile kernels, and keep them."""
    for name in names:
        _ = _HELD[name].address
