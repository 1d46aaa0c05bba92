"""What surrounds the framework on a Mac: each fact from one command that only reads."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from orion_ane.runtime.backends.neural_engine.libraries import VARIABLE
from orion_ane.runtime.disk_cache import cache_root

Ask: TypeAlias = Callable[..., str]
"""What a command prints; nothing where there is no such command."""

RECORDED = {
    "26": "26.5.2 (25F84, M3 Ultra)",
    "27": "27.0 (26A5378j, M2; 27.0, M4) and 27.0.1 (26A434, A18 Pro)",
}
"""The systems whose signatures were recorded, by the first number of the version."""
SECONDS = 20


def ask(*command: str) -> str:
    """What a command prints, on either output."""
    try:
        done = subprocess.run(  # noqa: S603 - fixed commands of the system
            command, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout + done.stderr


@dataclass(frozen=True)
class Machine:
    """A Mac and the Python on it, as far as they decide whether the engine can be used.

    Attributes:
        version: of macOS, empty where this is none.
        build: its build, by which probes are kept.
        chip: as the processor names itself.
        python: version, processor and path of the interpreter.
        is_translated: it runs under Rosetta.
        sip: what the system says of its integrity protection.
        is_hardened: the interpreter is signed for the hardened runtime.
        may_run_made_code: which then may run code that a program makes, as callbacks need.
        has_private_entitlement: the interpreter claims one of the engine's.
        is_sandboxed: it runs in an app's sandbox.
    """

    version: str
    build: str
    chip: str
    python: str
    is_translated: bool
    sip: str
    is_hardened: bool
    may_run_made_code: bool
    has_private_entitlement: bool
    is_sandboxed: bool

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def machine(run: Ask = ask, environment: Mapping[str, str] = os.environ) -> Machine:
    """This machine.

    Args:
        run: what a command prints.
        environment: of the process.
    """
    path = os.path.realpath(sys.executable)
    signature = run("codesign", "-dv", "--entitlements", "-", path)
    flags = re.search(r"flags=0x[0-9a-f]+\(([^)]*)\)", signature)
    made = ("allow-unsigned-executable-memory", "allow-jit")
    sandbox = "com.apple.security.app-sandbox"
    return Machine(
        version=run("sw_vers", "-productVersion").strip(),
        build=run("sw_vers", "-buildVersion").strip(),
        chip=run("sysctl", "-n", "machdep.cpu.brand_string").strip(),
        python=f"{platform.python_version()} {platform.machine()} {path}",
        is_translated=run("sysctl", "-n", "sysctl.proc_translated").strip() == "1",
        sip=run("csrutil", "status").strip(),
        is_hardened=flags is not None and "runtime" in flags.group(1),
        may_run_made_code=any(word in signature for word in made),
        has_private_entitlement="com.apple.aned" in signature or "com.apple.ane." in signature,
        is_sandboxed="APP_SANDBOX_CONTAINER_ID" in environment or sandbox in signature,
    )


def probe_file(folder: Path | None = None) -> Path | None:
    """Where the probe's finding for this system's build is kept; None where this is no Mac.

    A stand-in of the libraries has a finding of its own, by the folder that it lies in.
    """
    cache = folder or cache_root()
    if cache is None:  # told to keep nothing
        return None
    root = cache / "probed"
    stand_in = os.environ.get(VARIABLE)
    if stand_in:
        return root / f"stand-in-{Path(stand_in).name}.json"
    if sys.platform != "darwin":
        return None
    build = ask("sw_vers", "-buildVersion").strip()
    return root / f"{build or 'unknown'}-{platform.machine()}.json"


def probed() -> Path | None:
    """The target that a probe has found this machine to be; None where none has passed."""
    file = probe_file()
    return file if file is not None and file.is_file() else None
