"""orion diff: where two programs part."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

import click

from orion_ane.artefacts.diff import Difference
from orion_ane.artefacts.diff import diff as diff_programs
from orion_ane.artefacts.side import sides_of
from orion_ane.artefacts.source import sources, told_of
from orion_ane.cli.common import say, show
from orion_ane.errors import MilError
from orion_ane.mil.program import Program

Sided: TypeAlias = tuple[Path, Program | str]
"""A program or a text, and the file that it was read from."""

EXAMPLE = """Example:

  orion diff before.mil after.mil
"""


@click.command(epilog=EXAMPLE)
@click.argument("a", type=click.Path(exists=True, path_type=Path), metavar="A")
@click.argument("b", type=click.Path(exists=True, path_type=Path), metavar="B")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show an error's trace.")
def diff(*, a: Path, b: Path, as_json: bool) -> int:
    """Say where two programs differ.

    A and B are MIL texts or compiled folders, compared by what they compute: names, the
    order of independent statements, the dialect and the spelling of constants are no difference.
    Between compiled folders the contents of weights count too.  The exit status is 1 where there
    is a difference.
    """
    found = list(_differences(a, b))
    if as_json:
        show(json.dumps({"equal": not found, "differences": found}, indent=2, ensure_ascii=False))
    else:
        for difference in found:
            show(_told(difference))
    say(f"{len(found)} difference{'s' * (len(found) != 1)}" if found else "the same")
    return 1 if found else 0


def _differences(a: Path, b: Path) -> Iterator[dict[str, Any]]:
    """Each difference as JSON has it, with the files that it lies in."""
    ours, theirs = dict(_named(a)), dict(_named(b))
    alone = len(ours) == len(theirs) == 1
    if alone:
        theirs = dict(zip(ours, theirs.values(), strict=True))
    for name in dict.fromkeys([*ours, *theirs]):
        if name in ours and name in theirs:
            file_a, file_b = ours[name][0], theirs[name][0]
            for difference in _compared(ours[name], theirs[name]):
                record = asdict(difference)
                record["a"]["file"], record["b"]["file"] = str(file_a), str(file_b)
                yield {"program": None if alone else name, **record}
        else:
            what = f"only in the {'first' if name in ours else 'second'}"
            yield {"program": name, "where": "program", "what": what, "a": None, "b": None}


def _compared(a: Sided, b: Sided) -> tuple[Difference, ...]:
    """Where two programs part.

    Raises:
        MilError: one cannot be read; its file is named.
    """
    try:
        return diff_programs(a[1], b[1])
    except MilError:
        for file, program in (a, b):
            with told_of(file):
                for side in sides_of(program).values():
                    side.read_weights()
        raise


def _named(path: Path) -> Iterator[tuple[str, Sided]]:
    """The programs of a place by name: that of their folder in it."""
    for file, program in sources(path):
        yield str(file.parent.relative_to(path)) if path.is_dir() else "main", (file, program)


def _told(difference: dict[str, Any]) -> str:
    name = difference["program"]
    head = f"{f'{name}: ' if name else ''}{difference['where']}: {difference['what']}"
    if difference["a"] is None:
        return head
    return f"{head}\n  {_spot(difference['a'])}\n  {_spot(difference['b'])}"


def _spot(spot: dict[str, Any]) -> str:
    place = "" if spot["line"] is None else f":{spot['line']}:{spot['column']}"
    return f"{spot['file']}{place}: {spot['text']}"
