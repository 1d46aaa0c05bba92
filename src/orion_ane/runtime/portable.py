"""What the portable backends share: a program executed by the engine, from its text and bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Literal, Protocol, TypeAlias, TypedDict, TypeVar

from orion_ane.ane.targets import Target
from orion_ane.engine import Lowered, Numerics, Tape, Threads, lower
from orion_ane.engine.ranges import Meter, RangeReport
from orion_ane.errors import BackendError, MilError
from orion_ane.ir import Graph, Node
from orion_ane.mil.parse import parse, parse_graph
from orion_ane.mil.program import Buffer, Port, Program
from orion_ane.mil.stored import stored
from orion_ane.ops import Weight
from orion_ane.runtime.backend import Executable
from orion_ane.runtime.surfaces import fed, filled, taken, want_holds
from orion_ane.types import Array

NumericsName: TypeAlias = Literal["exact", "fp16", "fp32", "bf16"]
NO_ARRAYS: Mapping[Weight, Array] = MappingProxyType({})


class Run(Protocol):
    """A run whose ports are bound; `filled` is from where on those that grow are zeros."""

    def __call__(self, *, filled: int | None = None) -> None: ...  # noqa: D102 - see the class


class _BoundRun:
    """Runs whatever is loaded then on the same arrays."""

    def __init__(
        self,
        loaded: Callable[[], Lowered],
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Array],
        growing: Collection[str],
    ) -> None:
        self._loaded, self._ports = loaded, (inputs, outputs, growing)
        self._of: Lowered | None = None

    def __call__(self, *, filled: int | None = None) -> None:
        found = self._loaded()
        assert not isinstance(found, Tape)  # other weights change no ops
        if found is not self._of:
            self._of, self._bound = found, found.bind(*self._ports)
        self._bound.run() if filled is None else self._bound.run(filled)


class PortableProgram:
    """A loaded program; one lock guards which weights it has and whether it is open.

    Args:
        program: what to load.
        graph: what its text means, read from that alone; or what a device makes of it.
        device: the backend that loads it.
        numerics: how the engine rounds.
        threads: how many threads the engine may use.

    Raises:
        MilError: the text or a blob file is not readable, or does not fit the ports.
    """

    def __init__(
        self, program: Program, graph: Graph, device: object, *, numerics: Numerics, threads: int
    ) -> None:
        self.graph, self.device = graph, device
        check_ports("input", program.inputs, graph.inputs)
        check_ports("output", program.outputs, graph.outputs)
        self._numerics, self._threads = numerics, threads
        self._lock = threading.Lock()
        self._program = program
        self._tape: Lowered | None = self._lowered(program.weights)
        self._meter: Meter | None = None

    @property
    def program(self) -> Program:
        """What was loaded, with the weights of the last reload."""
        return self._program

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by port name, as new arrays; see `Executable`."""
        tape = self._open()
        found = self._evaluated(tape, self._fed(inputs))
        return {port.name: taken(port, found[port.symbol]) for port in self._program.outputs}

    def bind(
        self,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Array],
        growing: Collection[str] = (),
    ) -> Run | None:
        """A run that reads and writes certain arrays, each packed and of its port's type.

        `growing` names inputs that hold nothing along their last axis from a place on: zeros that a
        mask hides, which are not read; a run that is not told the place reads all of them.  That
        axis may lie first instead of last, which suits the attention of one token; else it is laid
        anew at each run.

        None where a run has more to do than that: surfaces that are not what is fed, or ops that
        the engine has no commands for.
        """
        ports = (*self._program.inputs, *self._program.outputs)
        if isinstance(self._open(), Tape) or any(port.of != port.type for port in ports):
            return None
        arrays = {**inputs, **outputs}
        for port in ports:
            array = filled(port, arrays.get(port.name))
            assert array.flags.c_contiguous or port.name in growing, port.name
        return _BoundRun(
            self._open,
            {port.symbol: inputs[port.name] for port in self._program.inputs},
            {port.symbol: outputs[port.name] for port in self._program.outputs},
            [port.symbol for port in self._program.inputs if port.name in growing],
        )

    def ranges(self, inputs: Mapping[str, Array]) -> RangeReport:
        """What the values of a run come to, each of them: the same numbers, computed slowly.

        Raises:
            BackendError: as `run`.
        """
        self._open()
        fed = self._entered(self._fed(inputs))
        with self._lock:
            meter = self._meter
        if meter is None:
            meter = Meter(
                self.graph,
                self._weights(self._program.weights),
                numerics=self._numerics,
                names=_names(self._program.text, self.graph),
                threads=self._threads,
            )
            with self._lock:
                self._meter = meter
        return meter.measure(fed)

    def reload(self, weights: Mapping[str, Buffer]) -> None:
        """Exchange the blob files; see `Executable`.  After an error the old ones still hold."""
        self._open()
        check_layout(self._program.weights, weights)
        try:
            tape = self._renewed(weights)
        except MilError as error:
            raise BackendError("reload", f"the files do not fit the text: {error}") from error
        with self._lock:
            if self._tape is not None:  # closed meanwhile: it stays so
                self._tape = self._reloaded(self._tape, tape)
                self._meter = None
                self._program = replace(self._program, weights=weights, digests={})

    def close(self) -> None:
        """Unload; a second call does nothing."""
        with self._lock:
            self._tape = self._meter = None

    @property
    def is_open(self) -> bool:
        """Whether it is still loaded."""
        return self._tape is not None

    def _reloaded(self, old: Lowered, new: Lowered) -> Lowered:
        """Which runs after a reload."""
        return new

    def _fed(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The surfaces by symbol."""
        return fed(self._program.inputs, inputs)

    def _entered(self, fed: Mapping[str, Array]) -> Mapping[str, Array]:
        """What the program is given of the inputs' surfaces."""
        return fed

    def _evaluated(self, tape: Lowered, fed: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs' surfaces by symbol, of those of the inputs."""
        return tape.run(self._entered(fed))

    def _open(self) -> Lowered:
        with self._lock:
            if self._tape is None:
                raise BackendError("program", "is closed", hint="compile it again")
            return self._tape

    def _lowered(self, files: Mapping[str, Buffer]) -> Lowered:
        arrays = self._weights(files)
        return lower(self.graph, arrays, numerics=self._numerics, threads=self._threads)

    def _renewed(self, files: Mapping[str, Buffer]) -> Lowered:
        arrays, tape = self._weights(files), self._open()
        if isinstance(tape, Tape):
            return lower(self.graph, arrays, numerics=self._numerics, threads=self._threads)
        return tape.with_weights(arrays)

    def _weights(self, files: Mapping[str, Buffer]) -> dict[Weight, Array]:
        return weights_of(self.graph, files)


def check_ports(kind: str, ports: tuple[Port, ...], found: Mapping[str, Node]) -> None:
    """Refuse ports that are not those of a text.

    Raises:
        MilError: they are not, or a surface does not hold its value.
    """
    for port in ports:
        want_holds(port)
    declared = {port.symbol: port.type for port in ports}
    types = {symbol: node.type for symbol, node in found.items()}
    if declared != types:
        raise MilError("ports", f"not the {kind}s of the text", got=declared, want=types)


def weights_of(
    graph: Graph, files: Mapping[str, Buffer], known: Mapping[Weight, Array] = NO_ARRAYS
) -> dict[Weight, Array]:
    """The array of each weight of a parsed graph, as a view of its blob file.

    Those in `known` are not looked for.

    Raises:
        MilError: a file is missing or damaged, or a blob is not of the type that the text says.
    """
    weights = (node.op for node in graph.nodes if isinstance(node.op, Weight))
    return {w: known[w] if w in known else stored(w, files) for w in weights}


def _names(text: str, graph: Graph) -> dict[Node, str]:
    """The names of a graph's values in its text; none of a graph that the device made another."""
    functions = parse(text, tolerant=True).functions
    function = functions.get("main") or next(iter(functions.values()))
    written = function.graph.nodes
    if [node.op for node in written] != [node.op for node in graph.nodes]:
        return {}
    here = dict(zip(written, graph.nodes, strict=True))
    return {
        here[node]: name
        for statement in function.statements
        for node, name in zip(statement.nodes, statement.results, strict=False)
        if node in here
    }


def check_layout(old: Mapping[str, Buffer], new: Mapping[str, Buffer]) -> None:
    """Refuse other blob files than a program has, or of other sizes.

    Raises:
        BackendError: they are.
    """
    sizes = {path: memoryview(data).nbytes for path, data in old.items()}
    got = {path: memoryview(data).nbytes for path, data in new.items()}
    if sizes != got:
        raise BackendError("reload", "the files have another layout", got=got, want=sizes)


class PortableBackend:
    """A device in software that runs any number of programs on the engine.

    Args:
        threads: how many threads at most; by default one a processor.  It does not show in the
            results.
        numerics: `fp16`, `fp32`, or `exact`, which is the target's own arithmetic.

    Attributes:
        numerics: the same.

    Raises:
        ConfigError: no such number of threads.
    """

    name: str
    target: Target | None = None

    def __init__(self, *, threads: int | None = None, numerics: NumericsName) -> None:
        self._threads = Threads(threads).count
        self.numerics: NumericsName = numerics
        self._compiles = self._loads = 0
        self._lock = threading.Lock()

    @property
    def compiles(self) -> int:
        """How many programs were compiled so far."""
        return self._compiles

    @property
    def loads(self) -> int:
        """How many were loaded with a donor's code."""
        return self._loads

    def compile(self, program: Program) -> Executable:
        """Load a program, read from its text and bytes; see `Backend`."""
        loaded = PortableProgram(program, parse_graph(program.text), self, **self._options)
        with self._lock:
            self._compiles += 1
        return loaded

    def load(self, program: Program, *, donor: Executable) -> Executable:
        """Load a program by a donor's code; see `Backend`."""
        found = of_donor(program, donor, self, PortableProgram)
        loaded = PortableProgram(program, found.graph, self, **self._options)
        with self._lock:
            self._loads += 1
        return loaded

    @property
    def _options(self) -> _Options:
        return {"numerics": self._arithmetic, "threads": self._threads}

    @property
    def _arithmetic(self) -> Numerics:
        """How the engine computes."""
        if self.numerics != "exact":
            return self.numerics
        assert self.target is not None  # refused before
        return self.target.arithmetic


class _Options(TypedDict):
    numerics: Numerics
    threads: int


Loaded = TypeVar("Loaded", bound=PortableProgram)


def of_donor(program: Program, donor: Executable, device: object, kind: type[Loaded]) -> Loaded:
    """The donor, where its code may serve for the program.

    Raises:
        BackendError: it is another device's, or closed, or has another text.
    """
    if not isinstance(donor, kind) or donor.device is not device:
        raise BackendError("donor", "is not loaded on this device", got=type(donor).__name__)
    if not donor.is_open:
        raise BackendError("donor", "is closed", hint="keep it loaded, or compile the program")
    if donor.program.code_key != program.code_key:
        hint = "compile it: only weights may differ"
        raise BackendError("donor", "has another text than the program", hint=hint)
    return donor
