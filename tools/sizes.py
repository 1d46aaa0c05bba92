"""Sizes of the source: what is too long to read at once, and how big the core has grown.

Prints files over 400 lines and functions over 40 as a table, and the core against its 3,000 lines
of code; exits 1 where a file passes 700 lines, a function 80, or the core 3,500.  Blank lines,
comments and docstrings of the core are free: a limit must not make anyone explain less.
"""

from __future__ import annotations

import argparse
import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "orion_ane"
CORE = ("ir", "ops", "passes", "autodiff", "mil")
OUTSIDE = ("ops/foreign/", "passes/legal/")
"""Read one at a time: rows that exist only to be imported, and what single devices demand."""

FILE_LINES, FILE_MAX = 400, 700
FUNCTION_LINES, FUNCTION_MAX = 40, 80
CORE_LINES, CORE_MAX = 3000, 3500

FREE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Size:
    """Something that is over its soft size: what, where, how long, and the most it may be."""

    lines: int
    most: int
    what: str


def docstring_lines(tree: ast.Module) -> set[int]:
    """The lines that docstrings cover."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found: set[int] = set()
    for owner in ast.walk(tree):
        if isinstance(owner, owners) and ast.get_docstring(owner, clean=False) is not None:
            text = owner.body[0]
            found.update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return found


def code_lines(text: str) -> int:
    """How many lines of `text` hold code."""
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in FREE:
            found.update(range(token.start[0], token.end[0] + 1))
    return len(found - docstring_lines(ast.parse(text)))


def functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Each function's name and length, decorators left out, nested ones included."""
    for node in ast.walk(tree):
        if isinstance(node, Function):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def oversized(source: Path) -> list[Size]:
    """What is over its soft size below `source`, the longest first."""
    found = []
    for path in sorted(source.rglob("*.py")):
        text, name = path.read_text(encoding="utf-8"), path.relative_to(source).as_posix()
        if (lines := len(text.splitlines())) > FILE_LINES:
            found.append(Size(lines, FILE_MAX, name))
        for function, lines in functions(ast.parse(text)):
            if lines > FUNCTION_LINES:
                found.append(Size(lines, FUNCTION_MAX, f"{name}: {function}"))
    return sorted(found, key=lambda size: (-size.most, -size.lines, size.what))


def core_lines(source: Path) -> dict[str, int]:
    """Lines of code of each package of the core."""
    found = {}
    for package in CORE:
        paths = {p.relative_to(source).as_posix(): p for p in (source / package).rglob("*.py")}
        kept = [path for name, path in paths.items() if not name.startswith(OUTSIDE)]
        found[package] = sum(code_lines(path.read_text(encoding="utf-8")) for path in kept)
    return found


def main() -> int:
    """Print the tables; 1 where something is over its hard limit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("source", nargs="?", type=Path, default=SOURCE)
    source = parser.parse_args().source
    sizes, core = oversized(source), core_lines(source)
    total = sum(core.values())
    print(f"lines  most  over {FILE_LINES} a file or {FUNCTION_LINES} a function")
    for size in sizes:
        print(f"{size.lines:5} {size.most:5}  {size.what}")
    parts = ", ".join(f"{package} {lines}" for package, lines in core.items())
    over = f", {total - CORE_LINES} too many" if total > CORE_LINES else ""
    print(f"core: {total} of {CORE_LINES} lines of code{over} ({parts})")
    too_long = [size.what for size in sizes if size.lines > size.most]
    if total > CORE_MAX:
        too_long.append("the core")
    if too_long:
        print(f"too long: {', '.join(too_long)}", file=sys.stderr)
    return 1 if too_long else 0


if __name__ == "__main__":
    sys.exit(main())
