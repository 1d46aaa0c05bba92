"""IOSurfaces: the memory that the engine reads and writes."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from orion_ane.errors import BackendError
from orion_ane.runtime.backends.neural_engine.objc import Pointer, Runtime, function, open_library

READ_ONLY = 1
KEYS = ("Width", "Height", "BytesPerElement", "BytesPerRow", "AllocSize", "PixelFormat")


class Surfaces:
    """Makes surfaces.

    Args:
        runtime: whose dictionaries describe them.

    Raises:
        BackendError: a function is missing.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        library, pointer = open_library(runtime.libraries.surfaces), ctypes.c_void_p
        core = open_library(runtime.libraries.core)
        lock = (ctypes.c_int, pointer, ctypes.c_uint32, pointer)
        self._create = function(library, "IOSurfaceCreate", pointer, pointer)
        self.lock = function(library, "IOSurfaceLock", *lock)
        self.unlock = function(library, "IOSurfaceUnlock", *lock)
        self.base = function(library, "IOSurfaceGetBaseAddress", pointer, pointer)
        self.release = function(core, "CFRelease", None, pointer)
        self._keys = {name: pointer.in_dll(library, f"kIOSurface{name}").value for name in KEYS}

    def make(self, size: int) -> Surface:
        """A flat surface of `size` bytes.

        Raises:
            BackendError: the system has none.
        """
        values = dict.fromkeys(KEYS, size) | {"Height": 1, "BytesPerElement": 1, "PixelFormat": 0}
        with self._runtime.pool():
            items = [(self._keys[name], self._runtime.number(n)) for name, n in values.items()]
            made = self._create(self._runtime.dictionary(items))
        if not made:
            raise BackendError("surface", "the system has no memory for it", got=f"{size:,} bytes")
        return Surface(self, made, size)


class Surface:
    """One surface; it is released with its last holder, or by `close`.

    Attributes:
        of: the IOSurfaceRef.
        size: in bytes.
    """

    def __init__(self, surfaces: Surfaces, of: Pointer, size: int) -> None:
        self.of, self.size, self._surfaces = of, size, surfaces
        self._end = weakref.finalize(self, surfaces.release, of)

    @contextmanager
    def mapped(self, *, to_read: bool = False) -> Iterator[memoryview]:
        """Its bytes, while it is locked.

        Raises:
            BackendError: it cannot be locked.
        """
        options = READ_ONLY if to_read else 0
        code = self._surfaces.lock(self.of, options, None)
        if code:
            raise BackendError("surface", "cannot be locked", got=f"{code:#x}")
        try:
            at = (ctypes.c_ubyte * self.size).from_address(self._surfaces.base(self.of))
            yield memoryview(at).cast("B")
        finally:
            self._surfaces.unlock(self.of, options, None)

    def close(self) -> None:
        """Release it; a second call does nothing."""
        self._end()
