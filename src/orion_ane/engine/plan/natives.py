"""Which function does which command, and which ones run commands.

They are told by name: where their code is on the disk, no module of theirs is imported, nor numba.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from importlib import import_module
from types import MappingProxyType
from typing import Any

from orion_ane.engine import kept_code
from orion_ane.engine.compiling import compiling
from orion_ane.engine.machine_code import function
from orion_ane.engine.plan.layout import COMMAND, ENLIST, FOLLOW, LEAD, Kind


class Held:
    """A kernel whose code is on the disk, or else made when it is first asked for."""

    def __init__(self, module: str, name: str, signature: str = COMMAND) -> None:
        self._module, self._name, self._signature = module, name, signature

    @cached_property
    def address(self) -> int:
        """Where its code is."""
        name = f"{self._module}.{self._name}"
        with compiling():
            found = kept_code.find(name)
            if found is not None:
                return found
            kernel = getattr(import_module(f"{__package__}.{self._module}"), self._name)
            found = int(kernel.address)
            if kernel.code is not None:
                kept_code.keep(name, *kernel.code)
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
