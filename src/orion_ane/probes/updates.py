"""Which weights run after a load by a donor's plan, and after a reload."""

from __future__ import annotations

import numpy as np

from orion_ane.errors import BackendError
from orion_ane.mil import DEFAULT_PATH, Program
from orion_ane.mil.dialect import Dialect
from orion_ane.probes.probe import Probe, Verdict
from orion_ane.probes.session import Session, worded
from orion_ane.probes.text import Text, counted, filled
from orion_ane.runtime.backend import Executable
from orion_ane.runtime.backends.neural_engine.backend import LoadedProgram
from orion_ane.runtime.backends.neural_engine.process import WorkerLostError

OLD, NEW = (2, 3, 1), (5, 7, 4)
"""Three weights each."""


def weighted(dialect: Dialect, weights: tuple[int, ...], *, apart: bool) -> Program:
    """w x + v - u, of weights in one file or in three."""
    text = Text(dialect)
    value = text.input("given")
    for number, (op, weight) in enumerate(zip(("mul", "add", "sub"), weights, strict=True)):
        path = f"@model_path/weights/part{number}.bin" if apart else DEFAULT_PATH
        value = text.call(op, x=value, y=text.weight(filled(weight), path))
    return text.program(value)


def which(made: Executable) -> str:
    """The weights that it runs with."""
    x = counted()
    (found,) = made.run({"given": x}).values()
    for word, (w, v, u) in {"old": OLD, "new": NEW}.items():
        if np.array_equal(found, w * x + v - u):
            return word
    return "neither"


def _first(session: Session) -> tuple[Executable, bool]:
    """The program with the old weights, and whether it needs a file for each."""
    try:
        return session.compile(weighted(session.dialect, OLD, apart=False)), False
    except WorkerLostError:
        raise
    except BackendError:
        return session.compile(weighted(session.dialect, OLD, apart=True)), True


def ask_donor(session: Session) -> Verdict:
    """Three new weights, by the plan of a program with three old ones."""
    donor, apart = _first(session)
    files = "three files" if apart else "one file"
    try:
        made = session.device.load(weighted(session.dialect, NEW, apart=apart), donor=donor)
        word, seen = which(made), f"donor after it: {which(donor)}"
        made.close()
    except WorkerLostError:
        raise
    except BackendError as error:
        word, seen = "refused", worded(error)
    finally:
        donor.close()
    return _answered("donor", word, {files: word, "seen": seen})


def _reloaded(session: Session, *, purge: bool) -> tuple[str, str]:
    made, apart = _first(session)
    weights = weighted(session.dialect, NEW, apart=apart).weights
    try:
        if not purge:
            made.reload(weights)
        elif isinstance(made, LoadedProgram):
            made.reload(weights, purge=True)
        else:
            return "not asked", "this device has nothing to purge"
        return which(made), ""
    except WorkerLostError:
        raise
    except BackendError as error:
        return "refused", worded(error)
    finally:
        made.close()


def ask_reload(session: Session) -> Verdict:
    """The same program, loaded again after its files were overwritten."""
    word, seen = _reloaded(session, purge=False)
    return _answered("reload", word, {"weights": word, "seen": seen})


def ask_purge(session: Session) -> Verdict:
    """The same, after the system was told to forget what it compiled."""
    word, seen = _reloaded(session, purge=True)
    return Verdict(word, {"weights": word, "seen": seen})


def _answered(what: str, word: str, evidence: dict[str, str]) -> Verdict:
    # Weights that are neither are none to trust: such a device is as one that refuses.
    return Verdict(word, evidence, behaviour={what: "refused" if word == "neither" else word})


DONOR = Probe("donor", "which weights run after a load by a donor's plan?", ask_donor)
RELOAD = Probe("reload", "which weights run after a reload?", ask_reload)
PURGE = Probe("reload_after_purge", "and after a purge in between?", ask_purge)
