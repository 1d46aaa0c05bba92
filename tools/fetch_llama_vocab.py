"""Fetch Llama 2's vocabulary for the tokenizer tests.

Use: python tools/fetch_llama_vocab.py [FOLDER]

The vocabulary is Meta's and may not be shipped here, but llama.cpp's own test files carry it, and
those travel inside a source distribution. This takes that one file out of it, checks its hash and
keeps it in FOLDER (else $ORION_LLAMA_VOCAB, else .cache/llama-vocab). The archive is about 70 MB.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

REQUIREMENT = "llama-cpp-python==0.3.36"
NAME = "ggml-vocab-llama-spm.gguf"
MEMBER = f"vendor/llama.cpp/models/{NAME}"
SHA256 = "16c3724582d59aa8bf84711894e833f916ee46a31d80e21312759c48bf8d0e69"
MAX_BYTES = 16 << 20
ROOT = Path(__file__).resolve().parent.parent


def download(folder: Path) -> Path:
    """The source distribution, downloaded by pip into `folder`, nothing built or installed."""
    package = REQUIREMENT.partition("==")[0]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
    # Only this package must be a source; what pip needs to read its metadata may be wheels.
    subprocess.run([*command, "--no-binary", package, REQUIREMENT], check=True)
    (archive,) = folder.glob("*.tar.gz")
    return archive


def extract(archive: Path) -> bytes:
    """The vocabulary's bytes."""
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.name.partition("/")[2] == MEMBER and member.isfile():
                if member.size > MAX_BYTES:
                    sys.exit(f"{archive.name}: {MEMBER} has {member.size} bytes")
                file = tar.extractfile(member)
                assert file is not None
                return file.read()
    sys.exit(f"{archive.name}: no member {MEMBER}")


def main() -> None:
    """Leave the vocabulary in the folder, unless it is there already."""
    default = os.environ.get("ORION_LLAMA_VOCAB", ROOT / ".cache" / "llama-vocab")
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path(default))
    target = parser.parse_args().folder / NAME
    if target.is_file() and hashlib.sha256(target.read_bytes()).hexdigest() == SHA256:
        print(f"{target}: already there")
        return
    with tempfile.TemporaryDirectory() as scratch:
        data = extract(download(Path(scratch)))
    found = hashlib.sha256(data).hexdigest()
    if found != SHA256:
        sys.exit(f"{NAME}: not the file the tests know: got sha256 {found}, want {SHA256}")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    print(f"{target}: {len(data)} bytes")


if __name__ == "__main__":
    main()
