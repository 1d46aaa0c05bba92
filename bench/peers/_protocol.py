"""What every peer script does: say what it is, then work once for each line that it reads."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

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
        print(json.dumps({"unavailable": str(error)}), file=out, flush=True)
        return
    print(json.dumps({"ready": what}), file=out, flush=True)
    for _ in sys.stdin:
        print(json.dumps(once()), file=out, flush=True)


def want(work: dict[str, Any], what: str) -> None:
    """Refuse other work than a peer knows."""
    if work["what"] != what:
        raise NotToBeHadError(f"it has no {work['what']}, only {what}")
