"""Fuel: what a chat template may use up, so that a hostile one ends instead of hanging.

Jinja's sandbox keeps a template from reaching Python; it does not keep one from looping for ever
or doubling a string forty times. Here each turn of a loop and each value made costs fuel, paid
before it is made where it could be much larger than what it is made of, and a template that runs
dry is refused. It is counted, not timed: a template that works once always works.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import wraps
from types import GeneratorType
from typing import Any

from jinja2.exceptions import SecurityError

TURN = 100  # fuel for one turn of a loop or one call of a macro
NODE = 10  # for one value inside a container; a character costs 1
TANK = 4_000_000  # 40,000 turns, or four million characters
PER_CHARACTER = 64  # what each character of the messages adds
PER_MESSAGE = 20_000
MAX_DEPTH = 64  # containers within containers
MAX_BITS = 4096  # of an integer

# No chat template needs these, and their results may be of any size.
REFUSED_METHODS = frozenset(
    {"center", "expandtabs", "format_map", "ljust", "rjust", "translate", "zfill"}
)
REFUSED_FILTERS = frozenset(
    {"batch", "center", "filesizeformat", "format", "pprint", "slice", "truncate", "urlize"}
    | {"wordwrap", "xmlattr"}
)

# These hand on items of what they are given. Templates use them on whole conversations.
CHOOSING_FILTERS = frozenset(
    {"d", "default", "first", "items", "last", "list", "random", "reject", "rejectattr"}
    | {"reverse", "select", "selectattr", "sort", "unique"}
)

_left: ContextVar[list[int]] = ContextVar("fuel")


def fill(messages: int, characters: int) -> None:
    """Start a rendering of so many messages with so many characters."""
    _left.set([TANK + PER_MESSAGE * messages + PER_CHARACTER * characters])


def spend(fuel: int) -> bool:
    """Pay; True, so that it can stand in a condition.

    Raises:
        SecurityError: there is not so much left.
    """
    tank = _left.get()
    tank[0] -= max(fuel, 0)
    if tank[0] < 0:
        raise SecurityError("the template does too much work")
    return True


def weigh(value: Any, depth: int = 0) -> Any:
    """Pay for a value by its size when printed, and hand it on."""
    match value:
        case str() | bytes():
            spend(len(value))
        case int() if value.bit_length() > MAX_BITS:
            raise SecurityError("the template makes a number too large")
        case list() | tuple() | dict():
            if depth > MAX_DEPTH:
                raise SecurityError("the template nests values too deeply")
            for item in value.items() if isinstance(value, dict) else value:
                spend(NODE)
                weigh(item, depth + 1)
        case GeneratorType():
            return _metered(value, weigh)
        case _:
            pass
    return value


def count(value: Any) -> Any:
    """Pay for a value whose items exist and are paid for already, and hand it on."""
    match value:
        case list() | tuple() | dict():
            spend(NODE * len(value))
        case GeneratorType():
            return _metered(value, count)
        case _:
            return weigh(value)
    return value


def _metered(items: Iterable[Any], pay: Callable[[Any], Any]) -> Iterator[Any]:
    for item in items:
        spend(TURN)
        yield pay(item)


def joined(*values: Any) -> str:
    """What `~` makes of its operands."""
    texts = [str(weigh(value)) for value in values]
    spend(sum(map(len, texts)))
    return "".join(texts)


def foresee_operator(operator: str, left: Any, right: Any) -> None:
    """Pay for what an arithmetic operator is about to make."""
    match operator, left, right:
        case "*", int(), str() | bytes() | list() | tuple():
            spend(left * NODE * max(len(right), 1))
        case "*", str() | bytes() | list() | tuple(), int():
            spend(right * NODE * max(len(left), 1))
        case "**", int(), int() if left.bit_length() * max(right, 0) > MAX_BITS:
            raise SecurityError("the template makes a number too large")
        case "%", str() | bytes(), _:
            _check_format(str(left))
            weigh(right)
        case _:
            pass


def foresee_call(called: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Pay for what a method of a text is about to make."""
    method = getattr(called, "__wrapped__", called)  # Jinja wraps str.format
    owner = getattr(method, "__self__", None)
    if not isinstance(owner, (str, bytes)):
        return
    spend(len(owner))
    match method.__name__, args:
        case "replace", (old, new, *_):
            _foresee_replace(owner, old, new)
        case "replace", _:
            raise SecurityError("replace wants what to replace, and by what, in this order")
        case "join", (values, *_):
            _foresee_join(owner, values)
        case "format", _:
            _check_format(str(owner))
            weigh([*args, kwargs])
        case name, _ if name in REFUSED_METHODS:
            raise SecurityError(f"chat templates cannot use str.{name}")


def metered_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The filter, which pays for what it takes and what it makes."""
    skip = 1 if hasattr(function, "jinja_pass_arg") else 0  # the context or the environment

    @wraps(function)
    def metered(*args: Any, **kwargs: Any) -> Any:
        value, *rest = [*args[skip:], *kwargs.values()] or [None]
        spend(len(value) if hasattr(value, "__len__") else 0)
        match name, rest:
            case "replace", [old, new, *_]:
                _foresee_replace(str(value), str(old), str(new))
            case "join", [separator, *_]:
                _foresee_join(str(separator), value)
            case "indent", [width, *_]:
                step = width if isinstance(width, int) else len(str(width))
                spend(step * (str(value).count("\n") + 1))
            case _:
                pass
        pay = count if name in CHOOSING_FILTERS else weigh
        return pay(function(*args, **kwargs))

    return metered


def _foresee_replace(text: Any, old: Any, new: Any) -> None:
    if type(text) is type(old) is type(new):
        spend(len(text) + (text.count(old) if old else len(text) + 1) * len(new))


def _foresee_join(separator: Any, values: Any) -> None:
    weigh(values)
    spend(len(separator) * len(values) if hasattr(values, "__len__") else 0)


def _check_format(text: str) -> None:
    """Refuse widths that are large, or that are themselves arguments."""
    if re.search(r"\d{5}|\*|\{[^{}]*\{", text.replace("{{", "").replace("%%", "")):
        raise SecurityError("the template formats a value too widely")
