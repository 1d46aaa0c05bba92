"""How much memory a model takes, in a process of its own: it is loaded from a file and decodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from orion_ane.bench.harness import Rates
from orion_ane.bench.turns import peak_gb, serve
from orion_ane.generate.model import load

FREE = "weights over peak memory"
LOADED = "weights over peak memory less the interpreter's"


def prepare(work: Mapping[str, Any]) -> tuple[str, Callable[[], Rates]]:
    """A model from a file; its peak beside the bytes of its weights."""
    before = peak_gb()
    model = load(work["path"], device="cpu", weights=work["stored"], threads=work["threads"])
    size = work["bytes"] / 1e9

    def once() -> Rates:
        session = model.session(expect=len(work["ids"]) + work["new"])
        logits = session.append(work["ids"])
        for _ in range(work["new"]):
            logits = session.append([int(np.argmax(logits))])
        peak = peak_gb()
        return {FREE: size / peak, LOADED: size / (peak - before)}

    return "orion, loaded from a file", once


if __name__ == "__main__":
    serve(prepare)
