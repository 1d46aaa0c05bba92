"""The limits table: what is claimed about the device, by whom, and what keeps it."""

from __future__ import annotations

from types import MappingProxyType

from orion_ane.ane.limits.claims import CHIPS, Check, Limit, Scope, State, Symptom
from orion_ane.ane.limits.further import FURTHER
from orion_ane.ane.limits.numeric import NUMERIC
from orion_ane.ane.limits.paper import PAPER
from orion_ane.ane.limits.sources import SOURCES, key_of
from orion_ane.ane.limits.subject import Finding, Subject

__all__ = [
    "CHIPS",
    "LIMITS",
    "LIMIT_BY_CODE",
    "SOURCES",
    "Check",
    "Finding",
    "Limit",
    "Scope",
    "State",
    "Subject",
    "Symptom",
    "key_of",
]

LIMITS = (*PAPER, *FURTHER, *NUMERIC)
"""Every row, by code."""

LIMIT_BY_CODE = MappingProxyType({limit.code: limit for limit in LIMITS})
