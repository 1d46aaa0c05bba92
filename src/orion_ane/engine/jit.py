"""How kernels are compiled: at their first call, kept on disk, without Python's lock."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

import numba
from numba.core.caching import FunctionCache
from numba.extending import intrinsic as _intrinsic

from orion_ane.errors import BackendError

_log = logging.getLogger("orion_ane")

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
        options: dict[str, Any] = {"parallel": parallel, "fastmath": set(fastmath), "nogil": True}
        if is_part:  # Python does not call it: a part less to compile
            options |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
        kernel = numba.njit(function, **options)
        if not is_part:
            with suppress(RuntimeError):  # numba finds no directory that it can write
                kernel._cache = _Cache(function, sources)  # noqa: SLF001 - what cache=True does
        return cast("F", kernel)

    return decorate


class _Cache(FunctionCache):
    """numba's own, which looks at the file of the function alone."""

    def __init__(self, function: Callable[..., Any], sources: tuple[ModuleType, ...]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]  # numba has no types
        texts = (Path(str(module.__file__)).read_bytes() for module in sources)
        self._sources = hashlib.sha256(b"".join(texts)).hexdigest()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """A kernel that was kept; None where it must be compiled, of which the user is told."""
        found = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        if found is None:
            _tell()
        return found

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        key = super()._index_key(sig, codegen)  # type: ignore[no-untyped-call]  # likewise
        return key, self._sources


@cache
def _tell() -> None:
    """Say once in a process what takes so long."""
    _log.warning("compiling kernels for this machine, once: some seconds")


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
