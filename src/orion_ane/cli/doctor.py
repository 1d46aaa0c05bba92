"""`orion doctor`: what this machine offers, and why device `ane` can or cannot run."""

from __future__ import annotations

import json

import click

from orion_ane.cli.common import show
from orion_ane.runtime.backends.neural_engine.doctor import Finding, examine
from orion_ane.runtime.backends.neural_engine.libraries import PAGE

MARKS = {"good": "ok", "note": "--", "bad": "NO"}


EXAMPLE = """Example:

  orion doctor --json
"""


@click.command(epilog=EXAMPLE)
@click.option("--all", "everything", is_flag=True, help="Show also what is as it should be.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show an error's trace.")
def doctor(*, everything: bool, as_json: bool) -> int:
    """Say whether the Neural Engine can be used here.

    Nothing is changed.  The exit code is 1 where it cannot, else 0.
    """
    findings = examine()
    ok = not any(finding.state == "bad" for finding in findings)
    if as_json:
        show(json.dumps({"ok": ok, "findings": [finding.document() for finding in findings]}))
    else:
        good = sum(finding.state == "good" for finding in findings)
        for finding in findings:
            if everything or finding.state != "good":
                show(_line(finding))
        show(f"{good} of {len(findings)} findings are as they should be")
        show(
            f"the engine can be used: {PAGE} says what to run next"
            if ok
            else f"the engine cannot be used here: {PAGE} says what it takes"
        )
    return 0 if ok else 1


def _line(finding: Finding) -> str:
    line = f"{MARKS[finding.state]}  {finding.what}: {finding.found}"
    return line + (f"\n      {finding.advice}" if finding.advice else "")
