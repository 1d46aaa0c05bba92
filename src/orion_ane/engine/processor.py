"""What this machine's processor can do, told without LLVM where the system says it."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_X86 = ("x86_64", "amd64")


@cache
def flags() -> frozenset[str]:
    """The names of what it can do, as Linux and LLVM both spell them on x86-64."""
    said = _lines().get("flags", "")
    if said and platform.machine().lower() in _X86:
        return frozenset(said.split())
    from llvmlite import binding  # 40 MB, where nothing else tells

    return frozenset(name for name, has in binding.get_host_cpu_features().items() if has)


def identity() -> str:
    """What distinguishes this processor from others that code may have been made for."""
    named = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags")
    said = _lines()
    return repr((platform.machine(), [said.get(name) for name in named]))


@cache
def _lines() -> dict[str, str]:
    """What Linux says of the first processor; nothing elsewhere."""
    try:
        text = _CPUINFO.read_text(errors="replace").partition("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}
