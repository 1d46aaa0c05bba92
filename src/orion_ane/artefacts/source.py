"""Programs as a command is given them: a text, a compiled folder, or a folder of texts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orion_ane.artefacts.folder import MANIFEST, TEXT, read_bounded, read_folder
from orion_ane.artefacts.manifest import parts_of
from orion_ane.errors import MilError
from orion_ane.mil.lex import MAX_TEXT
from orion_ane.mil.parse import parse
from orion_ane.mil.program import Program
from orion_ane.ops.leaf import Weight


def sources(path: Path) -> Iterator[tuple[Path, Program | str]]:
    """Each program with the place of its text; a file's text stands alone, without blob files.

    Raises:
        MilError: a file cannot be read, or a folder holds no program or is not what its manifest
            says.
    """
    if path.is_file():
        yield path, read_text(path)
        return
    if (path / MANIFEST).is_file():
        folder = read_folder(path)
        yield from ((folder.text_path(name), folder[name]) for name in folder)
        return
    files = sorted(path.rglob(TEXT))
    if not files:
        raise MilError(str(path), "holds no program", want=f"a {TEXT} in it or below")
    for file in files:
        yield file, read_program(file)


def read_program(path: Path) -> Program:
    """The program of a text and the blob files beside it, without the users' names of its ports.

    Raises:
        MilError: the text cannot be read, or names a file outside its folder.
    """
    text = read_text(path)
    with told_of(path):
        weights = _weights(path, text)
    return Program(text, weights, (), ())


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        MilError: it cannot be read, is too long, or not UTF-8.
    """
    try:
        return read_bounded(path, MAX_TEXT).decode()
    except OSError as error:
        raise MilError(str(path), "cannot be read", got=error.strerror) from error
    except UnicodeDecodeError as error:
        raise MilError(str(path), "not UTF-8", got=f"byte {error.start}") from error


@contextmanager
def told_of(path: Path) -> Iterator[None]:
    """What is wrong in a text, or in its blob files, is said of its file: a command reads several.

    Raises:
        MilError: as inside, with the file in front of line and column, or of the weight.
    """
    try:
        yield
    except MilError as error:
        if error.where == str(path) or error.where.startswith(f"{path}: "):
            raise
        is_text = error.where.partition(":")[0] == "mil"
        raise MilError(
            str(path) if is_text else f"{path}: {error.where}",
            error.what,
            line=error.line,
            column=error.column,
            got=error.got,
            want=error.want,
            hint=error.hint,
        ) from error


def _weights(text_path: Path, text: str) -> dict[str, bytes]:
    """The blob files that a text names, as far as they are there and inside its folder."""
    found: dict[str, bytes] = {}
    for function in parse(text, tolerant=True).functions.values():
        leaves = (node.op for s in function.statements for node in s.nodes)
        for path in {op.at.path for op in leaves if isinstance(op, Weight) and op.at}:
            file = text_path.parent.joinpath(*parts_of(str(text_path), path))
            if file.is_file() and path not in found:
                found[path] = file.read_bytes()
    return found
