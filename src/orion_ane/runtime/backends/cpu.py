"""The portable fast path: the same programs, in fp32 between their ports."""

from __future__ import annotations

from orion_ane.engine.brain import want_torch
from orion_ane.errors import ConfigError
from orion_ane.runtime.portable import NumericsName, PortableBackend


class Cpu(PortableBackend):
    """Runs programs without a device's rules: fp16 is how values are stored, fp32 how computed.

    Args:
        threads: how many threads at most; by default one a processor.
        numerics: `fp32`; `fp16`, which rounds what is declared fp16 after every op; or `bf16`,
            which has torch compute wide products with stored weights in bf16.

    Raises:
        ConfigError: no such number of threads or numerics, or torch is not installed.
    """

    name: str = "cpu"

    def __init__(self, *, threads: int | None = None, numerics: NumericsName | None = None) -> None:
        if numerics not in (None, "fp16", "fp32", "bf16"):
            hint = "device emulator has a target, whose arithmetic that is"
            raise ConfigError(
                "numerics",
                "not with device cpu",
                got=numerics,
                want="fp16, fp32 or bf16",
                hint=hint if numerics == "exact" else None,
            )
        if numerics == "bf16":
            want_torch()
        super().__init__(threads=threads, numerics=numerics or "fp32")
