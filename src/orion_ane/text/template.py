"""ChatTemplate: messages to text by the model's own Jinja template, in a sandbox with bounds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

from jinja2 import Template, TemplateError, UndefinedError

from orion_ane.errors import DataError
from orion_ane.text import fuel
from orion_ane.text.codec import NONCHARACTERS
from orion_ane.text.sandbox import Meter, Sandbox

Message: TypeAlias = Mapping[str, object]

MAX_TEMPLATE = 1 << 20  # characters
# What can go wrong inside a template that is not Jinja's own: Python's operators and methods.
_FAILURES = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
)


class ChatTemplate:
    """A template, compiled when it is first used: a model with a broken one still generates."""

    def __init__(self, source: str, where: str = "chat template") -> None:
        self._source, self._where = source, where

    @cached_property
    def _template(self) -> Template:
        size = len(self._source)
        if size > MAX_TEMPLATE:
            raise DataError(self._where, "too long", got=size, want=f"at most {MAX_TEMPLATE}")
        environment = Sandbox()
        try:
            tree = Meter(environment).visit(environment.parse(self._source))
            return environment.from_string(tree)
        except _FAILURES as error:
            raise DataError(self._where, "cannot be compiled", got=_words(error)) from error

    def render(
        self,
        messages: Sequence[Message],
        *,
        generation_prompt: bool,
        names: Mapping[str, str],
        guarded: Sequence[str] = (),
    ) -> list[tuple[str, bool]]:
        """The conversation as text, in parts; True marks a guarded name that a message held.

        Args:
            messages: mappings of JSON values; a None counts as left out.
            generation_prompt: what the template sees as `add_generation_prompt`.
            names: further variables: the special tokens by role.
            guarded: names to recognise in the messages.

        Raises:
            DataError: no messages, values that are not JSON, or a template that is broken or fails.
        """
        chat = _plain_chat(messages)
        texts = list(_texts(chat))
        guard = _Guard(guarded, texts)
        template = self._template
        fuel.fill(len(chat), sum(map(len, texts)))
        try:
            text = template.render(
                messages=_mapped(chat, guard.mark),
                tools=None,
                documents=None,
                add_generation_prompt=generation_prompt,
                **names,
            )
        except _FAILURES as error:
            if isinstance(error, UndefinedError):
                _want_whole(chat, error)
            raise DataError(self._where, "cannot be rendered", got=_words(error)) from error
        return guard.split(text)


class _Guard:
    """Marks names in messages, and finds them again in what the template made of them.

    The marks are noncharacters around the name, ones that no message holds.
    """

    def __init__(self, names: Sequence[str], texts: Sequence[str]) -> None:
        any_name = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
        self._name = re.compile(any_name)
        self._is_needed = bool(names) and any(map(self._name.search, texts))
        unused = [c for c in NONCHARACTERS if not any(c in text for text in texts)]
        if self._is_needed and len(unused) < 2:
            raise DataError("chat", "the messages hold every noncharacter", want="text")
        self._open, self._close = unused[:2] if self._is_needed else ("", "")
        # A template that cuts text may take away one of the marks, but not both.
        self._marked = re.compile(
            f"{self._open}({any_name}){self._close}?|({any_name}){self._close}"
        )

    def mark(self, text: str) -> str:
        """The text with marks around the names in it."""
        if not self._is_needed:
            return text
        return self._name.sub(lambda match: f"{self._open}{match[0]}{self._close}", text)

    def split(self, text: str) -> list[tuple[str, bool]]:
        """The rendered text without the marks; True where they stood."""
        if not self._is_needed:
            return [(text, False)]
        parts: list[tuple[str, bool]] = []
        end = 0
        for match in self._marked.finditer(text):
            parts += [(text[end : match.start()], False), (match[1] or match[2], True)]
            end = match.end()
        parts.append((text[end:], False))
        marks = str.maketrans("", "", self._open + self._close)
        return [(part.translate(marks), is_guarded) for part, is_guarded in parts]


def _plain_chat(messages: Sequence[Message]) -> list[dict[str, object]]:
    """Copies of the messages, made of JSON values only, so that a template reaches no other."""
    if isinstance(messages, (str, Mapping)) or not messages:
        raise DataError("chat", "no messages", got=type(messages).__name__, want="a list of them")
    chat: list[dict[str, object]] = []
    for message in messages:
        if not isinstance(message, Mapping):
            raise DataError(
                "chat", "not a message", got=type(message).__name__, want="a mapping with a role"
            )
        chat.append({str(k): _plain(v) for k, v in message.items() if v is not None})
    return chat


def _want_whole(chat: Sequence[Mapping[str, object]], error: UndefinedError) -> None:
    """Name the message that lacks what templates read, where a template has missed something.

    Raises:
        DataError: there is one.
    """
    for at, message in enumerate(chat):
        missing = [name for name in ("role", "content") if name not in message]
        if missing:
            what = f"message {at + 1} has no {' and no '.join(missing)}, which the template reads"
            got = ", ".join(message) or "an empty mapping"
            raise DataError("chat", what, got=got, want="role and content") from error


def _plain(value: object) -> object:
    match value:
        case None | bool():
            return value
        case str():
            return str.__str__(value)
        case int():
            return int(value)
        case float():
            return float(value)
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            raise DataError("chat", "not a JSON value", got=type(value).__name__)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    match value:
        case str():
            return change(value)
        case dict():
            return {key: _mapped(item, change) for key, item in value.items()}
        case list():
            return [_mapped(item, change) for item in value]
        case _:
            return value


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for item in value.values():
                yield from _texts(item)
        case list():
            for item in value:
                yield from _texts(item)
        case _:
            pass


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
