"""Sandbox: the Jinja that chat templates are written for, every loop and value metered."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from orion_ane.text import fuel

MAX_INDENT = 32  # of tojson


class _Generation(Extension):
    """`{% generation %}` … `{% endgeneration %}`: marks what the assistant wrote; prints it."""

    tags = {"generation"}  # noqa: RUF012 - Jinja declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        """The block as a call whose body is what stands inside."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_print"), [], [], body).set_lineno(line)

    def _print(self, caller: Macro) -> str:
        return str(caller())


class Sandbox(ImmutableSandboxedEnvironment):
    """What the chat templates of published models expect: block trimming, loop controls, helpers.

    Templates must be visited by `Meter` before they are compiled, and `fuel.fill` must be called
    before they are rendered.
    """

    intercepted_binops = frozenset(["+", "-", "*", "/", "//", "%", "**"])

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_Generation, loopcontrols],
            finalize=_finalize,
            optimized=False,  # constant expressions are metered like others
        )
        self.filters = {
            name: fuel.metered_filter(name, function)
            for name, function in (self.filters | {"tojson": _to_json}).items()
            if name not in fuel.REFUSED_FILTERS
        }
        self.globals = {
            **{name: self.globals[name] for name in ("range", "cycler", "joiner")},
            "dict": _dict,
            "namespace": _namespace,
            "raise_exception": _raise,
            "strftime_now": _strftime_now,
        }

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Whether a template may read it: as Jinja says, and no methods of numbers."""
        return not isinstance(obj, (int, float)) and super().is_safe_attribute(obj, attr, value)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call what the template calls, paying before and after."""
        fuel.foresee_call(obj, args, kwargs)
        return fuel.weigh(super().call(context, obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """The result of an arithmetic operator, paying before and after."""
        fuel.foresee_operator(operator, left, right)
        return fuel.count(super().call_binop(context, operator, left, right))

    # What `Meter` writes calls of into a template.
    spend = staticmethod(fuel.spend)
    weigh = staticmethod(fuel.weigh)
    joined = staticmethod(fuel.joined)


class Meter(NodeTransformer):
    """Writes into a parsed template what pays for its loops, macros, literals and joined texts."""

    def __init__(self, environment: Sandbox) -> None:
        self._environment = environment

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        """The node, its children first, with what pays for it."""
        self.generic_visit(node, *args, **kwargs)
        match node:
            case nodes.For():
                turn = self._turn(node)
                node.body.insert(0, nodes.ExprStmt(turn, lineno=node.lineno))
                if node.test is not None:  # `for … if`: what is passed over pays as well
                    node.test = nodes.And(turn, node.test, lineno=node.lineno)
            case nodes.Macro() | nodes.CallBlock():
                node.body.insert(0, nodes.ExprStmt(self._turn(node), lineno=node.lineno))
            case nodes.Concat():
                return self._call("joined", node.nodes, node)
            case nodes.List() | nodes.Dict() | nodes.Tuple(ctx="load"):
                return self._call("weigh", [node], node)
            case nodes.NSRef():
                _check_name(node.attr)
        return node

    def _turn(self, node: nodes.Node) -> nodes.Call:
        text = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        return self._call("spend", [nodes.Const(fuel.TURN + text, lineno=node.lineno)], node)

    def _call(self, name: str, args: list[nodes.Expr], node: nodes.Node) -> nodes.Call:
        function = nodes.EnvironmentAttribute(name, lineno=node.lineno)
        call = nodes.Call(function, args, [], None, None, lineno=node.lineno)
        call.set_environment(self._environment)
        return call


@pass_context  # which also keeps Jinja from printing constants while it compiles
def _finalize(_context: Context, value: Any) -> Any:
    return fuel.weigh(value)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own escapes HTML, which these templates do not want.
    if isinstance(indent, int) and indent > MAX_INDENT:
        raise SecurityError("tojson indents too far")
    return json.dumps(
        fuel.weigh(value),
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise(message: object) -> None:
    raise TemplateError(str(message))


def _strftime_now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


def _dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


def _namespace(*args: Any, **kwargs: Any) -> Namespace:
    names = dict(*args, **kwargs)
    for name in names:
        _check_name(name)
    return Namespace(names)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot hold {name!r}")
