"""Target: which limits a program has to keep, and how the device behaves besides."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, get_args, get_type_hints

from orion_ane.ane.limits import CHIPS, LIMIT_BY_CODE, LIMITS, Limit, State
from orion_ane.ane.limits.paper import PAPER
from orion_ane.ane.numerics import NUMERICS as ARITHMETIC
from orion_ane.ane.numerics import Numerics
from orion_ane.errors import ConfigError
from orion_ane.mil.dialect import DIALECTS, IOS18, Dialect

Binding: TypeAlias = Literal["names", "names@output", "sizes", "declared"]
Loads: TypeAlias = Literal["old", "new", "refused"]
Counted: TypeAlias = Literal["compiles", "loaded"]
Narrow: TypeAlias = Literal["fails", "zeros"]
NUMERICS = CHIPS
"""Chips whose numbers may be asked for."""


@dataclass(frozen=True)
class Behaviour:
    """One answer where reports exclude each other; no program breaks these.

    An order, rows, a number of programs or a pause show only where the target holds a row about
    them (ANE003 and its like, ANE132, ANE005 or ANE165, ANE166).

    Attributes:
        binding: the order in which surfaces meet ports: by name, by name with `@output` behind,
            by size from the smallest, or as declared.
        reload: the weights that run after files were overwritten and the program loaded again.
        donor: the weights that run after a load with another program's plan.
        programs: how many a process gets.
        programs_are: what is counted.
        narrow_rows: what a port with rows that are not whole does.
        compile_pause_s: the least time after a failed compile.
    """

    binding: Binding = "names"
    reload: Loads = "old"
    donor: Loads = "new"
    programs: int = 119
    programs_are: Counted = "loaded"
    narrow_rows: Narrow = "fails"
    compile_pause_s: float = 15.0


@dataclass(frozen=True)
class Target:
    """A device as far as a program can tell.

    Attributes:
        name: as the user gives it.
        limits: codes of the rows that hold.
        dialect: of the text that is written for it.
        numerics: the chip whose numbers it has.
        behaviour: the other answers.
        switches: rules of that chip's arithmetic that have another answer, by name.
    """

    name: str
    limits: frozenset[str]
    dialect: Dialect = IOS18
    numerics: str = "m1"
    behaviour: Behaviour = Behaviour()
    switches: tuple[tuple[str, str], ...] = ()

    @property
    def arithmetic(self) -> Numerics:
        """How it computes.

        Raises:
            ConfigError: no such chip, or a switch is none of its rules, or has no such answer.
        """
        _want_one_of(self.name, "numerics", self.numerics, NUMERICS)
        return ARITHMETIC[self.numerics].switched(**dict(self.switches))

    @property
    def rows(self) -> tuple[Limit, ...]:
        """The limits that hold, in the table's order."""
        return tuple(limit for limit in LIMITS if limit.code in self.limits)


def _strict() -> frozenset[str]:
    """Every claim about program(1.3) that no program which is reported to run contradicts."""
    held = (State.CLAIMED, State.DISPUTED)
    return frozenset(row.code for row in LIMITS if row.state in held and not row.is_old_text)


def _of_chip(chip: str) -> frozenset[str]:
    """What is claimed for a chip, of programs in memory, in both dialects."""
    return frozenset(
        row.code
        for row in LIMITS
        if chip in row.chips
        and row.path != "e5rt"
        and (row.state in (State.CLAIMED, State.DISPUTED) or row.is_old_text)
    )


def _built_in() -> Mapping[str, Target]:
    paper = frozenset(row.code for row in PAPER)
    takes_new = Behaviour(reload="new", programs_are="compiles")
    bindings: Mapping[str, Behaviour] = {
        "m1": Behaviour(binding="sizes"),
        "m5": Behaviour(binding="names@output", narrow_rows="zeros"),
    }
    chips = [
        Target(chip, _of_chip(chip), IOS18, chip, bindings.get(chip, Behaviour())) for chip in CHIPS
    ]
    # The paper does not speak of overflow on the way.
    papers = Target("paper", paper, IOS18, "m4", takes_new, (("overflow", "final"),))
    found = [papers, Target("strict", _strict()), *chips]
    return MappingProxyType({target.name: target for target in found})


TARGETS = _built_in()
"""The targets by name."""


def target(name_or_path: str | Path) -> Target:
    """A built-in target by its name, or that of a probe's JSON file (docs/limits.md).

    Raises:
        ConfigError: there is no such target or file, or the file is not of the form.
    """
    name = str(name_or_path)
    if name in TARGETS:
        return TARGETS[name]
    path = Path(name)
    if path.suffix != ".json":
        want = f"{', '.join(TARGETS)} or a .json file"
        raise ConfigError("target", "no such target", got=name, want=want)
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(name, "cannot be read", got=error.strerror) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(name, "not JSON", got=error) from error
    return _from_document(name, document)


def _from_document(where: str, document: object) -> Target:
    """The base with each answer of the document in its place."""
    answers = _mapping(where, "the file", document)
    known = ("name", "base", "limits", "dialect", "numerics", "arithmetic", "behaviour")
    _want_keys(where, answers, known)
    base = answers.get("base", "strict")
    if base is not None and not (isinstance(base, str) and base in TARGETS):
        raise ConfigError(where, "no such base", got=base, want=f"{', '.join(TARGETS)} or null")
    start = Target(where, frozenset()) if base is None else TARGETS[base]
    switches = _mapping(where, "limits", answers.get("limits", {}))
    _want_keys(where, switches, LIMIT_BY_CODE)
    for code, holds in switches.items():
        if not isinstance(holds, bool):
            raise ConfigError(where, f"limits: {code} is no truth", got=holds, want="true or false")
    dropped = {code for code, holds in switches.items() if not holds}
    added = {code for code, holds in switches.items() if holds}
    dialect = answers.get("dialect", start.dialect.name)
    numerics = answers.get("numerics", start.numerics)
    _want_one_of(where, "dialect", dialect, tuple(DIALECTS))
    _want_one_of(where, "numerics", numerics, NUMERICS)
    name = answers.get("name", Path(where).stem)
    if not isinstance(name, str) or not name or name in TARGETS:
        raise ConfigError(where, "not a name of its own", got=name)
    found = Target(
        name,
        start.limits - dropped | added,
        DIALECTS[dialect],
        numerics,
        _behaviour(where, start.behaviour, answers.get("behaviour", {})),
        _switches(where, start, answers),
    )
    try:
        _ = found.arithmetic
    except ConfigError as error:
        place = f"{where}: {error.where}"
        raise ConfigError(place, error.what, got=error.got, want=error.want) from error
    return found


def _switches(where: str, start: Target, answers: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The base's switches, unless another chip is named, and the document's over them."""
    given = _mapping(where, "arithmetic", answers.get("arithmetic", {}))
    for rule, answer in given.items():
        if not isinstance(answer, str):
            raise ConfigError(where, f"arithmetic: {rule} is no answer", got=answer, want="a word")
    kept = {} if "numerics" in answers else dict(start.switches)
    return tuple(sorted({**kept, **given}.items()))


def _behaviour(where: str, start: Behaviour, document: object) -> Behaviour:
    answers = _mapping(where, "behaviour", document)
    hints = get_type_hints(Behaviour)
    _want_keys(where, answers, [field.name for field in fields(Behaviour)])
    for key, answer in answers.items():
        if choices := get_args(hints[key]):
            _want_one_of(where, key, answer, choices)
            continue
        kinds = (int, float) if hints[key] is float else (int,)
        if type(answer) not in kinds or not 0 <= answer < 1e6:
            raise ConfigError(where, f"behaviour: {key}", got=answer, want="a number from 0")
    return replace(start, **answers)


def _mapping(where: str, what: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(where, f"{what} is no object", got=type(value).__name__)
    return value


def _want_keys(where: str, answers: Mapping[str, Any], known: Any) -> None:
    unknown = [key for key in answers if key not in known]
    if unknown:
        raise ConfigError(where, "no such answer", got=", ".join(unknown)[:200])


def _want_one_of(where: str, what: str, got: object, choices: tuple[object, ...]) -> None:
    if got not in choices:
        raise ConfigError(where, what, got=got, want=", ".join(map(str, choices)))
