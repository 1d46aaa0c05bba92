"""GPT-2's own tokenizer files: vocab.json with merges.txt, or merges.txt alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orion_ane.errors import DataError
from orion_ane.text.bpe import byte_level_bpe
from orion_ane.text.files import read_json, read_text
from orion_ane.text.tokenizer import Tokenizer
from orion_ane.text.vocabulary import (
    BYTE_ALPHABET,
    GPT2_BYTE_ORDER,
    MAX_TOKENS,
    check_names,
    index,
    place,
)

END_OF_TEXT = "<|endoftext|>"


def from_gpt2_files(vocab: Path | str, merges: Path | str) -> Tokenizer:
    """The tokenizer of `vocab.json` and `merges.txt`.

    A token that is no byte and that no merge makes cannot come from text: it is a control token.

    Raises:
        DataError: files that are damaged or do not fit together.
    """
    where = str(vocab)
    ids = read_json(Path(vocab))
    for name, token in ids.items():
        if type(token) is not int:
            raise DataError(where, f"{name!r} has no id", got=repr(token), want="a number")
    check_names(where, ids)
    return _tokenizer(where, place(where, ids), read_merges(Path(merges)))


def from_gpt2_merges(path: Path | str) -> Tokenizer:
    """The tokenizer that GPT-2's `merges.txt` alone defines.

    The 256 bytes come first, then one token for each merge, then `<|endoftext|>`.

    Raises:
        DataError: a file that is damaged, or merges that make a token twice.
    """
    merges = read_merges(Path(path))
    names = [BYTE_ALPHABET[byte] for byte in GPT2_BYTE_ORDER]
    names += [left + right for left, right in merges]
    index(str(path), [*names, END_OF_TEXT])
    return _tokenizer(str(path), [*names, END_OF_TEXT], merges)


def read_merges(path: Path) -> list[tuple[str, str]]:
    """The pairs in a merges file, best first.

    Only a first line that begins with `#version` is a comment: merges may begin with `#` too.

    Raises:
        DataError: a line that is not two pieces.
    """
    lines = read_text(path).split("\n")
    first = 2 if lines[0].startswith("#version") else 1
    merges: list[tuple[str, str]] = []
    for number, line in enumerate(lines[first - 1 :], start=first):
        pieces = line.rstrip("\r").split(" ")
        if len(pieces) == 2 and all(pieces):
            merges.append((pieces[0], pieces[1]))
        elif line.strip():
            raise DataError(f"{path}:{number}", "not a merge", got=repr(line), want="two pieces")
    if not merges or len(merges) > MAX_TOKENS:
        raise DataError(str(path), "merges", got=len(merges), want=f"1 to {MAX_TOKENS}")
    return merges


def _tokenizer(
    where: str, names: Sequence[str | None], merges: Sequence[tuple[str, str]]
) -> Tokenizer:
    made = {*BYTE_ALPHABET, *(left + right for left, right in merges)}
    controls = {
        name: token for token, name in enumerate(names) if name is not None and name not in made
    }
    codec, vocabulary = byte_level_bpe(where, names, merges, controls=controls)
    end = controls.get(END_OF_TEXT)
    return Tokenizer(
        vocabulary,
        codec,
        bos_id=end,
        eos_ids=() if end is None else (end,),
        names={} if end is None else {"bos_token": END_OF_TEXT, "eos_token": END_OF_TEXT},
    )
