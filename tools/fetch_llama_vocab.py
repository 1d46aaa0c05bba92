"""Fetch Llama 2's vocabulary, and a few others, for the tokenizer tests.

Use: python tools/fetch_llama_vocab.py [FOLDER]

The vocabularies are Meta's and others' and may not be shipped here, but llama.cpp's own tests carry
them, and those travel inside a source distribution. This takes them out of it, with the ids that
llama.cpp expects (`.inp`, `.out`), and keeps them in FOLDER, else in $ORION_LLAMA_VOCAB, else in
.cache/llama-vocab. The archive has 77 MB, what is kept 18 MB.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

PACKAGE, VERSION = "llama-cpp-python", "0.3.36"
ARCHIVE_SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
MODELS = PurePosixPath("vendor/llama.cpp/models")
VOCABULARIES = ("llama-spm", "gpt-2", "llama-bpe", "qwen2", "starcoder", "phi-3")
NAMES = {f"ggml-vocab-{name}.gguf{end}" for name in VOCABULARIES for end in ("", ".inp", ".out")}
MAX_BYTES = 16 << 20  # of one file
ROOT = Path(__file__).resolve().parent.parent


def download(folder: Path) -> Path:
    """The source distribution, downloaded by pip into `folder`; nothing is built or installed."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
    # Only this package must be a source: what pip needs to read its metadata may be wheels.
    subprocess.run([*command, "--no-binary", PACKAGE, f"{PACKAGE}=={VERSION}"], check=True)
    (archive,) = folder.glob("*.tar.gz")
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != ARCHIVE_SHA256:
        sys.exit(f"{archive.name}: not the archive we know: sha256 {found}, want {ARCHIVE_SHA256}")
    return archive


def members(archive: Path) -> Iterator[tuple[str, bytes]]:
    """The wanted files by name."""
    with tarfile.open(archive) as tar:
        for member in tar:
            path = PurePosixPath(*PurePosixPath(member.name).parts[1:])
            is_wanted = path.parent == MODELS and path.name in NAMES
            if is_wanted and member.isfile() and member.size <= MAX_BYTES:
                file = tar.extractfile(member)
                if file is not None:
                    yield path.name, file.read()


def main() -> None:
    """Leave the vocabularies in the folder, unless they are there already."""
    default = os.environ.get("ORION_LLAMA_VOCAB", ROOT / ".cache" / "llama-vocab")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=Path(default))
    folder: Path = parser.parse_args().folder
    missing = {name for name in NAMES if not (folder / name).is_file()}
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            for name, data in members(download(Path(scratch))):
                (folder / name).write_bytes(data)
                missing.discard(name)
    if missing:
        sys.exit(f"the archive lacks {', '.join(sorted(missing))}")
    print(f"{folder}: {len(NAMES)} files")


if __name__ == "__main__":
    main()
