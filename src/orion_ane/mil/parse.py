"""MIL text to graphs: both dialects, device form and short form, with the place of each error."""

from __future__ import annotations

from collections.abc import Mapping

from orion_ane.errors import MilError
from orion_ane.ir.graph import Graph
from orion_ane.mil.body import read_function
from orion_ane.mil.dialect import DIALECTS, OLD, PLAIN
from orion_ane.mil.lex import Tokens
from orion_ane.mil.module import Function, Module
from orion_ane.mil.written import Written, read_type


def parse(text: str, *, tolerant: bool = False) -> Module:
    """The functions of a MIL text, with or without its header.

    Args:
        text: the program.
        tolerant: keep statements that no row of the op table reads, as opaque values of the
            types that they declare, each with its problem; and returned names that nothing
            defines.  For tools that say all that is wrong at once; nothing runs such a module.

    Raises:
        MilError: the text is not MIL or has what is not supported, with line and column.
    """
    tokens = Tokens(text)
    version, build_info = _read_header(tokens)
    functions: dict[str, Function] = {}
    while not functions or tokens.next == "func":
        tokens.expect("func")
        at = tokens.match
        name = tokens.word("a function name")
        if name in functions:
            raise tokens.fail("function is defined twice", at=at, got=name)
        functions[name] = read_function(tokens, version, tolerant=tolerant)
    if version:
        tokens.expect("}")
    if tokens.next:
        raise tokens.unexpected("the end of the text")
    latest = max(function.opset for function in functions.values())
    dialect = DIALECTS["ios18" if version == PLAIN else f"ios{latest}"]
    return Module(functions, dialect, build_info)


def parse_graph(text: str) -> Graph:
    """The graph of a text's only function, or of `main` where there are several.

    Raises:
        MilError: as `parse`; or there are several functions and none is `main`.
    """
    functions = parse(text).functions
    if len(functions) > 1 and "main" not in functions:
        raise MilError("mil", "no function is main", got=list(functions))
    return (functions.get("main") or next(iter(functions.values()))).graph


def _read_header(tokens: Tokens) -> tuple[str, Mapping[str, str] | None]:
    """The version, empty where there is no header, and buildInfo, None where that is missing.

    Other attributes say nothing about the meaning: they are read and passed over.
    """
    if not tokens.accept("program"):
        return "", None
    tokens.expect("(")
    version = tokens.next
    if version not in (OLD, PLAIN):
        raise tokens.fail("unknown version", got=version[:40], want=f"{OLD} or {PLAIN}")
    tokens.advance()
    tokens.expect(")")
    found: dict[str, dict[str, str]] = {}
    if tokens.accept("["):
        while not found or tokens.accept(","):
            at = tokens.match
            key = tokens.word("an attribute")
            if key in found:
                raise tokens.fail("attribute is given twice", at=at, got=key)
            tokens.expect("=")
            found[key] = _read_dict(tokens)
        tokens.expect("]")
    tokens.expect("{")
    return version, found.get("buildInfo")


def _read_dict(tokens: Tokens) -> dict[str, str]:
    """A constant `dict<string, string>({{"key", "value"}, …})`."""
    at = tokens.match
    tokens.expect("dict")
    tokens.expect("<")
    keys = read_type(tokens)
    tokens.expect(",")
    if keys != read_type(tokens) or keys != Written("string", ()):
        raise tokens.fail("dict not supported", at=at, want="a dict of strings")
    for token in (">", "(", "{"):
        tokens.expect(token)
    pairs: dict[str, str] = {}
    while tokens.next != "}":
        if pairs:
            tokens.expect(",")
        tokens.expect("{")
        at = tokens.match
        key = tokens.string()
        if key in pairs:
            raise tokens.fail("key is given twice", at=at, got=key)
        tokens.expect(",")
        pairs[key] = tokens.string()
        tokens.expect("}")
    tokens.advance()
    tokens.expect(")")
    return pairs
