"""The device in this process: models are made, compiled, loaded, evaluated and unloaded.

Nothing here survives an Objective-C exception or a fault of the framework, which end the process:
`worker` runs it in one of its own.
"""

from __future__ import annotations

import ctypes
import mmap
import shutil
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from orion_ane.errors import BackendError
from orion_ane.runtime.backends.neural_engine import folders
from orion_ane.runtime.backends.neural_engine import signatures as call
from orion_ane.runtime.backends.neural_engine.libraries import Libraries, libraries
from orion_ane.runtime.backends.neural_engine.objc import Pointer, Runtime
from orion_ane.runtime.backends.neural_engine.signatures import Method
from orion_ane.runtime.backends.neural_engine.surface import Surface, Surfaces

QOS = 21
"""What every public project passes; no value was seen to make a difference."""
TEXT, PLAN = "model.mil", "net.plist"
ROOT = "@model_path/"
RETRY_AFTER_S = 0.1
"""A load that fails is tried once more: projects report that the second one works."""


class Device:
    """The framework with its signatures checked.

    Args:
        home: the folder of who uses it, by which its claims to the framework's folders are told
            apart from those of other processes.
        of: where the libraries lie; by default, those of this machine.

    Raises:
        BackendError: there is no framework here, or it is not what the bridge was written for.
    """

    def __init__(self, home: Path, of: Libraries | None = None) -> None:
        self._home = home
        self.runtime = Runtime(of or libraries())
        self._calls = {method: self.runtime.bind(method) for method in call.REQUIRED}
        self.surfaces = Surfaces(self.runtime)
        with self.runtime.pool():
            self._empty = self.runtime.retain(self.runtime.dictionary(()))
        self.compiles = 0
        self._holders: dict[Path, int] = {}
        self._lock = threading.Lock()

    def model(self, text: str, files: Mapping[str, Path]) -> Model:
        """A model of a text and its blob files, of which nothing is compiled or loaded yet.

        Args:
            text: MIL.
            files: where the blob files lie, by their path in the text.

        Raises:
            BackendError: the framework takes no such text or files.
        """
        maps = {path: _mapped(file) for path, file in sorted(files.items())}
        with self.runtime.pool():
            entries = [(self.runtime.string(p), self._entry(data)) for p, data in maps.items()]
            weights = self.runtime.dictionary(entries)
            description = self.send(
                call.DESCRIBE,
                self.runtime.class_named(call.DESCRIBE.owner),
                self.runtime.data(text.encode()),
                weights,
                None,
            )
            made = description and self.send(
                call.MAKE, self.runtime.class_named(call.MODEL), description
            )
            if not made:
                raise BackendError("compile", "the framework takes no such text or weights")
            directory = self.runtime.text(self.send(call.DIRECTORY, made))
            self.runtime.retain(made)
        return Model(self, made, Path(directory or ""), text, files, maps)

    def _entry(self, data: memoryview) -> Pointer:
        """The dictionary of one blob file.

        The framework takes its first value, in the dictionary's own order, as the data: where that
        would be the offset, which every project passes, the offset is left out.
        """
        runtime = self.runtime
        at = ctypes.addressof(ctypes.c_ubyte.from_buffer(data)) if len(data) else 0
        content = (runtime.string("data"), runtime.data_at(at, len(data)))
        both = runtime.dictionary([(runtime.string("offset"), runtime.number(0)), content])
        return both if runtime.begins_with_data(both) else runtime.dictionary([content])

    def send(self, method: Method, receiver: Pointer, *arguments: object) -> Pointer:
        """What a method answers."""
        answer: Pointer = self._calls[method](receiver, *arguments)
        return answer

    def want(self, what: str, method: Method, receiver: Pointer, *arguments: object) -> None:
        """Call a method that may fail, whose last argument is an NSError.

        Raises:
            BackendError: it failed; the message has the words, the domain and the code.
        """
        error = ctypes.c_void_p()  # of this call: other threads have theirs
        with self.runtime.pool():
            if not self._calls[method](receiver, *arguments, ctypes.addressof(error)):
                raise BackendError(what, self.runtime.error(error.value))

    def request(self, inputs: Sequence[Surface], outputs: Sequence[Surface]) -> Request:
        """Surfaces to read and to write, for any number of evaluations.

        Raises:
            BackendError: the framework takes no such request.
        """
        runtime = self.runtime

        def wrapped(surfaces: Sequence[Surface]) -> Pointer:
            owner = runtime.class_named(call.WRAP.owner)
            return runtime.array(self.send(call.WRAP, owner, surface.of) for surface in surfaces)

        def counted(surfaces: Sequence[Surface]) -> Pointer:
            return runtime.array(runtime.number(i) for i in range(len(surfaces)))

        with runtime.pool():
            made = self.send(
                call.REQUEST,
                runtime.class_named(call.REQUEST.owner),
                wrapped(inputs),
                counted(inputs),
                wrapped(outputs),
                counted(outputs),
                None,
                None,
                runtime.number(0),
            )
            if not made:
                raise BackendError("request", "the framework takes no such surfaces")
            runtime.retain(made)
        return Request(self, made)

    @property
    def no_options(self) -> Pointer:
        """An empty dictionary: nil is refused."""
        return self._empty

    def hold(self, directory: Path) -> None:
        """Count one more model whose files lie there: equal texts and weights share them."""
        with self._lock:
            if directory not in self._holders:
                folders.claim(directory, self._home)
            self._holders[directory] = self._holders.get(directory, 0) + 1

    def let_go(self, directory: Path) -> None:
        """Remove what lies there with its last model, unless another process has one."""
        with self._lock:
            self._holders[directory] -= 1
            if not self._holders[directory]:
                del self._holders[directory]
                folders.release(directory, self._home)


class Request:
    """Surfaces as the framework takes them, which it holds while the request lives."""

    def __init__(self, device: Device, of: Pointer) -> None:
        self.of = of
        self._end = weakref.finalize(self, device.runtime.release, of)

    def close(self) -> None:
        """Release it; a second call does nothing."""
        self._end()


class Model:
    """A model, from its text until it is closed.

    Attributes:
        directory: where the framework reads its files, which it was asked and is never guessed.
        text: its MIL.
    """

    def __init__(
        self,
        device: Device,
        of: Pointer,
        directory: Path,
        text: str,
        files: Mapping[str, Path],
        maps: Mapping[str, memoryview],
    ) -> None:
        self.directory, self.text = directory, text
        self._device, self._of, self._files, self._maps = device, of, files, maps
        self._is_loaded, self._is_closed = False, False
        self._plan = b""
        self._end = weakref.finalize(self, device.runtime.release, of)
        device.hold(directory)

    def compile(self) -> None:
        """Compile it from its directory, and load it.

        Raises:
            BackendError: the compiler refuses it, or it cannot be loaded.
        """
        with folders.alone(self.directory):
            self.write(self._files)
            self._device.compiles += 1
            self._want("compile", call.COMPILE, QOS, self._device.no_options)
            plan = self.directory / PLAN
            # Kept, since the directory goes when any model of the same text and weights is
            # unloaded, in this process or in another.
            self._plan = plan.read_bytes() if plan.is_file() else b""
            self._load()

    def take_plan(self, donor: Model) -> None:
        """Lay a donor's compiled plan beside the files, and load it without a compile.

        Raises:
            BackendError: the donor has none, or it cannot be loaded.
        """
        if not donor._plan:
            raise BackendError("load", "the donor's compile has left no plan in its directory")
        with folders.alone(self.directory):
            self.write(self._files)
            self._plan = donor._plan
            _replace(self.directory / PLAN, self._plan)
            self._load()

    def _load(self) -> None:
        """Load it; once more after a failure."""
        try:
            self._want("load", call.LOAD, QOS, self._device.no_options)
        except BackendError:
            time.sleep(RETRY_AFTER_S)
            self._want("load", call.LOAD, QOS, self._device.no_options)
        self._is_loaded = True

    def _unload(self) -> None:
        """Unload it; its directory goes with that."""
        if self._is_loaded:
            self._is_loaded = False
            self._want("unload", call.UNLOAD, QOS)

    def reload(self, files: Mapping[str, Path], *, purge: bool = False) -> None:
        """Unload, lay other blob files there, load: whether they take effect is the device's.

        Args:
            files: by their path in the text.
            purge: let the daemon forget what it compiled, in between.

        Raises:
            BackendError: one of the steps fails.
        """
        with folders.alone(self.directory):
            self._unload()
            if purge:
                with self._device.runtime.pool():
                    self._device.send(call.PURGE, self._of)
            self.write(files)
            self._files = files
            self._load()

    def evaluate(self, request: Request) -> None:
        """Run it on the request's surfaces.

        Raises:
            BackendError: the device cannot.
        """
        self._want("run", call.EVALUATE, QOS, self._device.no_options, request.of)

    def write(self, files: Mapping[str, Path]) -> None:
        """Its text and blob files, where the framework reads them."""
        self.directory.mkdir(parents=True, exist_ok=True)
        _replace(self.directory / TEXT, self.text.encode())
        for path, file in files.items():
            _link(file, self.directory / _below(path))

    def close(self) -> None:
        """Unload and remove it; a second call does nothing.

        Raises:
            BackendError: it could not be unloaded; it is removed none the less.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            with folders.alone(self.directory):
                self._unload()
        finally:
            self._end()
            self._maps = {}
            self._device.let_go(self.directory)

    def _want(self, what: str, method: Method, *arguments: object) -> None:
        self._device.want(what, method, self._of, *arguments)


def _below(path: str) -> PurePosixPath:
    """A blob file's place below its model's directory.

    Raises:
        BackendError: it lies elsewhere.
    """
    below = PurePosixPath(path.removeprefix(ROOT))
    if not path.startswith(ROOT) or below.is_absolute() or ".." in below.parts:
        raise BackendError("compile", "a weight file's path", got=path, want=f"{ROOT}…")
    return below


def _mapped(file: Path) -> memoryview:
    """A file's bytes, of which no copy is made."""
    with file.open("rb") as opened:
        if not file.stat().st_size:
            return memoryview(bytearray())
        return memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY))


def _replace(file: Path, data: bytes) -> None:
    beside = file.with_name(file.name + ".new")
    beside.write_bytes(data)
    beside.replace(file)


def _link(file: Path, to: Path) -> None:
    """The same bytes at another place: without a copy where the file system allows it."""
    to.parent.mkdir(parents=True, exist_ok=True)
    beside = to.with_name(to.name + ".new")
    beside.unlink(missing_ok=True)
    try:
        beside.hardlink_to(file)
    except OSError:
        shutil.copyfile(file, beside)
    beside.replace(to)
