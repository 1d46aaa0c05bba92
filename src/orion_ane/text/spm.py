"""SentencePiece vocabularies: read from a model file, or built from pieces and scores."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from orion_ane.errors import DataError
from orion_ane.text.codec import library_errors
from orion_ane.text.files import read_bytes
from orion_ane.text.tokenizer import Tokenizer
from orion_ane.text.vocabulary import Strip, Vocabulary, index

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

SPACE = "\u2581"  # how SentencePiece writes a space inside pieces
Prefix: TypeAlias = Literal["first", "always", "never"]


class Kind(IntEnum):
    """What a piece is; SentencePiece and GGUF use the same numbers."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class Piece(NamedTuple):
    """A piece as its vocabulary spells it."""

    name: str
    score: float
    kind: Kind


class SpmCodec:
    """A SentencePiece model.

    Args:
        where: the file, for messages.
        model: the serialised model.
        prefix: which texts get the space that the model puts before them: only the one that all
            starts with, each one after a control token as well, or none.
    """

    def __init__(self, where: str, model: bytes, prefix: Prefix = "first") -> None:
        self._where, self._model, self._prefix = where, model, prefix
        self.processor = _load(where, model)

    def encode(self, parts: Sequence[str | int]) -> list[int]:
        """The ids of the parts."""
        ids: list[int] = []
        for i, part in enumerate(parts):
            if isinstance(part, int):
                ids.append(part)
            elif self._prefix == "always" or (self._prefix == "first" and i == 0):
                ids += self.processor.encode(part)
            else:
                ids += self._without_prefix.encode(part)
        return ids

    @cached_property
    def _without_prefix(self) -> SentencePieceProcessor:
        # In protocol buffers a field that comes again replaces the earlier one.
        return _load(self._where, self._model + _normalizer(dummy_prefix=False))


def from_sentencepiece(
    path: Path | str, *, prefix: Prefix = "first", controls: Mapping[str, int] | None = None
) -> Tokenizer:
    """The tokenizer of a `tokenizer.model`; prompts start with BOS where it has one.

    Args:
        path: the file.
        prefix: as for SpmCodec; the file cannot say.
        controls: control tokens that were added after the model's own pieces.

    Raises:
        DataError: not a SentencePiece model, one that ends words with spaces, or added tokens
            that leave gaps.
    """
    where = str(path)
    model = read_bytes(Path(path))
    with library_errors(where, "not a SentencePiece model"):
        return _read(where, model, prefix, controls or {})


def _read(where: str, model: bytes, prefix: Prefix, controls: Mapping[str, int]) -> Tokenizer:
    codec = SpmCodec(where, model, prefix)
    processor = codec.processor
    letter = processor.Normalize("a")
    if letter.endswith(SPACE):
        raise DataError(where, "spaces follow their words", want="spaces that lead them")
    pieces = [_piece(processor, token) for token in range(processor.vocab_size())]
    for name, token in sorted(controls.items(), key=lambda item: item[1]):
        if token > len(pieces) or (token < len(pieces) and pieces[token].name != name):
            raise DataError(where, f"{name!r} cannot be added", got=token, want=len(pieces))
        if token == len(pieces):
            pieces.append(Piece(name, 0.0, Kind.CONTROL))
    strip = Strip.ALL if processor.Normalize("  a") == letter else Strip.NONE
    if strip is Strip.NONE and letter.startswith(SPACE) and prefix != "never":
        strip = Strip.ONE
    roles = {"bos": processor.bos_id(), "eos": processor.eos_id(), "pad": processor.pad_id()}
    ids = {role: token for role, token in roles.items() if token >= 0}
    names = {f"{role}_token": pieces[token].name for role, token in ids.items()}
    return Tokenizer(
        spm_vocabulary(where, pieces, strip=strip),
        codec,
        bos_id=ids.get("bos"),
        eos_ids=(ids["eos"],) if "eos" in ids else (),
        adds_bos="bos" in ids,
        names=names,
    )


def _piece(processor: SentencePieceProcessor, token: int) -> Piece:
    kind = Kind.NORMAL
    if processor.is_unknown(token):
        kind = Kind.UNKNOWN
    elif processor.is_control(token):
        kind = Kind.CONTROL
    elif processor.is_byte(token):
        kind = Kind.BYTE
    return Piece(processor.id_to_piece(token), processor.get_score(token), kind)


def spm_vocabulary(
    where: str, pieces: Sequence[Piece], *, strip: Strip, space: str = SPACE
) -> Vocabulary:
    """What each piece prints: spaces for `space`, and the byte that a byte piece names.

    Raises:
        DataError: a byte piece of another form than `<0x0A>`.
    """
    hidden = (Kind.UNKNOWN, Kind.CONTROL)
    printed = tuple(
        _byte(where, piece.name)
        if piece.kind is Kind.BYTE
        else (piece.name if piece.kind in hidden else piece.name.replace(space, " ")).encode()
        for piece in pieces
    )
    controls = {piece.name: i for i, piece in enumerate(pieces) if piece.kind in hidden}
    bare = frozenset(i for i, piece in enumerate(pieces) if piece.kind is Kind.BYTE)
    return Vocabulary(printed, controls, strip=strip, bare=bare)


def _byte(where: str, name: str) -> bytes:
    match = re.fullmatch(r"<0x([0-9A-F]{2})>", name)
    if match is None:
        raise DataError(where, "not a byte piece", got=repr(name), want="<0x00> to <0xFF>")
    return bytes([int(match[1], 16)])


def spm_model(
    where: str, pieces: Sequence[Piece], *, dummy_prefix: bool, escapes: bool = True
) -> bytes:
    """A SentencePiece BPE model in its own format (`sentencepiece_model.proto`).

    Args:
        where: the file, for messages.
        pieces: by id.
        dummy_prefix: whether a space is put before the text.
        escapes: whether spaces are written U+2581 in pieces.

    Raises:
        DataError: a piece that is there twice or empty, or some bytes but not all.
    """
    index(where, [piece.name for piece in pieces])
    bad = next((piece for piece in pieces if not isfinite(piece.score)), None)
    if bad is not None:
        raise DataError(where, f"{bad.name!r} has no score", got=bad.score, want="a number")
    n_bytes = sum(piece.kind is Kind.BYTE for piece in pieces)
    if n_bytes not in (0, 256):
        raise DataError(where, "byte pieces", got=n_bytes, want="none or all 256")
    unigram_or_bpe, bpe, byte_fallback = 3, 2, 35
    trainer = _field(unigram_or_bpe, bpe) + _field(byte_fallback, int(n_bytes > 0))
    spec = _normalizer(dummy_prefix=dummy_prefix, trims=False, escapes=escapes)
    return b"".join(map(_serialised, pieces)) + _field(2, trainer) + spec


def _serialised(piece: Piece) -> bytes:
    score_and_kind = _SCORE_AND_KIND.pack(2 << 3 | 5, piece.score, 3 << 3, piece.kind)
    return _field(1, _field(1, piece.name.encode()) + score_and_kind)


def _normalizer(
    *, dummy_prefix: bool, trims: bool | None = None, escapes: bool | None = None
) -> bytes:
    """A `NormalizerSpec`; what is None is not set."""
    flags = {3: dummy_prefix, 4: trims, 5: escapes}
    set_flags = [_field(number, int(flag)) for number, flag in flags.items() if flag is not None]
    return _field(3, b"".join(set_flags))


_SCORE_AND_KIND = struct.Struct("<BfBB")  # fields 2, a float32, and 3, a small integer


def _field(number: int, value: int | bytes) -> bytes:
    """A field in the wire format of protocol buffers: an integer or bytes."""
    if isinstance(value, bytes):
        return _varint(number << 3 | 2) + _varint(len(value)) + value
    return _varint(number << 3) + _varint(value)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _load(where: str, model: bytes) -> SentencePieceProcessor:
    from sentencepiece import SentencePieceProcessor  # where a model needs it

    processor = SentencePieceProcessor()
    with library_errors(where, "not a SentencePiece model"):
        processor.LoadFromSerializedProto(model)
    return processor
