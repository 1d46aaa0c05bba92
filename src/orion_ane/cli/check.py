"""orion check: everything in programs that breaks a target's limits."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from orion_ane.ane.check import check as check_program
from orion_ane.ane.targets import target
from orion_ane.artefacts.source import sources, told_of
from orion_ane.cli.common import counted, say, show

EXAMPLE = """Example:

  orion check compiled/ --target m1 --json
"""


@click.command(epilog=EXAMPLE)
@click.argument("path", type=click.Path(exists=True, path_type=Path), metavar="FILE|FOLDER")
@click.option(
    "--target",
    "name",
    metavar="NAME|FILE",
    default="strict",
    show_default=True,
    help="Whose limits: paper, strict, m1 to m5, or a target file.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show an error's trace.")
def check(*, path: Path, name: str, as_json: bool) -> int:
    """Check programs against a target's limits.

    FILE is a MIL text; of a compiled FOLDER every program is checked.  Each line names a place and
    the limit that is broken there, which orion rules explains.  The exit status is 1 where any is.
    """
    chosen = target(name)
    found = []
    count = 0
    for file, program in sources(path):
        count += 1
        with told_of(file):
            found += [(file, diagnostic) for diagnostic in check_program(program, chosen)]
    if as_json:
        violations = [{"file": str(file), **asdict(diagnostic)} for file, diagnostic in found]
        show(json.dumps({"target": chosen.name, "violations": violations}, indent=2))
    else:
        for file, diagnostic in found:
            show(f"{file}:{diagnostic}")
    broken = counted(len(found), "violation")
    say(f"{counted(count, 'program')}, {broken} of {chosen.name}")
    return 1 if found else 0
