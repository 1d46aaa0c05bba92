"""What every peer script does: say what it is, then work once for each line that it reads."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from install import interpreter

Rates = dict[str, float]


class NotToBeHadError(Exception):
    """Why this peer cannot do the work here."""


def serve(prepare: Callable[[dict[str, Any]], tuple[str, Callable[[], Rates]]]) -> None:
    """Be a peer: `prepare` takes the work and gives what this is, and what works once."""
    work = json.loads(sys.argv[1])
    out, sys.stdout = sys.stdout, sys.stderr  # what libraries print is no rate
    try:
        what, once = prepare(work)
    except (NotToBeHadError, ModuleNotFoundError) as error:
        why = str(error)
        if isinstance(error, ModuleNotFoundError):
            why += f"; `pip install {error.name}` beside the project"
        print(json.dumps({"unavailable": why}), file=out, flush=True)
        return
    print(json.dumps({"ready": what}), file=out, flush=True)
    for _ in sys.stdin:
        print(json.dumps(once()), file=out, flush=True)


def want(work: dict[str, Any], what: str) -> None:
    """Refuse other work than a peer knows."""
    if work["what"] != what:
        raise NotToBeHadError(f"it has no {work['what']}, only {what}")


def at_home(environment: str, package: str) -> None:
    """Go on in the environment that `install.py` made, where this one lacks the package."""
    python = interpreter(environment)
    if find_spec(package) is None and python is not None and str(python) != sys.executable:
        os.execv(python, [str(python), *sys.argv])  # noqa: S606 - a Python of the user's cache


def lacking(error: ModuleNotFoundError, environment: str) -> NotToBeHadError:
    """What to say where there is no such environment either."""
    return NotToBeHadError(f"{error}; `python bench/peers/install.py {environment}` makes it")


def drawn(work: dict[str, Any]) -> dict[str, Any]:
    """The random weights, the very numbers that we have: canonical names, [out, in], fp16."""
    import numpy as np

    rng = np.random.default_rng(0)
    return {
        name: (rng.standard_normal(shape, np.float32) * 0.02).astype(np.float16)
        for name, shape in work["tensors"].items()
    }
