"""What a device does with a program that breaks a limit: a fault for each row with a check."""

from __future__ import annotations

from orion_ane.ane.faults.apply import Misbehaviour, misbehave
from orion_ane.ane.faults.table import FAULTS

__all__ = ["FAULTS", "Misbehaviour", "misbehave"]
