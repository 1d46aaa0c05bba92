"""llama2.c checkpoints (.bin, version 0): seven int32, then fp32 tensors stacked over layers."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from math import prod
from pathlib import Path

import numpy as np

from orion_ane.errors import CheckpointError
from orion_ane.models.config import MAX_LAYERS, LlamaConfig
from orion_ane.models.weights.checkpoint import Checkpoint, TokenizerFiles
from orion_ane.models.weights.tensors import frozen, shapes, to_half_split
from orion_ane.types import Array

HEADER = struct.Struct("<7i")
FIELDS = ("dim", "hidden", "layers", "heads", "kv_heads", "vocab", "context")
MAGIC = 0x616B3432  # "ak42": versions 1 and 2
ORDER = ("attn_norm", "wq", "wk", "wv", "wo", "ffn_norm", "w1", "w2", "w3")
MOST = 1 << 24  # of any size in the header, so that their products stay reasonable
BOS, EOS = 1, 2


def load_llama2c(path: Path) -> Checkpoint:
    """The model in a llama2.c checkpoint; its tokenizer is the `tok*.bin` beside it.

    Raises:
        CheckpointError: not such a file, or not of the size that its header asks for.
    """
    where = str(path)
    try:
        with path.open("rb") as file:
            header = file.read(HEADER.size)
        size = path.stat().st_size
    except OSError as error:
        raise CheckpointError(where, f"cannot be read ({error.strerror})") from error
    config = _config(where, header)
    want = HEADER.size + 4 * sum(prod(shape) for _, shape in layout(config))
    if size != want:
        what = "cut short" if size < want else "longer than its header says"
        raise CheckpointError(where, what, got=f"{size} bytes", want=want)
    numbers = np.asarray(np.memmap(path, "<f4", "r", offset=HEADER.size))
    return Checkpoint(
        config=config,
        tensors=_tensors(config, numbers),
        tokenizer=_tokenizer(path, config.vocab),
        stored="fp32",
        origin=where,
    )


def _config(where: str, header: bytes) -> LlamaConfig:
    """The header's sizes; a negative vocabulary says that the head is not the embedding."""
    if len(header) < HEADER.size:
        got = f"{len(header)} bytes"
        raise CheckpointError(where, "cut short within the header", got=got, want=HEADER.size)
    if header[:4] == MAGIC.to_bytes(4, "little"):
        raise CheckpointError(
            where,
            "a newer llama2.c export",
            got=f"version {int.from_bytes(header[4:8], 'little')}",
            want="version 0 (fp32, no magic number)",
            hint="export it with --version 0, or as a Hugging Face folder",
        )
    sizes = dict(zip(FIELDS, HEADER.unpack(header), strict=True))
    vocab = sizes.pop("vocab")
    heads, kv_heads, dim = sizes["heads"], sizes["kv_heads"], sizes["dim"]
    good = (
        all(1 <= size <= MOST for size in (*sizes.values(), abs(vocab)))
        and sizes["layers"] <= MAX_LAYERS
        and dim % heads == 0
        and heads % kv_heads == 0
        and dim // heads % 2 == 0
    )
    if not good:
        raise CheckpointError(
            where,
            "not the header of a llama2.c checkpoint",
            got=", ".join(f"{name} {size}" for name, size in {**sizes, "vocab": vocab}.items()),
        )
    # run.c ends a story at the next BOS; the vocabulary has an EOS too, which training never used.
    return LlamaConfig(
        **sizes,
        vocab=abs(vocab),
        head_dim=dim // heads,
        tied=vocab > 0,
        norm_eps=1e-5,
        bos_id=BOS,
        eos_ids=(EOS, BOS),
    )


def layout(config: LlamaConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The file's tensors in their order, by canonical name, those of layers stacked.

    Two rotary tables [T, D/2], which run.c skips too, are called "".
    """
    shape = shapes(config)
    yield "embed", shape["embed"]
    for name in ORDER:
        yield name, (config.layers, *shape[f"layers.0.{name}"])
    yield "norm", shape["norm"]
    yield "", (2, config.context, config.head_dim // 2)
    if not config.tied:
        yield "head", shape["head"]


def _tensors(config: LlamaConfig, numbers: Array) -> dict[str, Array]:
    """Views of the file, but for query and key rows, which are put in half-split order (R01)."""
    found: dict[str, Array] = {}
    turned = {"wq": config.heads, "wk": config.kv_heads}
    at = 0
    for name, shape in layout(config):
        array = numbers[at : at + prod(shape)].reshape(shape)
        at += array.size
        if name in ORDER:
            for i, one in enumerate(array):
                layer = to_half_split(one, turned[name]) if name in turned else one
                found[f"layers.{i}.{name}"] = frozen(layer)
        elif name:
            found[name] = frozen(array)
    return found


def _tokenizer(path: Path, vocab: int) -> TokenizerFiles | None:
    """The one tokenizer beside the checkpoint that has as many pieces; None where there is none."""
    beside = sorted(file for file in path.parent.glob("tok*.bin") if file != path)
    pieces = {file: count_pieces(file) for file in beside}
    fitting = [file for file, count in pieces.items() if count == vocab]
    if len(fitting) > 1:
        names = ", ".join(file.name for file in fitting)
        raise CheckpointError(str(path), "several tokenizers fit", got=names, hint="keep one")
    if beside and not fitting:
        got = ", ".join(f"{file.name} of {count or 'no'} pieces" for file, count in pieces.items())
        raise CheckpointError(str(path), "no tokenizer beside it fits", got=got, want=vocab)
    return TokenizerFiles("llama2c", {file.name: file for file in fitting}) if fitting else None


def count_pieces(path: Path) -> int | None:
    """The number of pieces in a llama2.c tokenizer; None where the file is not one.

    The format: int32 longest piece; then per piece float32 score, int32 length, bytes.
    """
    data = path.read_bytes()
    at, count = 4, 0
    while at + 8 <= len(data):
        length = int.from_bytes(data[at + 4 : at + 8], "little", signed=True)
        if not 0 <= length <= len(data) - at - 8:
            return None
        at, count = at + 8 + length, count + 1
    return count if at == len(data) and count else None
