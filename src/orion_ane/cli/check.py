"""orion check: everything in programs that breaks a target's limits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path, PurePosixPath

import click

from orion_ane.ane.check import check as check_program
from orion_ane.ane.targets import target
from orion_ane.cli.common import say, show
from orion_ane.errors import MilError
from orion_ane.mil import Program
from orion_ane.mil.lex import MAX_TEXT
from orion_ane.mil.parse import parse
from orion_ane.ops.leaf import Weight

EXAMPLE = """Example:

  orion check compiled/ --target m1 --json
"""
ROOT = "@model_path"


@click.command(epilog=EXAMPLE)
@click.argument("path", type=click.Path(exists=True, path_type=Path), metavar="FILE|FOLDER")
@click.option("--target", "name", metavar="NAME|FILE", default="strict", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show an error's trace.")
def check(*, path: Path, name: str, as_json: bool) -> int:
    """Check a MIL text, or every program of a compiled folder, against a target's limits."""
    chosen = target(name)
    found = []
    count = 0
    for file, program in _programs(path):
        count += 1
        found += [(file, diagnostic) for diagnostic in check_program(program, chosen)]
    if as_json:
        violations = [{"file": str(file), **asdict(diagnostic)} for file, diagnostic in found]
        show(json.dumps({"target": chosen.name, "violations": violations}, indent=2))
    else:
        for file, diagnostic in found:
            show(f"{file}:{diagnostic}")
    say(f"{count} programs, {len(found)} violations of {chosen.name}")
    return 1 if found else 0


def _programs(path: Path) -> Iterator[tuple[Path, Program | str]]:
    """The text of a file; or each `model.mil` at or below a folder, with its blob files."""
    if path.is_file():
        yield path, _text(path)
        return
    files = sorted(path.rglob("model.mil"))
    if not files:
        raise MilError(str(path), "holds no program", want="a model.mil in it or below")
    for file in files:
        text = _text(file)
        yield file, Program(text, _weights(file.parent, text), (), ())


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise MilError(str(path), "cannot be read", got=error.strerror) from error
    if len(data) > MAX_TEXT:
        raise MilError(str(path), "text too long", got=len(data), want=f"at most {MAX_TEXT}")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise MilError(str(path), "not UTF-8", got=f"byte {error.start}") from error


def _weights(folder: Path, text: str) -> dict[str, bytes]:
    """The blob files that a text names, as far as they are there and inside the folder."""
    found: dict[str, bytes] = {}
    for function in parse(text, tolerant=True).functions.values():
        leaves = (node.op for s in function.statements for node in s.nodes)
        for path in {op.at.path for op in leaves if isinstance(op, Weight) and op.at}:
            inner = PurePosixPath(path)
            if inner.parts[0] != ROOT or ".." in inner.parts:
                raise MilError(path, "not a path in the program", want=f"{ROOT}/…")
            file = folder.joinpath(*inner.parts[1:])
            if file.is_file() and path not in found:
                found[path] = file.read_bytes()
    return found
