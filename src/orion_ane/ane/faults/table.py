"""All faults by the code of their row."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from orion_ane.ane.faults.kinds import Fault
from orion_ane.ane.faults.loud import LOUD
from orion_ane.ane.faults.silent import SILENT

FAULTS: Mapping[str, Fault] = MappingProxyType(dict(sorted({**LOUD, **SILENT}.items())))
"""Every row that a check finds broken and that is not merely slow."""
