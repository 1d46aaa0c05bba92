"""The emulator: a device in software, which rounds to fp16 where a device stores fp16."""

from __future__ import annotations

from orion_ane.engine import Numerics
from orion_ane.runtime.portable import PortableBackend


class Emulator(PortableBackend):
    """Runs programs as a device would: from text and bytes, every fp16 value rounded as stored."""

    name: str = "emulator"
    numerics: Numerics = "fp16"
