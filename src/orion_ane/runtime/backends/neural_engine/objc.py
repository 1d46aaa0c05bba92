"""The Objective-C runtime, called without a compiler: one fixed C type for each signature.

`objc_msgSend` is never called as a variadic function, whose arguments Apple's arm64 puts elsewhere,
and its own argument types are never set, which other threads would see.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from orion_ane.errors import BackendError
from orion_ane.runtime.backends.neural_engine import encoding
from orion_ane.runtime.backends.neural_engine.libraries import Libraries
from orion_ane.runtime.backends.neural_engine.signatures import FOUNDATION, Method

Pointer: TypeAlias = int | None
"""An object, a class or a selector; None is nil."""
Call: TypeAlias = Callable[..., Any]

HINT = "macOS may have changed it; 'orion doctor' lists all that differs"


def open_library(path: str) -> ctypes.CDLL:
    """A library, whose calls let other threads of the interpreter go on.

    Raises:
        BackendError: it cannot be loaded.
    """
    try:
        return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise BackendError("device ane", "a library cannot be loaded", got=error) from error


def function(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Call:
    """A C function with its types.

    Raises:
        BackendError: the library has none of that name.
    """
    try:
        found = library[name]
    except AttributeError as error:
        raise BackendError(f"function {name}", "is not in its library", hint=HINT) from error
    found.restype, found.argtypes = result, arguments
    return found


class Runtime:
    """Classes, messages, pools, and the few objects of Foundation that the bridge makes.

    Args:
        of: where the libraries lie.

    Raises:
        BackendError: one cannot be loaded, or Foundation is not what it was.
    """

    def __init__(self, of: Libraries) -> None:
        self.libraries = of
        self.engine = open_library(of.engine) if of.stand_in is None else self._after(of)
        objc = open_library(of.objc)
        short = ctypes.PyDLL(of.objc)  # calls too short to let other threads in
        pointer, text = ctypes.c_void_p, ctypes.c_char_p
        self._class = function(short, "objc_getClass", pointer, text)
        self._selector = function(short, "sel_registerName", pointer, text)
        self._of_instance = function(short, "class_getInstanceMethod", pointer, pointer, pointer)
        self._of_class = function(short, "class_getClassMethod", pointer, pointer, pointer)
        self._types = function(short, "method_getTypeEncoding", text, pointer)
        self._push = function(short, "objc_autoreleasePoolPush", pointer)
        self._pop = function(short, "objc_autoreleasePoolPop", None, pointer)
        self.retain = function(short, "objc_retain", pointer, pointer)
        self.release = function(short, "objc_release", None, pointer)
        self._send = ctypes.cast(objc.objc_msgSend, pointer).value or 0
        self._made: dict[tuple[str, bool], Call] = {}
        self.foundation = open_library(of.foundation)
        self._calls = {method.selector: self.bind(method) for method in FOUNDATION}

    def _after(self, of: Libraries) -> ctypes.CDLL:
        """The engine's library, behind those that a stand-in of it asks for."""
        for path in (of.objc, of.surfaces):
            open_library(path)
        return open_library(of.engine)

    # Classes and methods

    def class_named(self, name: str) -> Pointer:
        """A class, or None."""
        found: Pointer = self._class(name.encode())
        return found

    def types_of(self, method: Method) -> str | None:
        """The encoding that this system declares; None where the class or the method is missing."""
        owner = self.class_named(method.owner)
        if not owner:
            return None
        ask = self._of_class if method.kind == "+" else self._of_instance
        found = ask(owner, self._selector(method.selector.encode()))
        return self._types(found).decode() if found else None

    def bind(self, method: Method) -> Call:
        """What sends the message: `call(receiver, *arguments)`.

        Raises:
            BackendError: this system declares other types, or no such method.
        """
        found = self.types_of(method)
        if found is None:
            raise BackendError(str(method), "is missing", want=method.types, hint=HINT)
        if encoding.compare(method.types, found) == "mismatch":
            what = "has other types than the bridge was written for"
            raise BackendError(str(method), what, got=found, want=method.types, hint=HINT)
        send = self._prototype(method.types, keeps_lock=not method.may_block)
        selector = self._selector(method.selector.encode())

        def call(receiver: Pointer, *arguments: object) -> Any:
            return send(receiver, selector, *arguments)

        return call

    def _prototype(self, types: str, *, keeps_lock: bool) -> Call:
        key = (types, keeps_lock)
        if key not in self._made:
            make = ctypes.PYFUNCTYPE if keeps_lock else ctypes.CFUNCTYPE
            self._made[key] = make(*map(encoding.ctype, encoding.parse(types)))(self._send)
        return self._made[key]

    @contextmanager
    def pool(self) -> Iterator[None]:
        """What is borrowed lives until its end; entered and left by one thread."""
        pool = self._push()
        try:
            yield
        finally:
            self._pop(pool)

    # Foundation: all of it borrowed, for as long as the pool

    def string(self, text: str) -> Pointer:
        """An NSString."""
        return self._made_by("NSString", "stringWithUTF8String:", text.encode())

    def text(self, string: Pointer) -> str | None:
        """What an NSString holds."""
        found = self._calls["UTF8String"](string) if string else None
        return None if found is None else found.decode("utf-8", "replace")

    def data(self, content: bytes) -> Pointer:
        """An NSData with a copy of some bytes."""
        at = ctypes.cast(ctypes.c_char_p(content), ctypes.c_void_p)
        return self._made_by("NSData", "dataWithBytes:length:", at, len(content))

    def data_at(self, address: int, size: int) -> Pointer:
        """An NSData of bytes that stay whose they are, and must outlive it."""
        return self._made_by(
            "NSData", "dataWithBytesNoCopy:length:freeWhenDone:", address, size, False
        )

    def number(self, value: int) -> Pointer:
        """An NSNumber."""
        return self._made_by("NSNumber", "numberWithLongLong:", value)

    def array(self, items: Iterable[Pointer]) -> Pointer:
        """An NSArray."""
        listed = list(items)
        made = self._made_by("NSMutableArray", "arrayWithCapacity:", len(listed))
        for item in listed:
            self._calls["addObject:"](made, item)
        return made

    def dictionary(self, items: Iterable[tuple[Pointer, Pointer]]) -> Pointer:
        """An NSDictionary of keys and values; never nil, also where it is empty."""
        made = self._made_by("NSMutableDictionary", "dictionary")
        for key, value in items:
            self._calls["setObject:forKey:"](made, value, key)
        return made

    def begins_with_data(self, dictionary: Pointer) -> bool:
        """Whether the first value of a dictionary, in its own order, is an NSData."""
        first = self._calls["objectAtIndex:"](self._calls["allValues"](dictionary), 0)
        return bool(self._calls["isKindOfClass:"](first, self.class_named("NSData")))

    def error(self, error: Pointer) -> str:
        """The words, the domain and the code of an NSError; a failure may come without one."""
        if not error:
            return "it failed without an NSError"
        words = self.text(self._calls["localizedDescription"](error))
        return f"{words} [{self.text(self._calls['domain'](error))} {self._calls['code'](error)}]"

    def exception(self, exception: Pointer) -> tuple[str, str]:
        """The name and the reason of an NSException."""
        found = (self.text(self._calls[key](exception)) for key in ("name", "reason"))
        name, reason = (part or "?" for part in found)
        return name, reason

    def _made_by(self, owner: str, selector: str, *arguments: object) -> Pointer:
        made: Pointer = self._calls[selector](self.class_named(owner), *arguments)
        return made
