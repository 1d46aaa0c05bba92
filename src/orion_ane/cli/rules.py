"""orion rules: what is claimed about the device, by whom, and what keeps it."""

from __future__ import annotations

import json
import re
from difflib import get_close_matches
from typing import Any

import click

from orion_ane.ane.limits import LIMIT_BY_CODE, LIMITS, SOURCES, Limit, State, key_of
from orion_ane.ane.targets import TARGETS, target
from orion_ane.cli.common import show
from orion_ane.errors import ConfigError

EXAMPLE = """Example:

  orion rules ANE004
"""


@click.command(epilog=EXAMPLE)
@click.argument("code", required=False)
@click.option(
    "--target",
    "name",
    metavar="NAME|FILE",
    help="Only those of paper, strict, m1 to m5, or a target file.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show an error's trace.")
def rules(*, code: str | None, name: str | None, as_json: bool) -> int:
    """List the device's limits, or explain one.

    A line has the limit's CODE, what happens where it is broken, how good the claim is, and what
    it asks for.  With a CODE: its sources, who contradicts it, and the targets that hold it.
    """
    rows = LIMITS if name is None else target(name).rows
    if code is not None:
        found = LIMIT_BY_CODE.get(code.upper())
        if found is None:
            hint = f"{_meant(code)}orion rules lists them"
            raise ConfigError("rules", "no such limit", got=code, hint=hint)
        if found not in rows:
            raise ConfigError("rules", f"{found.code} does not hold on the target", got=name)
        rows = (found,)
    if as_json:
        records = [_record(row) for row in rows]
        listed = {"target": None if name is None else target(name).name, "rules": records}
        show(json.dumps(records[0] if code is not None else listed, indent=2))
    elif code is not None:
        show(_explained(rows[0]))
    else:
        for row in rows:
            show(f"{row.code}  {row.symptom.value:12}  {row.state.value:8}  {row.title}")
    return 0


def _meant(code: str) -> str:
    """The codes that one is near to: of its number, or spelled alike."""
    digits = re.fullmatch(r"\D*0*(\d+)", code)
    near = [one for one in LIMIT_BY_CODE if digits and int(one[3:]) == int(digits[1])]
    near = near or get_close_matches(code.upper(), LIMIT_BY_CODE, n=3)
    return f"did you mean {' or '.join(near)}? " if near else ""


def _holds_for(row: Limit) -> list[str]:
    return [name for name, found in TARGETS.items() if row.code in found.limits]


def _record(row: Limit) -> dict[str, Any]:
    return {
        "code": row.code,
        "title": row.title,
        "scope": row.scope.value,
        "symptom": row.symptom.value,
        "state": row.state.value,
        "disputed": row.state is not State.CLAIMED,
        "sources": list(row.sources),
        "contradicted_by": list(row.contradicted_by),
        "chips": list(row.chips),
        "path": row.path,
        "held": row.held,
        "note": row.note,
        "holds_for": _holds_for(row),
    }


def _explained(row: Limit) -> str:
    lines = [
        f"{row.code}: {row.title}",
        f"  where it is broken: {row.symptom} ({row.scope})",
        f"  state: {row.state}, for {', '.join(row.chips)}, seen {row.path}",
        f"  sources: {'; '.join(row.sources)}",
    ]
    if row.contradicted_by:
        lines.append(f"  contradicted by: {'; '.join(row.contradicted_by)}")
    lines.append(f"  here: {row.held}")
    if row.note:
        lines.append(f"  note: {row.note}")
    lines.append(f"  holds for: {', '.join(_holds_for(row)) or 'no target'}")
    keys = sorted({key_of(source) for source in (*row.sources, *row.contradicted_by)})
    return "\n".join([*lines, *(f"  {key}: {SOURCES[key]}" for key in keys)])
