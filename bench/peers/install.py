"""What peers need beside this project: an environment of its own for each, made once and kept.

    python bench/peers/install.py llamacpp onnxruntime

Those of PyPI's sources are built here, for this processor: llama.cpp takes some ten to thirty
minutes.  The environments lie in the user's cache, `orion-ane/peers`; delete one to have it made
anew.  A peer whose packages stand beside the project already uses those.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import venv
from pathlib import Path

SMALL = " ".join(
    f"-DLLAMA_{what}=OFF"
    for what in ("BUILD_TESTS", "BUILD_EXAMPLES", "BUILD_TOOLS", "BUILD_SERVER", "CURL", "OPENSSL")
)
"""The parts of llama.cpp that no peer needs; its products are built as it builds them."""
PACKAGES = {
    "llamacpp": ("llama-cpp-python", "gguf"),
    "onnxruntime": ("onnxruntime", "onnx"),
    "torch": ("torch", "transformers"),
}
MADE = "made"
"""A file that stands in an environment which was made to the end."""


def folder(name: str) -> Path:
    """Where the environment of a peer lies, whether there is one or not."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "orion-ane" / "peers" / name


def interpreter(name: str) -> Path | None:
    """Its Python, where the environment was made."""
    if not (folder(name) / MADE).is_file():
        return None
    return folder(name) / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def install(name: str, *, jobs: int) -> Path:
    """Make an environment, unless there is one; gives its Python."""
    if (found := interpreter(name)) is not None:
        return found
    venv.create(folder(name), with_pip=True, clear=True)
    python = folder(name) / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    flags = f"{os.environ.get('CMAKE_ARGS', '')} {SMALL} -DLLAVA_BUILD=OFF"
    settings = os.environ | {"CMAKE_ARGS": flags, "CMAKE_BUILD_PARALLEL_LEVEL": str(jobs)}
    command = [str(python), "-m", "pip", "install", *PACKAGES[name]]
    subprocess.run(command, check=True, env=settings)  # noqa: S603 - the list above
    (folder(name) / MADE).touch()
    return python


def main() -> None:
    """Make those that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peers", nargs="+", choices=sorted(PACKAGES))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compilers at once")
    chosen = parser.parse_args()
    for name in chosen.peers:
        print(install(name, jobs=chosen.jobs), file=sys.stderr)


if __name__ == "__main__":
    main()
