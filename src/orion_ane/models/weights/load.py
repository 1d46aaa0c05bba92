"""Any checkpoint by what it is: a Hugging Face folder, a GGUF file, a llama2.c file."""

from __future__ import annotations

from pathlib import Path

from orion_ane.errors import CheckpointError
from orion_ane.models.weights.checkpoint import Checkpoint
from orion_ane.models.weights.fields import listed
from orion_ane.models.weights.hf import INDEX, PICKLES, WEIGHTS, load_hf
from orion_ane.models.weights.llama2c import load_llama2c

GGUF_START = b"GGUF"
PICKLE_STARTS = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")


def load_checkpoint(path: str | Path) -> Checkpoint:
    """The model in a folder or file, nothing missing and nothing left over.

    A folder is Hugging Face's, or holds one GGUF or llama2.c file.

    Raises:
        CheckpointError: files or tensors are missing, damaged, left over or of another shape.
        ConfigError: the model asks for something that cannot be honoured.
    """
    where = Path(path).expanduser()
    if where.is_dir():
        return _load_folder(where)
    if not where.is_file():
        raise CheckpointError(str(where), "no such file or folder")
    return _load_file(where)


def _load_folder(folder: Path) -> Checkpoint:
    if not any((folder / name).exists() for name in ("config.json", WEIGHTS, INDEX, *PICKLES)):
        files = single_files(folder)
        if len(files) > 1:
            names = listed([file.name for file in files])
            raise CheckpointError(str(folder), "several models", got=names, hint="name the file")
        if files:
            return _load_file(files[0])
    return load_hf(folder)


def single_files(folder: Path) -> list[Path]:
    """The GGUF and llama2.c files of a folder; a `tok*.bin` is a tokenizer."""
    bins = [file for file in folder.glob("*.bin") if not file.name.startswith("tok")]
    return sorted(file for file in (*folder.glob("*.gguf"), *bins) if file.is_file())


def _load_file(file: Path) -> Checkpoint:
    try:
        with file.open("rb") as opened:
            start = opened.read(4)
    except OSError as error:
        raise CheckpointError(str(file), f"cannot be read ({error.strerror})") from error
    if start == GGUF_START or file.suffix == ".gguf":
        from orion_ane.models.weights.gguf import load_gguf  # its package takes 5 MB

        return load_gguf(file)
    if start.startswith(PICKLE_STARTS):
        raise CheckpointError(
            str(file),
            "a pickle, which can run any code when it is opened",
            hint="load it where it is trusted and save it with safe_serialization=True",
        )
    if file.suffix == ".bin":
        return load_llama2c(file)
    raise CheckpointError(
        str(file),
        "not a checkpoint we read",
        want="a folder with config.json and safetensors, a .gguf file, or a llama2.c .bin",
        hint="give the folder that holds it" if file.suffix == ".safetensors" else None,
    )
