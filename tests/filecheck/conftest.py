"""Collects `.mil` files: MIL in short form, the passes to run over it, and what must come out.

A file holds cases parted by lines `// -----`.  A case says `// RUN: pass, pass` and has CHECK lines
for FileCheck, or `// UNCHANGED` where the passes must hand back the very same graph.  Legalisers
need a target behind them: `// RUN: whole_rows --target strict`, or `--target any CODE CODE` for
one that holds these limits alone.

A case about limits says `// LIMITS: target CODE CODE` instead: the text is checked against these
rows, which the target has to hold (`any` asks for rows that no target need hold), and CHECK lines
read the diagnostics; or `// CLEAN`, where there must be none.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import Options
from filecheck.parser import Parser, pattern_for_opts

from orion_ane.ane.check import check
from orion_ane.ane.targets import Target, target
from orion_ane.ir import verify
from orion_ane.mil.emit import emit
from orion_ane.mil.parse import parse_graph
from orion_ane.passes.legal import transform


def pytest_collect_file(parent: pytest.Collector, file_path: Path) -> pytest.Collector | None:
    return MilFile.from_parent(parent, path=file_path) if file_path.suffix == ".mil" else None


def of_words(words: list[str]) -> Target | None:
    """The target that a RUN line names, if it names one."""
    match words:
        case []:
            return None
        case [name]:
            return target(name)
        case ["any", *codes]:
            return Target("any", frozenset(codes))
    raise MismatchError(f"no such target: {words}")


class MilFile(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        line = 1
        for text in re.split(r"(?m)^// -----.*\n", self.path.read_text(encoding="utf-8")):
            above = "\n" * (line - 1)  # so that errors count the file's lines
            yield Case.from_parent(self, name=f"line {line}", text=above + text, line=line)
            line += text.count("\n") + 1


class Case(pytest.Item):
    def __init__(self, *, text: str, line: int, **options) -> None:
        super().__init__(**options)
        self.text, self.line = text, line

    def runtest(self) -> None:
        limits = re.search(r"(?m)^// LIMITS: (\S+) (.+)$", self.text)
        if limits is not None:
            self.check_limits(limits[1], frozenset(limits[2].split()))
            return
        run = re.search(r"(?m)^// RUN:(.*)$", self.text)
        if run is None:
            raise MismatchError("no line `// RUN: pass, pass` or `// LIMITS: target CODE`")
        named, _, device = run[1].partition("--target")
        passes = [name.strip() for name in named.split(",")]
        must_change = not re.search(r"(?m)^// UNCHANGED$", self.text)
        before = parse_graph(self.text)
        verify(before)
        after = transform(before, passes, of_words(device.split()))
        verify(after)
        printed = emit(after, short=True).text
        if (after is not before) != must_change:
            raise MismatchError(f"the passes did {'not' * must_change} fire\n\n{printed}")
        if must_change:
            self.check(printed)

    def check_limits(self, name: str, codes: frozenset[str]) -> None:
        """Check the text against some rows of a target."""
        if name != "any" and not codes <= target(name).limits:
            raise MismatchError(f"{name} does not hold {codes - target(name).limits}")
        found = [d for d in check(self.text, Target("case", codes)) if d.code]
        printed = "\n".join(map(str, found))
        if re.search(r"(?m)^// CLEAN$", self.text):
            if found:
                raise MismatchError(f"not clean:\n\n{printed}")
            return
        self.check(printed)

    def check(self, printed: str) -> None:
        """Run FileCheck in process."""
        options = Options(str(self.path))
        checks = Parser(options, io.StringIO(self.text), *pattern_for_opts(options))
        matcher = Matcher(options, FInput("printed", printed), checks)
        matcher.stderr = io.StringIO()
        if matcher.run():
            raise MismatchError(f"{matcher.stderr.getvalue()}\nprinted:\n{printed}")

    def repr_failure(self, excinfo, style=None):
        if isinstance(excinfo.value, MismatchError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self):
        return self.path, self.line - 1, f"{self.path.name}, {self.name}"


class MismatchError(Exception):
    """What a case says and what the passes do are two things."""
