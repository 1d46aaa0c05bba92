"""Write docs/limits.md from the limits table; --check only says whether it is stale."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from orion_ane.ane.limits import LIMITS, SOURCES, Limit, State, Symptom
from orion_ane.ane.targets import TARGETS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "limits.md"

HEAD = """# Limits

What is claimed about the Neural Engine, by whom, and what keeps it. Written by
`tools/limits_page.py` from the table in `orion_ane.ane.limits`. A limit is a claim: *claimed* where
nobody contradicts it, *disputed* where somebody does, *open* where a program that is reported to
run contradicts it or its terms are not known, *artefact* where it is explained by a fault of
whoever saw it. Nothing here was measured by this project.

`orion check` finds what breaks a target's limits, and `orion rules` explains each. The targets:

| target | limits | checked | what it stands for |
| --- | --- | --- | --- |
"""
MEANING = {
    "paper": "the paper's twenty, as stated, reloads included",
    "strict": "every claim about program(1.3) that no running program contradicts; the default",
}

FILES = """
## Target files

Where a target is named, a `.json` file may stand: the answers of a device that was asked. Every
part may be left out. `base` is the target whose answers it overrides, by default `strict`; `null`
starts with no limits at all.

```json
{
  "name": "my-mac",
  "base": "m4",
  "limits": {"ANE012": false, "ANE116": true},
  "dialect": "ios18",
  "numerics": "m4",
  "arithmetic": {"overflow": "final", "subnormals": "kept"},
  "behaviour": {
    "binding": "names",
    "reload": "old",
    "donor": "new",
    "programs": 119,
    "programs_are": "loaded",
    "narrow_rows": "fails",
    "compile_pause_s": 15
  }
}
```

`numerics` is the chip whose numbers it has, `arithmetic` other answers to its
[rules](numerics.md) that have a switch. `binding` is one of `names`, `names@output`, `sizes`,
`declared`; `reload` and `donor` of `old`, `new`, `refused`; `programs_are` of `compiles`, `loaded`;
`narrow_rows` of `fails`, `zeros`. An
unknown word anywhere is an error.
"""


def page() -> str:
    """The whole text."""
    lines = [HEAD.rstrip("\n")]
    for name, target in TARGETS.items():
        checked = sum(row.check is not None for row in target.rows)
        meaning = MEANING.get(name, f"what is claimed for {name.upper()}, of programs in memory")
        lines.append(f"| `{name}` | {len(target.limits)} | {checked} | {meaning} |")
    lines += [FILES.rstrip("\n"), "", "## The table", "", _counts()]
    for symptom in Symptom:
        rows = [row for row in LIMITS if row.symptom is symptom]
        lines += ["", f"### {symptom.value.capitalize()}", ""]
        lines += [line for row in rows for line in _row(row)]
    lines += ["", "## Sources", "", "| key | |", "| --- | --- |"]
    lines += [f"| {key} | {meaning} |" for key, meaning in SOURCES.items()]
    return "\n".join(lines) + "\n"


def _counts() -> str:
    counts = Counter(row.state for row in LIMITS)
    states = ", ".join(f"{counts[state]} {state}" for state in State)
    checked = sum(row.check is not None for row in LIMITS)
    return f"{len(LIMITS)} limits: {states}; {checked} are checked. The silent ones come first."


def _row(row: Limit) -> list[str]:
    text = ", in program(1.0) alone" if row.is_old_text else ""
    chips = "all chips" if len(row.chips) == 5 else ", ".join(row.chips)
    path = "" if row.path == "both" else f", {row.path}"
    lines = [f"- **{row.code}** {row.title}. *{row.state}*, {chips}{path}{text}; {row.held}."]
    lines.append(f"  Sources: {'; '.join(row.sources)}.")
    if row.contradicted_by:
        lines.append(f"  Against it: {'; '.join(row.contradicted_by)}.")
    if row.note:
        lines.append(f"  Note: {row.note}.")
    return lines


def main() -> None:
    """Write the page, or compare it."""
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != page():
        sys.exit(f"{PAGE.name} is stale: run tools/limits_page.py")


if __name__ == "__main__":
    main()
