"""How long a run takes: reported as measured, and of a Neural Engine alone a verdict."""

from __future__ import annotations

import time
from statistics import median

import numpy as np

from orion_ane.mil import Program
from orion_ane.probes.computes import simple
from orion_ane.probes.probe import Probe, Verdict
from orion_ane.probes.session import Session
from orion_ane.probes.text import CONV, Text, filled, fp16
from orion_ane.runtime.backend import Executable
from orion_ane.runtime.backends.neural_engine.backend import (
    IN,
    LoadedProgram,
    NeuralEngine,
    call_of,
)
from orion_ane.types import Array

WARM, TIMES = 3, 20
NO_DEVICE = "no verdict: not measured on a Neural Engine"
MEBI = 1 << 20


def run_ms(session: Session, made: Executable, fed: dict[str, Array]) -> float:
    """Of one evaluation, without the way to the worker where a plan can leave that out."""
    for _ in range(WARM):
        made.run(fed)
    device = session.device
    if isinstance(device, NeuralEngine) and isinstance(made, LoadedProgram):
        program = made.program
        fed = {IN + name: array for name, array in fed.items()}
        spent = []
        for count in (1, 1 + TIMES):
            chain = device.chain([program], [call_of(program)] * count, ())
            chain.run([made], fed)
            spent.append(_median_ms(lambda chain=chain: chain.run([made], fed, changed=()), 5))
            chain.close()
        return (spent[1] - spent[0]) / TIMES
    return _median_ms(lambda: made.run(fed), TIMES)


def _median_ms(do: object, times: int) -> float:
    assert callable(do)
    taken = []
    for _ in range(times):
        before = time.perf_counter()
        do()
        taken.append((time.perf_counter() - before) * 1e3)
    return median(taken)


def ask_dispatch(session: Session) -> Verdict:
    """A program that does next to nothing, alone and by way of the worker."""
    made = session.compile(simple(session.dialect))
    fed = {"given": filled(1)}
    alone = run_ms(session, made, fed)
    whole = _median_ms(lambda: made.run(fed), TIMES)
    made.close()
    evidence = {"evaluation_ms": round(alone, 4), "with_ports_and_worker_ms": round(whole, 4)}
    return Verdict(f"{alone:.3f} ms" if session.is_real else NO_DEVICE, evidence)


def _product(session: Session, rows: int, columns: int) -> tuple[Program, dict[str, Array]]:
    text = Text(session.dialect)
    weight = np.full((rows, columns, 1, 1), 2.0**-8, np.float16)
    x = text.input("given", fp16(1, columns, 1, 64))
    told = text.told(CONV)
    y = text.call("conv", fp16(1, rows, 1, 64), to="y0", x=x, weight=text.weight(weight), **told)
    return text.program(y), {"given": filled(1, fp16(1, columns, 1, 64))}


def _weight_ms(session: Session, *sizes: tuple[int, int]) -> dict[str, dict[str, float]]:
    """Milliseconds, and what that is for the weight's bytes."""
    found = {}
    for rows, columns in sizes:
        program, fed = _product(session, rows, columns)
        made = session.compile(program)
        spent = run_ms(session, made, fed)
        made.close()
        rate = rows * columns * 2 / max(spent, 1e-6) / 1e6
        found[f"{rows}x{columns}"] = {"ms": round(spent, 4), "gb_per_s": round(rate, 2)}
    return found


def ask_bandwidth(session: Session) -> Verdict:
    """Two products whose weights no cache holds: what the larger takes more."""
    small, large = ((1024, 3072), (3072, 3072)) if session.is_real else ((768, 768), (768, 1536))
    found = _weight_ms(session, small, large)
    one, other = found.values()
    more = (large[0] * large[1] - small[0] * small[1]) * 2
    rate = more / max(other["ms"] - one["ms"], 1e-6) / 1e6
    word = f"{rate:.0f} GB/s" if session.is_real else NO_DEVICE
    return Verdict(word, found)


def ask_notch(session: Session) -> Verdict:
    """4096 x 4096, of which each core reads a multiple of 1 MiB, beside its neighbours."""
    if not session.is_real:
        return Verdict(NO_DEVICE, {"asked": False})
    found = _weight_ms(session, (4096, 3968), (4096, 4096), (4096, 4224))
    below, at, above = (entry["gb_per_s"] for entry in found.values())
    is_slow = at < min(below, above) / 2
    return Verdict("slow" if is_slow else "as fast as its neighbours", found, {"ANE121": is_slow})


DISPATCH = Probe("dispatch", "how long does a small program take?", ask_dispatch)
BANDWIDTH = Probe("bandwidth", "how fast are weights read?", ask_bandwidth)
NOTCH = Probe("notch", "is a weight slow of which a core reads a multiple of 1 MiB?", ask_notch)
