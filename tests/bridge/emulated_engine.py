"""The arithmetic of the stand-in, which the library itself asks for when it starts.

`STANDIN_TARGET` names the target that it is, as the emulator has it; without one, programs are
evaluated op by op, which needs no compiled loops and starts at once.  `STANDIN_SWITCHES` is
`name=number,…` for the library's own switches, which `STANDIN_ONCE` lets hold in the first process
alone: a file that it makes.
"""

from __future__ import annotations

import ctypes
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from orion_ane.errors import OrionError
from orion_ane.mil.parse import parse, parse_graph
from orion_ane.mil.program import Port, Program
from orion_ane.mil.stored import stored
from orion_ane.ops import Weight, evaluate

if TYPE_CHECKING:
    from orion_ane.runtime.backends.emulator import Emulator

COMPILE = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
EVALUATE = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_long,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.c_void_p,
    ctypes.c_size_t,
)
DROP = ctypes.CFUNCTYPE(None, ctypes.c_long)


class Table(ctypes.Structure):
    _fields_ = (("compile", COMPILE), ("evaluate", EVALUATE), ("drop", DROP))


def program_of(directory: Path) -> Program:
    """What lies in a model's directory, with the ports that its text declares."""
    text = (directory / "model.mil").read_text()
    module = parse(text, tolerant=True)
    function = module.functions.get("main") or next(iter(module.functions.values()))
    graph = function.graph
    weights = (node.op for node in graph.nodes if isinstance(node.op, Weight))
    paths = {weight.at.path for weight in weights if weight.at is not None}
    files = {p: (directory / p.removeprefix("@model_path/")).read_bytes() for p in paths}
    inputs = tuple(Port(name, name, node.type) for name, node in graph.inputs.items())
    outputs = tuple(Port(name, name, node.type) for name, node in graph.outputs.items())
    return Program(text, files, inputs, outputs)


class Plain:
    """A device without limits that takes its time."""

    def compile(self, program: Program) -> PlainProgram:
        return PlainProgram(program)


class PlainProgram:
    def __init__(self, program: Program) -> None:
        self.program, self.graph = program, parse_graph(program.text)
        nodes = (node.op for node in self.graph.nodes if isinstance(node.op, Weight))
        self.weights = {weight.label: stored(weight, program.weights) for weight in nodes}

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return evaluate(self.graph, inputs, self.weights)

    def close(self) -> None:
        """Nothing is held."""


class Engine:
    """What the library calls."""

    def __init__(self, emulator: Plain | Emulator) -> None:
        self.emulator = emulator
        self.loaded: dict[int, object] = {}
        self.count = 0
        self.table = Table(COMPILE(self.compile), EVALUATE(self.evaluate), DROP(self.drop))

    def compile(self, directory: bytes, words: int, room: int) -> int:
        try:
            made = self.emulator.compile(program_of(Path(os.fsdecode(directory))))
        except (OrionError, OSError) as error:
            said(words, room, error)
            return -1
        self.count += 1
        self.loaded[self.count] = made
        return self.count

    def evaluate(self, handle, inputs, outputs, bases, sizes, words, room) -> int:
        try:
            made = self.loaded[handle]
            program = made.program
            want_surfaces(program, inputs, outputs)
            feed = {p.name: surface(p, bases[i], sizes[i]) for i, p in enumerate(program.inputs)}
            found = made.run({name: array.copy() for name, array in feed.items()})
            for i, port in enumerate(program.outputs, start=inputs):
                surface(port, bases[i], sizes[i])[...] = found[port.name]
        except OrionError as error:
            said(words, room, error)
            return 1
        return 0

    def drop(self, handle: int) -> None:
        self.loaded.pop(handle).close()


def want_surfaces(program: Program, inputs: int, outputs: int) -> None:
    if (inputs, outputs) != (len(program.inputs), len(program.outputs)):
        raise OrionError("request", "other surfaces than ports", got=(inputs, outputs))


def surface(port: Port, base: int, size: int) -> np.ndarray:
    of = port.type
    if size < of.nbytes:
        raise OrionError(port.name, "the surface is too small", got=size, want=of.nbytes)
    raw = (ctypes.c_ubyte * of.nbytes).from_address(base)
    return np.frombuffer(raw, of.dtype.numpy).reshape(of.shape)


def said(words: int, room: int, error: Exception) -> None:
    text = str(error).encode()[: room - 1] + b"\0"
    ctypes.memmove(words, text, len(text))


def library() -> ctypes.CDLL:
    return ctypes.CDLL(os.environ["ORION_ANE_LIBRARIES"] + "/AppleNeuralEngine.so")


def use(engine: Engine) -> None:
    library().standin_set_device(engine.table)


def switch(**values: int) -> None:
    for name, value in values.items():
        assert library().standin_set(name.encode(), ctypes.c_long(value)) == 0, name


def start() -> None:
    """Be the device of this process."""
    global ENGINE  # noqa: PLW0603 - the library keeps pointers to it
    ENGINE = Engine(device_of(os.environ.get("STANDIN_TARGET", "")))
    use(ENGINE)
    once = os.environ.get("STANDIN_ONCE")
    if once and Path(once).exists():
        return
    if once:
        Path(once).touch()
    words = os.environ.get("STANDIN_SWITCHES", "")
    switch(**{k: int(v) for k, v in (word.split("=") for word in words.split(",") if word)})


def hours() -> float:
    """A clock that makes an hour of every look at it: no pause after a compile is too short."""
    return next(HOURS) * 3600.0


HOURS = itertools.count()


def device_of(target: str) -> Plain | Emulator:
    if not target:
        return Plain()
    from orion_ane.runtime.backends.emulator import Emulator

    found = None if target == "none" else target
    return Emulator(target=found, checks=False, threads=1, clock=hours)


ENGINE: Engine | None = None
