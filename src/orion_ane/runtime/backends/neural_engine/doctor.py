"""Whether this machine's engine can be used, and if not, why and what to do.

Nothing is changed, and nobody is told to weaken a system.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from orion_ane.errors import BackendError
from orion_ane.runtime.backends.neural_engine import encoding
from orion_ane.runtime.backends.neural_engine.libraries import Libraries, libraries
from orion_ane.runtime.backends.neural_engine.machine import (
    RECORDED,
    Machine,
    machine,
    probe_file,
    probed,
)
from orion_ane.runtime.backends.neural_engine.objc import Runtime, open_library
from orion_ane.runtime.backends.neural_engine.signatures import (
    FOUNDATION,
    MACHINE,
    REQUIRED,
    UNUSED,
    Method,
)

State: TypeAlias = Literal["good", "note", "bad"]

ESPRESSO = "/System/Library/PrivateFrameworks/Espresso.framework/Espresso"
OTHER_WAY = (
    "e5rt_e5_compiler_create_with_config",
    "e5rt_program_library_retain_program_function",
    "e5rt_buffer_object_alloc",
    "e5rt_execution_stream_create",
)
"""Functions of another way to the engine, which this project does not take: whether they are there
is for who will have to look for one."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        what: was looked at.
        state: `bad` where the engine cannot be used for it.
        found: there.
        advice: what to do; empty where there is nothing.
    """

    what: str
    state: State
    found: str
    advice: str = ""

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return dict(vars(self))


def examine() -> tuple[Finding, ...]:
    """All findings; the engine can be used where none is bad."""
    try:
        where = libraries()
    except BackendError as error:
        return (Finding("system", "bad", f"{sys.platform}: {error.what}", error.hint or ""),)
    found = [] if where.stand_in else list(_of_machine(machine()))
    if where.stand_in:
        advice = "nothing that runs on it has run on a Neural Engine"
        found.append(Finding("libraries", "note", f"a stand-in in {where.stand_in}", advice))
    try:
        runtime = Runtime(where)
    except BackendError as error:
        return (*found, Finding("libraries", "bad", str(error), "use the emulator"))
    return (*found, *_of_methods(runtime), *_of_device(runtime), *_of_others(where), _of_probe())


def _of_machine(of: Machine) -> Iterator[Finding]:
    """What macOS, the processor and the interpreter are."""
    known = of.version.partition(".")[0] in RECORDED
    recorded = "; ".join(RECORDED.values())
    advice = "" if known else f"signatures were recorded on {recorded}: look at the methods below"
    yield Finding("macOS", "good" if known else "note", f"{of.version} ({of.build})", advice)
    yield Finding("chip", "good", of.chip)
    if of.is_translated or "arm64" not in of.python.split()[1]:
        advice = "take a Python for arm64, as from python.org or Homebrew in /opt/homebrew"
        yield Finding("python", "bad", f"{of.python}, under Rosetta", advice)
    else:
        yield Finding("python", "good", of.python)
    yield Finding(
        "integrity protection", "good", of.sip, "it makes no difference here: leave it on"
    )
    if of.has_private_entitlement:
        advice = "macOS ends such a process when it starts: take a Python as it is distributed"
        yield Finding("entitlements", "bad", "the interpreter claims one of the engine's", advice)
    if of.is_sandboxed:
        advice = "run it outside: the engine's daemon may not read an app's own folders"
        yield Finding("sandbox", "bad", "the interpreter runs in an app's sandbox", advice)
    if of.is_hardened and not of.may_run_made_code:
        advice = "exceptions of the framework will be nameless; everything else works"
        yield Finding("hardened runtime", "note", "the interpreter may not make code", advice)


def _of_methods(runtime: Runtime) -> Iterator[Finding]:
    """Each method that is called, or was once seen, and its types."""
    for methods, is_needed in ((REQUIRED, True), (FOUNDATION, True), (UNUSED, False)):
        for method in methods:
            yield _of_method(runtime, method, is_needed=is_needed)


def _of_method(runtime: Runtime, method: Method, *, is_needed: bool) -> Finding:
    found = runtime.types_of(method)
    match = "missing" if found is None else encoding.compare(method.types, found)
    is_good = match in ("exact", "compatible")
    state: State = "good" if is_good else "bad" if is_needed else "note"
    words = match if match in ("missing", "exact") else f"{match}: {found}, recorded {method.types}"
    advice = "" if is_good or not is_needed else "do not use the engine until this is understood"
    return Finding(str(method), state, words, advice)


def _of_device(runtime: Runtime) -> Iterator[Finding]:
    """What the framework says of the device: asked only where the types are what they were."""
    owner = runtime.class_named(MACHINE[0].owner)
    for method in MACHINE:
        found = runtime.types_of(method)
        if found is None or encoding.compare(method.types, found) == "mismatch":
            yield Finding(str(method), "note", found or "missing")
            continue
        with runtime.pool():
            answer = runtime.bind(method)(owner)
            value = runtime.text(answer) if method.types[0] == "@" else answer
        yield _of_answer(method, value)


def _of_answer(method: Method, value: Any) -> Finding:
    if method.selector == "hasANE" and not value:
        return Finding(str(method), "bad", "no", "there is no engine: use the emulator")
    if method.selector == "isVirtualMachine" and value:
        advice = "a virtual machine reaches no engine: use the emulator"
        return Finding(str(method), "bad", "yes", advice)
    return Finding(str(method), "good", str(value))


def _of_others(where: Libraries) -> Iterator[Finding]:
    """Functions that are not called."""
    if where.stand_in:
        return
    try:
        library = open_library(ESPRESSO)
    except BackendError as error:
        yield Finding("e5rt functions", "note", f"no such library: {error.got}")
        return
    there = [name for name in OTHER_WAY if hasattr(library, name)]
    yield Finding("e5rt functions", "note", f"{len(there)} of {len(OTHER_WAY)} are there")


def _of_probe() -> Finding:
    file = probed()
    if file is not None:
        return Finding("probe", "good", f"passed: {file}")
    advice = "run 'orion probe'; until it has passed, --device auto does not take the engine"
    return Finding("probe", "note", f"none has passed here ({probe_file()})", advice)
