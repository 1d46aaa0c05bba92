"""A peer: llama.cpp through llama-cpp-python, on the very GGUF file that is measured.

The package builds from source and is no dependency: `pip install llama-cpp-python`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from _protocol import NotToBeHadError, Rates, serve, want


def prepare(work: dict[str, Any]) -> tuple[str, Callable[[], Rates]]:
    """The file opened, and a run."""
    want(work, "inference")
    from llama_cpp import Llama

    path, ids, new = Path(work["model"]), work["ids"], work["new"]
    if path.suffix != ".gguf":
        raise NotToBeHadError("it reads GGUF files only")
    threads = {"n_threads": work["threads"], "n_threads_batch": work["threads"]}
    room = len(ids) + new
    model = Llama(str(path), n_ctx=room, n_batch=max(512, len(ids)), verbose=False, **threads)

    def once() -> Rates:
        model.reset()
        start = time.perf_counter()
        model.eval(ids)
        middle = time.perf_counter()
        for _ in range(new):
            model.eval([model.sample(temp=0.0)])
        end = time.perf_counter()
        return {"prefill": len(ids) / (middle - start), "decode": new / (end - middle)}

    return f"llama-cpp-python {version('llama-cpp-python')}, {path.name}", once


if __name__ == "__main__":
    serve(prepare)
