"""Which function does which command."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from orion_ane.engine.jit import Native
from orion_ane.engine.plan import panels, products, quantised, rows, tapes
from orion_ane.engine.plan.layout import Kind

NATIVES: Mapping[Kind, Native] = MappingProxyType({
    Kind.TAPE: tapes.tape,
    Kind.REDUCE: rows.reduce,
    Kind.SOFTMAX: rows.softmax,
    Kind.ROWS: products.rows,
    Kind.MATMUL: products.matmul,
    Kind.PANELS: panels.lay_panels,
    Kind.WIDE: panels.multiply,
    Kind.CODES: quantised.rows_of_codes,
    Kind.UNPACK: quantised.unpack_rows,
    Kind.COLUMNS: products.columns,
})  # fmt: skip
"""Each is compiled when the first program that has such a command is lowered."""
