"""`orion probe`: asks a device what it does, and writes a target file that says so."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import click

from orion_ane.ane.targets import TARGETS, target
from orion_ane.artefacts.written import want_apart, want_file
from orion_ane.cli.common import counted, say, show
from orion_ane.probes import PROBES, Finding, Probe, Session, is_kept, keep, report, report_of
from orion_ane.probes import probe as ask
from orion_ane.runtime.backend import Backend
from orion_ane.runtime.backends.emulator import Emulator
from orion_ane.runtime.backends.neural_engine.backend import NeuralEngine
from orion_ane.runtime.backends.neural_engine.libraries import PAGE, libraries
from orion_ane.runtime.backends.neural_engine.machine import machine, probe_file

PAUSE_S = 15.0
"""After a compile that failed, on a Neural Engine: bursts of them stall the system's compiler."""
NEVER = 10**6
HOUR_S = 3600.0

EXAMPLE = """Example:

  orion probe --device emulator --target m5 --out found.json

  orion check compiled/ --target found.json
"""


@click.command(epilog=EXAMPLE)
@click.option(
    "--device",
    "name",
    type=click.Choice(["ane", "emulator"]),
    default="ane",
    show_default=True,
    help="What is asked.",
)
@click.option(
    "--target",
    "world",
    metavar="NAME|FILE",
    help="Which device the emulator is: it does what that one would.  [default: strict]",
)
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="Ask this probe; may be repeated.  [default: all but those that load programs until "
    "one is refused]",
)
@click.option("--budget", "with_slow", is_flag=True, help="Ask also how many programs may load.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The target file.  [default: of ane, where --device auto looks for it]",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show an error's trace.")
def probe(
    *,
    name: str,
    world: str | None,
    only: tuple[str, ...],
    with_slow: bool,
    out: Path | None,
    as_json: bool,
) -> int:
    """Ask a device, by trying, what reports do not agree on.

    Where the probes pass that running anything rests on, the answers are written as a target
    file, which --target takes anywhere and --device auto needs; a report with the evidence of
    each goes beside it.  The exit status is 1 where they do not pass, or a probe failed; with
    --only where one of those asked failed, since others are then not asked.
    docs/mac.md has what else to run on a Mac.
    """
    chosen = _chosen(only, with_slow=with_slow)
    if out is not None:
        for file in (out, report_of(out)):
            want_file("--out", file, is_kept, "target or report of a probe")
            want_apart("--out", file, [] if world is None else [world])
    session, base, device = _asked(name, world)
    try:
        findings = ask(session, chosen, tell=lambda found: None if as_json else _tell(found))
    finally:
        session.close()
    found = report(findings, base=base, device=device)
    kept = out or (probe_file() if name == "ane" else None)
    if kept is not None:
        beside = keep(found, kept)
        if not found["passed"] and not only and out is None:
            kept.unlink(missing_ok=True)  # what passed once does no longer
        say(f"target: {kept}" if found["passed"] else f"not passed: no target is written to {kept}")
        say(f"report: {beside}")
    if as_json:
        show(json.dumps(found, indent=2))
    for reason in found["reasons"]:
        say(reason)
    if name == "ane" and found["reasons"]:
        say(f"{PAGE} says what that means, and what to share")
    failed = sum(finding.has_failed for finding in findings)
    say(f"{counted(len(findings), 'probe')}, {failed} failed")
    return 1 if failed or (found["reasons"] and not only) else 0


def _chosen(only: Sequence[str], *, with_slow: bool) -> list[Probe]:
    unknown = [name for name in only if name not in PROBES]
    if unknown:
        raise click.UsageError(f"no such probe: {', '.join(unknown)}; want {', '.join(PROBES)}")
    if only:
        return [one for one in PROBES.values() if one.name in only or (with_slow and one.is_slow)]
    return [one for one in PROBES.values() if with_slow or not one.is_slow]


def _asked(name: str, world: str | None) -> tuple[Session, str, dict[str, Any]]:
    """A device to ask, the target that answers what nobody asks, and what the device is."""
    if name == "emulator":
        of = target(world or "strict")
        ticks = count()

        def emulated() -> Backend:
            # An hour goes by between two looks at the clock: there is nobody to spare.
            return Emulator(target=of, checks=False, clock=lambda: next(ticks) * HOUR_S)

        return Session(emulated), "strict", {"name": "emulator", "target": of.name}
    if world is not None:
        raise click.UsageError("--target: a Neural Engine is what it is; the emulator takes one")
    stand_in = libraries().stand_in
    opened: Callable[[], Backend] = lambda: NeuralEngine(target=None, compiles_each=NEVER)  # noqa: E731
    here = machine()
    device = {"name": "ane", "stand_in": str(stand_in or ""), **here.document()}
    if stand_in:
        return Session(opened), "strict", device
    return Session(opened, is_real=True, pause_s=PAUSE_S), base_of(here.chip), device


def base_of(chip: str) -> str:
    """The target that is nearest to a chip, as the system names it."""
    found = re.search(r"\bM(\d+)\b", chip)
    name = f"m{found[1]}" if found else ""
    return name if name in TARGETS else "strict"


def _tell(finding: Finding) -> None:
    show(f"{finding.probe.name}: {finding.verdict.word}")
