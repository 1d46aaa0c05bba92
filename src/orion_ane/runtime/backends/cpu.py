"""The portable fast path: the same programs, in fp32 between their ports."""

from __future__ import annotations

from orion_ane.engine import Numerics
from orion_ane.runtime.portable import PortableBackend


class Cpu(PortableBackend):
    """Runs programs without a device's rules: fp16 is how values are stored, fp32 how computed."""

    name: str = "cpu"
    numerics: Numerics = "fp32"
