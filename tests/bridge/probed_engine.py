"""The stand-in's arithmetic, with one program that ends whoever computes it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import emulated_engine


class Engine(emulated_engine.Engine):
    def compile(self, directory, words, room):
        if "= gelu(" in (Path(os.fsdecode(directory)) / "model.mil").read_text():
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().compile(directory, words, room)


def start() -> None:
    """Be the device of this process."""
    emulated_engine.ENGINE = Engine(emulated_engine.device_of(os.environ["STANDIN_TARGET"]))
    emulated_engine.use(emulated_engine.ENGINE)
