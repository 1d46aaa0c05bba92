"""Text, jsonl and token files as stretches of ids, each id with whether it is to be learnt.

What becomes of a document: its BOS in front where the model's prompts have one, and its end token
behind where the tokenizer has one.  Empty documents and blank lines are passed over.

- text: UTF-8; a line `<|endoftext|>` ends a document.
- `.jsonl`: an object a line, with `text`; with `prompt` and `completion`, of which the prompt is
  read but not learnt; or with `messages`, of which the assistant's are learnt.
- `.bin`, `.u16`, `.u32`: ids without any header, uint16 or uint32, memory-mapped, as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from orion_ane.errors import DataError
from orion_ane.text import Message, Tokenizer
from orion_ane.types import Array

END_LINE = "<|endoftext|>"
TOKEN_FILES = {".bin": None, ".u16": np.dtype("<u2"), ".u32": np.dtype("<u4")}
CHECKED = 1 << 22
FORMS = (("text",), ("completion", "prompt"), ("messages",))


@dataclass(frozen=True, eq=False)
class Tokens:
    """A stretch of ids that windows are cut from.

    Attributes:
        origin: the file, or the first of several.
        ids: uint16 or uint32; memory-mapped where they come from a token file.
        learnt: whether each is to be predicted; None where all are.
    """

    origin: str
    ids: Array
    learnt: Array | None = None


@dataclass(frozen=True)
class Document:
    """A text's ids, and how many stretches of them are learnt, as (start, stop)."""

    ids: list[int]
    learnt: tuple[tuple[int, int], ...]


def read_tokens(files: Sequence[Path], tokenizer: Tokenizer | None, vocab: int) -> list[Tokens]:
    """The ids of some files: all texts as one stretch, each token file as its own.

    Args:
        files: by their suffix, as the module says; any other suffix is text.
        tokenizer: for text; token files need none.
        vocab: the model's; ids reach from 0 to below it.

    Raises:
        DataError: a file cannot be read, or a row of it: named by file and line, or place.
    """
    if not files:
        raise DataError("data", "no files")
    texts = [file for file in files if file.suffix not in TOKEN_FILES]
    found = [_mapped(file, vocab) for file in files if file.suffix in TOKEN_FILES]
    if texts:
        found.insert(0, _encoded(texts, tokenizer, vocab))
    return found


def _mapped(file: Path, vocab: int) -> Tokens:
    """A token file, every id of which is the model's."""
    dtype = TOKEN_FILES[file.suffix] or np.dtype("<u2" if vocab <= 1 << 16 else "<u4")
    try:
        size = file.stat().st_size
        if size == 0 or size % dtype.itemsize:
            want = f"a multiple of {dtype.itemsize}, above 0, for {dtype.name}"
            raise DataError(str(file), "not whole ids", got=f"{size} bytes", want=want)
        ids = np.asarray(np.memmap(file, dtype, "r"))
    except OSError as error:
        raise DataError(str(file), f"cannot be read ({error.strerror})") from error
    for at in range(0, len(ids), CHECKED):
        part = ids[at : at + CHECKED]
        if part.max() >= vocab:
            bad = int(np.argmax(part >= vocab))
            hint = "it may hold uint32: name it .u32" if dtype.itemsize == 2 else None
            raise DataError(
                f"{file}, token {at + bad}",
                "no such id",
                got=int(part[bad]),
                want=f"0 to {vocab - 1}",
                hint=hint,
            )
    return Tokens(str(file), ids)


def _encoded(files: Sequence[Path], tokenizer: Tokenizer | None, vocab: int) -> Tokens:
    """Texts as one stretch of ids."""
    where = str(files[0])
    if tokenizer is None:
        hint = "give token files, or a model with a tokenizer"
        raise DataError(where, "text, and the model has no tokenizer", hint=hint)
    ids: list[Array] = []
    learnt: list[Array] = []
    for file in files:
        read = _rows if file.suffix == ".jsonl" else _documents
        for document in read(file, tokenizer):
            ids.append(np.array(document.ids, np.uint32))
            flags = np.zeros(len(document.ids), np.bool_)
            for start, stop in document.learnt:
                flags[start:stop] = True
            learnt.append(flags)
    if not ids:
        raise DataError(where, "nothing to learn", got="no text", want="at least a document")
    every, flags = np.concatenate(ids), np.concatenate(learnt)
    if every.max() >= vocab:
        got = f"id {every.max()} of the tokenizer"
        raise DataError(where, "not the model's tokenizer", got=got, want=f"below {vocab}")
    if not flags.any():
        raise DataError(where, "nothing to learn", got="prompts alone", want="completions")
    small = every.astype(np.uint16) if vocab <= 1 << 16 else every
    return Tokens(where, small, None if flags.all() else flags)


def _text(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{file}, byte {error.start}", f"not UTF-8 ({error.reason})", hint="convert the file"
        ) from error
    except OSError as error:
        raise DataError(str(file), f"cannot be read ({error.strerror})") from error


def _documents(file: Path, tokenizer: Tokenizer) -> Iterator[Document]:
    lines: list[str] = []
    for line in (*_text(file).splitlines(keepends=True), END_LINE):
        if line.strip() != END_LINE:
            lines.append(line)
            continue
        if text := "".join(lines).strip("\r\n"):
            yield _whole(text, tokenizer)
        lines = []


def _whole(text: str, tokenizer: Tokenizer) -> Document:
    """A document that is learnt from end to end."""
    ids = [*tokenizer.prompt_ids(text), *tokenizer.eos_ids[:1]]
    return Document(ids, ((0, len(ids)),))


def _rows(file: Path, tokenizer: Tokenizer) -> Iterator[Document]:
    for number, line in enumerate(_text(file).split("\n"), 1):
        if not line.strip():
            continue
        where = f"{file}:{number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(where, f"not JSON ({error})") from error
        try:
            document = _row(where, row, tokenizer)
        except DataError as error:
            if error.where == where:
                raise
            raise DataError(where, str(error)) from error
        if document is not None:
            yield document


def _row(where: str, row: object, tokenizer: Tokenizer) -> Document | None:
    """What a row becomes; None where it is empty."""
    known = {name for form in FORMS for name in form}
    form = tuple(sorted(set(row) & known)) if isinstance(row, dict) else ()
    if not isinstance(row, dict) or form not in FORMS:
        got = list(row) if isinstance(row, dict) else type(row).__name__
        want = "text, prompt and completion, or messages"
        raise DataError(where, "no such row", got=got, want=want)
    if form == ("messages",):
        return _chat(where, row["messages"], tokenizer)
    for name in form:
        if not isinstance(row[name], str):
            raise DataError(where, f"{name} is no text", got=type(row[name]).__name__)
    if form == ("text",):
        return _whole(row["text"], tokenizer) if row["text"].strip() else None
    return _answered(row["prompt"], row["completion"], tokenizer)


def _answered(prompt: str, completion: str, tokenizer: Tokenizer) -> Document | None:
    """A prompt that is read and a completion that is learnt.

    Both are encoded as the one text they are; what the prompt alone would not have given is learnt.
    """
    if not completion:
        return None
    ids = tokenizer.prompt_ids(prompt + completion)
    read = tokenizer.prompt_ids(prompt) if prompt else ids[: tokenizer.adds_bos]
    pairs = zip(ids, read, strict=False)
    start = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(ids), len(read)))
    ids = [*ids, *tokenizer.eos_ids[:1]]
    return Document(ids, ((start, len(ids)),))


def _chat(where: str, messages: Any, tokenizer: Tokenizer) -> Document | None:
    """A conversation, of which the assistant's turns are learnt."""
    if not isinstance(messages, list) or not all(_is_message(m) for m in messages):
        want = "objects with role and content, both texts"
        raise DataError(where, "messages are no conversation", want=want)
    if not messages:
        return None
    turns: list[Message] = messages
    whole = tokenizer.chat(turns, generation_prompt=False)
    learnt = []
    for i, message in enumerate(turns):
        if message["role"] != "assistant":
            continue
        before = tokenizer.chat(turns[:i], generation_prompt=True)
        after = tokenizer.chat(turns[: i + 1], generation_prompt=False)
        if whole[: len(after)] != after or after[: len(before)] != before:
            hint = "give such rows as prompt and completion"
            raise DataError(where, "the chat template rewrites earlier turns", hint=hint)
        learnt.append((len(before), len(after)))
    return Document(whole, tuple(learnt))


def _is_message(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    return all(isinstance(value.get(name), str) for name in ("role", "content"))
