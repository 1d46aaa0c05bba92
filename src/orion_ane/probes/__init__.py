"""Probes: what a device does, found by asking it, and the target file that says so."""

from __future__ import annotations

from orion_ane.probes.kept import is_kept, keep, report, report_of
from orion_ane.probes.probe import Finding, Probe, Verdict
from orion_ane.probes.run import document, passes, probe
from orion_ane.probes.session import Session
from orion_ane.probes.table import PROBES

__all__ = [
    "PROBES",
    "Finding",
    "Probe",
    "Session",
    "Verdict",
    "document",
    "is_kept",
    "keep",
    "passes",
    "probe",
    "report",
    "report_of",
]
