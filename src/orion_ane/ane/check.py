"""check: everything in a program that breaks its target's limits, what is silent first."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping

from orion_ane.ane.limits import Finding, Limit, Subject, Symptom
from orion_ane.ane.targets import Target
from orion_ane.errors import Diagnostic, LimitError
from orion_ane.mil.dialect import OLD
from orion_ane.mil.module import Module, Place
from orion_ane.mil.parse import parse
from orion_ane.mil.program import Buffer, Program

UNREAD = "not known"
"""The symptom of a statement that no row of the op table reads."""


def check(program: Program | str, target: Target) -> tuple[Diagnostic, ...]:
    """All places where a program, or a text alone, breaks the target's limits.

    What the device would not even notice comes first; then by the rows' order and the text's. A
    statement that the op table cannot read is reported too, last, whatever the target holds.

    Raises:
        MilError: the text is not MIL.
    """
    text, files = (program, None) if isinstance(program, str) else (program.text, program.weights)
    module, lines = parse(text, tolerant=True), _Lines(text)
    found = sorted(_broken(module, files, target, lines), key=lambda pair: pair[0])
    return (*(diagnostic for _, diagnostic in found), *_unread(module, lines))


def want_kept(program: Program, target: Target) -> None:
    """Refuse a program that breaks anything but what costs time.

    Raises:
        LimitError: it lists all that is broken, what no row of the op table reads too.
        MilError: the text is not MIL.
    """
    found = tuple(d for d in check(program, target) if d.symptom != Symptom.SLOW.value)
    if found:
        raise LimitError(f"target {target.name}", found)


class _Lines:
    """Where the lines of a text start, so that many places are found in one pass over it."""

    def __init__(self, text: str) -> None:
        self.starts = [0, *(found.end() for found in re.finditer("\n", text))]

    def at(self, place: Place) -> tuple[int, int]:
        """The line and column of a place, from 1."""
        line = bisect_right(self.starts, place.offset)
        return line, place.offset - self.starts[line - 1] + 1


def _broken(
    module: Module, files: Mapping[str, Buffer] | None, target: Target, lines: _Lines
) -> Iterator[tuple[int, Diagnostic]]:
    """Each finding with the rank of its symptom."""
    for name, function in module.functions.items():
        prefix = f"{name}, " if len(module.functions) > 1 else ""
        subject = Subject(function, module.dialect, len(module.functions), files)
        for limit, finding in broken(subject, target):
            line, column = lines.at(finding.place) if finding.place else (None, None)
            yield (
                limit.symptom.rank,
                Diagnostic(
                    limit.code,
                    limit.symptom.value,
                    prefix + finding.where,
                    line,
                    column,
                    finding.message,
                    finding.hint,
                    limit.sources,
                ),
            )


def broken(subject: Subject, target: Target) -> Iterator[tuple[Limit, Finding]]:
    """Each place where a function breaks a limit of the target, in the rows' order."""
    for limit in target.rows:
        is_other_text = limit.is_old_text and subject.dialect.version != OLD
        if limit.check is not None and not is_other_text:
            for finding in limit.check(subject):
                yield limit, finding


def _unread(module: Module, lines: _Lines) -> Iterator[Diagnostic]:
    for function in module.functions.values():
        for statement in function.statements:
            if statement.problem is None:
                continue
            problem = statement.problem
            line, column = lines.at(statement.place)
            where = f"{statement.op or 'statement'} {', '.join(statement.results[:4])}"
            message = str(problem).partition("\n")[0].partition(": ")[2]
            hint = problem.hint or ""
            yield Diagnostic("", UNREAD, where, line, column, message, hint, ())
