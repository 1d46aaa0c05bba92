"""How many programs a process gets, counted in a device of its own."""

from __future__ import annotations

from collections.abc import Callable

from orion_ane.errors import BackendError
from orion_ane.mil import Program
from orion_ane.probes.probe import Probe, Verdict
from orion_ane.probes.session import Session, ended, worded
from orion_ane.probes.text import Text, filled
from orion_ane.runtime.backend import Executable

MOST = 256
"""No report has more."""
ROWS = ("ANE005", "ANE165")


def _program(session: Session, number: int) -> Program:
    """One of many with texts of their own."""
    text = Text(session.dialect)
    return text.program(text.call("add", to=f"y{number}", x=text.input("given"),
                                  y=text.weight(filled(number % 97))))  # fmt: skip


def ask(session: Session) -> Verdict:
    """Programs are loaded until one is refused; then all are unloaded, and one more is tried."""
    device = session.opened()
    made: list[Executable] = []
    refusal = ""
    try:
        refusal = _until(lambda: made.append(device.compile(_program(session, len(made)))), made)
        count = len(made)
        if not refusal:
            rows = dict.fromkeys(ROWS, False)
            return Verdict(f"more than {MOST}", {"loaded": count}, rows)
        while made:
            made.pop().close()
        try:
            device.compile(_program(session, MOST)).close()
            counted = "loaded"
        except BackendError:
            counted = "compiles"
    finally:
        while made:
            made.pop().close()
        ended(device)
    limits = {"ANE165": counted == "loaded", "ANE005": counted == "compiles"}
    evidence = {"refused": refusal, "after unloading": f"{counted} are counted"}
    return Verdict(
        f"{count} {counted}", evidence, limits, {"programs": count, "programs_are": counted}
    )


def _until(load: Callable[[], None], made: list[Executable]) -> str:
    """What the refusal says; nothing where there is none."""
    try:
        while len(made) < MOST:
            load()
    except BackendError as error:
        return worded(error)
    return ""


PROBE = Probe("budget", "how many programs does a process get?", ask, is_slow=True)
