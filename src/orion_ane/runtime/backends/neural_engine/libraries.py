"""Where the libraries lie: the only thing that differs between macOS and a stand-in of them."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from orion_ane.errors import BackendError

VARIABLE = "ORION_ANE_LIBRARIES"
"""Names a folder with stand-ins, built from `tests/bridge/standin`."""

PAGE = "docs/mac.md"
"""Of this project's source: for whoever has a Mac."""

FRAMEWORKS = "/System/Library/Frameworks"


@dataclass(frozen=True)
class Libraries:
    """The paths of the libraries that the bridge calls.

    On macOS they are no files: the loader finds them in its shared cache, by these paths alone.

    Attributes:
        objc: the Objective-C runtime.
        foundation: strings, data, dictionaries.
        core: CoreFoundation, which releases surfaces.
        surfaces: IOSurface.
        engine: the private framework.
        stand_in: the folder, where these are not Apple's.
    """

    objc: str
    foundation: str
    core: str
    surfaces: str
    engine: str
    stand_in: str | None = None


MACOS = Libraries(
    objc="/usr/lib/libobjc.A.dylib",
    foundation=f"{FRAMEWORKS}/Foundation.framework/Foundation",
    core=f"{FRAMEWORKS}/CoreFoundation.framework/CoreFoundation",
    surfaces=f"{FRAMEWORKS}/IOSurface.framework/IOSurface",
    engine="/System/Library/PrivateFrameworks/AppleNeuralEngine.framework/AppleNeuralEngine",
)


def libraries() -> Libraries:
    """Those of this machine.

    Raises:
        BackendError: it has none.
    """
    folder = os.environ.get(VARIABLE)
    if folder:
        objc = f"{folder}/libobjc.so"
        surfaces, engine = f"{folder}/IOSurface.so", f"{folder}/AppleNeuralEngine.so"
        return Libraries(objc, objc, objc, surfaces, engine, stand_in=folder)
    if sys.platform == "darwin":
        return MACOS
    hint = (
        "take --device emulator, which keeps its limits and computes as it does, or cpu; "
        f"{PAGE} says what a Mac needs, and what to run there"
    )
    raise BackendError("device ane", "there is no Neural Engine", got=sys.platform, hint=hint)
