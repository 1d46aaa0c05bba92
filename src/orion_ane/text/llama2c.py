"""llama2.c's tokenizer file: pieces with scores, and ids that its programs take for granted."""

from __future__ import annotations

import struct
from math import isfinite
from pathlib import Path

from orion_ane.errors import DataError
from orion_ane.text.files import read_bytes
from orion_ane.text.spm import Kind, Piece, SpmCodec, spm_model, spm_vocabulary
from orion_ane.text.tokenizer import Tokenizer
from orion_ane.text.vocabulary import MAX_PIECE, MAX_TOKENS, Strip

UNKNOWN, BOS, EOS = 0, 1, 2
FIRST_BYTE, FIRST_PIECE = 3, 259


def from_llama2c(path: Path | str, vocab_size: int) -> Tokenizer:
    """The tokenizer of a llama2.c `tokenizer.bin`.

    Little endian: int32 longest piece, then for each id float32 score, int32 bytes, the bytes.
    The file does not say what its ids mean: 0 is unknown, 1 and 2 are BOS and EOS, 3 to 258 are
    the bytes, whether the exporter wrote `<0x41>` for them or, as older ones did, `A` (case S07).

    Args:
        path: the file.
        vocab_size: how many pieces the checkpoint beside it has; the file does not say.

    Raises:
        DataError: a file cut off, with bytes left over, or with absurd or repeated pieces.
    """
    where = str(path)
    if not FIRST_PIECE <= vocab_size <= MAX_TOKENS:
        raise DataError(
            where, "vocabulary size", got=vocab_size, want=f"{FIRST_PIECE} to {MAX_TOKENS}"
        )
    stored = _read(where, read_bytes(Path(path)), vocab_size)
    pieces = [_meant(where, token, text, score) for token, (text, score) in enumerate(stored)]
    # Spaces are plain here, and U+2581 is a character like any other.
    model = spm_model(where, pieces, dummy_prefix=True, escapes=False)
    return Tokenizer(
        spm_vocabulary(where, pieces, strip=Strip.ONE, space=" "),
        SpmCodec(where, model),
        bos_id=BOS,
        eos_ids=(EOS,),
        adds_bos=True,
        names={"bos_token": pieces[BOS].name, "eos_token": pieces[EOS].name},
    )


def _read(where: str, data: bytes, vocab_size: int) -> list[tuple[bytes, float]]:
    """The pieces as stored, with their scores."""
    head, entry = struct.Struct("<i"), struct.Struct("<fi")
    if len(data) < head.size:
        raise DataError(where, "cut off", got=f"{len(data)} bytes", want="a header")
    (longest,) = head.unpack_from(data)
    if not 0 < longest <= MAX_PIECE:
        raise DataError(where, "longest piece", got=longest, want=f"1 to {MAX_PIECE} bytes")
    found: list[tuple[bytes, float]] = []
    at = head.size
    for token in range(vocab_size):
        if at + entry.size > len(data):
            raise DataError(where, "cut off", got=f"{token} pieces", want=vocab_size)
        score, size = entry.unpack_from(data, at)
        at += entry.size
        if not 0 < size <= longest or at + size > len(data) or not isfinite(score):
            raise DataError(
                where,
                f"piece {token} is damaged",
                got=f"{size} bytes, score {score}",
                want=f"1 to {min(longest, len(data) - at)} bytes",
            )
        found.append((data[at : at + size], score))
        at += size
    if at != len(data):
        raise DataError(
            where,
            "bytes left over",
            got=len(data) - at,
            want=f"{vocab_size} pieces and no more",
            hint="the vocabulary of the checkpoint is another than the tokenizer's",
        )
    return found


def _meant(where: str, token: int, stored: bytes, score: float) -> Piece:
    """The piece that an id stands for."""
    if token == UNKNOWN:
        return Piece("<unk>", 0.0, Kind.UNKNOWN)
    if token < FIRST_BYTE:
        return Piece("<s>" if token == BOS else "</s>", 0.0, Kind.CONTROL)
    if token < FIRST_PIECE:
        byte = token - FIRST_BYTE
        name = f"<0x{byte:02X}>"
        if stored not in (name.encode(), chr(byte).encode(), bytes([byte])):
            raise DataError(where, f"id {token} is not a byte", got=stored, want=name)
        return Piece(name, 0.0, Kind.BYTE)
    try:
        return Piece(stored.decode(), score, Kind.NORMAL)
    except UnicodeDecodeError as error:
        raise DataError(where, f"piece {token} is not UTF-8", got=stored) from error
