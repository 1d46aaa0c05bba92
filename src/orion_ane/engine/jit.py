"""How kernels are compiled: at their first call, kept on disk, without Python's lock."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast
from weakref import WeakSet

import numba
from numba.core import event
from numba.core.caching import FunctionCache
from numba.extending import intrinsic as _intrinsic

from orion_ane.engine.compiling import compiling, tell
from orion_ane.engine.machine_code import function
from orion_ane.engine.parts import Part
from orion_ane.errors import BackendError

_log = logging.getLogger("orion_ane")
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}  # no check of a division
_OURS: WeakSet[Callable[..., Any]] = WeakSet()  # others may have kernels in this process too

F = TypeVar("F", bound=Callable[..., Any])


def compiled(
    *,
    parallel: bool = False,
    is_part: bool = False,
    fastmath: frozenset[str] = frozenset(),
    sources: tuple[ModuleType, ...] = (),
) -> Callable[[F], F]:
    """A decorator for a kernel.

    Args:
        parallel: whether it has loops for several threads.
        is_part: whether other kernels alone call it, so that it is not kept on disk by itself and
            nothing is compiled that Python could call it by: it must not.
        fastmath: what LLVM may assume of its arithmetic.
        sources: other files that its code is made from; a change there makes it compile anew.
    """

    def decorate(function: F) -> F:
        options = _OPTIONS | {"parallel": parallel, "fastmath": set(fastmath)}
        if is_part:  # Python does not call it: a part less to compile
            options |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
            options["pipeline_class"] = Part
        kernel = _made(function, options)
        if not is_part:
            _keep(kernel, function, sources)
        return cast("F", kernel)

    return decorate


class Native:
    """A kernel that other kernels call by its address: it is compiled when that is asked for.

    So what it does is in none of them, and what no program needs is never compiled.
    """

    def __init__(self, kernel: Any, signature: str) -> None:
        self._kernel, self._signature = kernel, signature

    @cached_property
    def address(self) -> int:
        """Where its code is."""
        return int(self._compiled.library.get_pointer_to_function(self._symbol))

    @property
    def code(self) -> tuple[str, bytes] | None:
        """Its name in an object file, and that; None where numba keeps none."""
        cache = self._kernel._cache  # noqa: SLF001 - as in `_keep`
        if not isinstance(cache, _Cache):
            return None
        found = cache.object_of(self._signature, self._compiled.library.codegen)
        return None if found is None else (self._symbol, found)

    def __call__(self, *args: int) -> Any:
        """Call it from Python."""
        return self._function(*args)

    @cached_property
    def _function(self) -> Callable[..., Any]:
        return function(self.address, self._signature)

    @cached_property
    def _compiled(self) -> Any:
        self._kernel.compile(self._signature)
        (found,) = self._kernel.overloads.values()
        return found

    @property
    def _symbol(self) -> str:
        return str(self._compiled.fndesc.llvm_cfunc_wrapper_name)


def native(
    signature: str, *, sources: tuple[ModuleType, ...] = ()
) -> Callable[[Callable[..., Any]], Native]:
    """A decorator for a kernel that is called by its address.

    Args:
        signature: its types, which are numbers, as numba spells them.
        sources: as for `compiled`.
    """

    def decorate(written: Callable[..., Any]) -> Native:
        options = _OPTIONS | {"no_cpython_wrapper": True}
        kernel = _made(written, options)
        _keep(kernel, written, sources)
        return Native(kernel, signature)

    return decorate


def _made(function: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """A kernel whose compiling, reading, keeping and waiting for others' is no run's time."""
    if getattr(numba.config, "DISABLE_JIT"):  # noqa: B009 - set as it is loaded, no type knows it
        raise BackendError(
            "engine",
            "kernels run only as they are compiled",
            got="NUMBA_DISABLE_JIT=1",
            want="that variable unset",
        )
    kernel = numba.njit(function, **options)
    compile_it = kernel.compile

    def compile_aside(signature: Any) -> Any:
        with compiling():
            return compile_it(signature)

    kernel.compile = compile_aside
    _OURS.add(function)
    return kernel


def _keep(kernel: Any, function: Callable[..., Any], sources: tuple[ModuleType, ...]) -> None:
    with suppress(RuntimeError):  # numba finds no directory that it can write
        kernel._cache = _Cache(function, sources)  # noqa: SLF001 - what cache=True does


class _Cache(FunctionCache):
    """numba's own, which looks at the file of the function alone."""

    def __init__(self, function: Callable[..., Any], sources: tuple[ModuleType, ...]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]  # numba has no types
        texts = (Path(str(module.__file__)).read_bytes() for module in sources)
        self._sources = hashlib.sha256(b"".join(texts)).hexdigest()

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        key = super()._index_key(sig, codegen)  # type: ignore[no-untyped-call]  # likewise
        return key, self._sources

    def object_of(self, signature: str, codegen: Any) -> bytes | None:
        """The object file of a kernel that was kept."""
        kept = self._cache_file.load(self._index_key(signature, codegen))
        if kept is None:
            return None
        (_, kind, data), *_ = kept
        return bytes(data[0]) if kind == "object" else None


class _Listener(event.Listener):
    """Tells the user of each compilation before it begins."""

    def on_start(self, event: Any) -> None:
        if event.data["dispatcher"].py_func in _OURS:
            tell()

    def on_end(self, event: Any) -> None:
        pass


event.register("numba:compile", _Listener())


def check_processor(machine: str, features: Mapping[str, bool]) -> None:
    """Refuse a processor whose fp16 conversions LLVM would leave to functions that are not there.

    Raises:
        BackendError: an x86-64 of before 2013.
    """
    missing = [name for name in ("f16c", "fma") if not features.get(name)]
    if machine.lower() in ("x86_64", "amd64") and missing:
        raise BackendError(
            "engine",
            "the processor lacks instructions",
            got=f"no {' and no '.join(missing)}",
            want="x86-64-v3 or ARM64",
        )


def intrinsic(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator for a function that writes LLVM's code itself; called without its context."""
    return cast("Callable[..., Any]", _intrinsic(function))
