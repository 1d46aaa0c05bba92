"""The probes, in the order in which they are asked."""

from __future__ import annotations

from types import MappingProxyType

from orion_ane.probes import (
    axes,
    budget,
    computes,
    files,
    forms,
    inputs,
    numbers,
    order,
    surfaces,
    times,
    updates,
    wide_ports,
)

_ALL = (
    computes.PROBE,
    inputs.TWO,
    order.INPUTS,
    order.OUTPUTS,
    inputs.WEIGHTS,
    updates.DONOR,
    updates.RELOAD,
    updates.PURGE,
    surfaces.ROWS,
    surfaces.SIZES,
    *(forms.of_op(name) for name in forms.ROWS),
    forms.DEFAULTS,
    forms.FLAGS,
    forms.IN_PLACE,
    files.PROBE,
    axes.SOFT,
    axes.REDUCTION,
    wide_ports.PROBE,
    numbers.SUMS,
    numbers.OVERFLOW,
    numbers.SLICES,
    numbers.SPECIAL,
    times.DISPATCH,
    times.BANDWIDTH,
    times.NOTCH,
    budget.PROBE,
)
PROBES = MappingProxyType({probe.name: probe for probe in _ALL})
"""By name.  What may spoil the device for others comes last."""
