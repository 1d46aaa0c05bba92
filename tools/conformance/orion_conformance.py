"""A pytest plug-in that runs coremltools' own converter tests with this project as Core ML.

The tests ship in the wheel and compare what Core ML computes with what Apple expects of it; on
other systems than macOS they convert and compare nothing.  Loaded with `-p` before collection, the
plug-in stands in for the framework (MIL reference, 4.2): every package that a test makes is
imported, written as MIL text with blob files, and that program is executed by the engine.

Comparisons are clamped to `TOLERANCE`: as shipped, those of fp16 accept half a unit.  What the
importer does not support is a skip, `NOT COVERED <op>: <reason>`, and is counted.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from orion_ane.engine import lower
from orion_ane.errors import OrionError, ShapeError
from orion_ane.interop.coreml import UnsupportedError, read_package
from orion_ane.mil import Program, parse_graph
from orion_ane.runtime.portable import weights_of

TOLERANCE = 2e-3
"""The most that `atol` and `rtol` may be."""
MACOS = (26, 0)
SPECIFICATION = 10
NOT_COVERED = "NOT COVERED"
MUTATION = "ORION_CONFORMANCE_MUTATION"
"""A factor on every float result: with 0.9 the tests must fail, or they compare nothing."""

logging.getLogger("coremltools").setLevel(logging.CRITICAL)
warnings.simplefilter("ignore")


class Loaded:
    """A program on the engine, from its text and bytes; each fp16 value is rounded once."""

    def __init__(self, program: Program) -> None:
        self.program = program
        graph = parse_graph(program.text)
        arrays = weights_of(graph, program.weights)
        self._tape = lower(graph, arrays, numerics="fp16", threads=1)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name."""
        ports = self.program
        found = self._tape.run({port.symbol: inputs[port.name] for port in ports.inputs})
        return {port.name: found[port.symbol] for port in ports.outputs}


class Model:
    """What stands in for Core ML's model: an imported package, or why it cannot run."""

    predictions = 0

    def __init__(
        self, path: str, units: str, function: str, hints: Mapping[str, str], asset: object = None
    ) -> None:
        self._function, self._path = function or None, path
        self._loaded: Loaded | None = None
        self._problem: OrionError | None = None
        self._images: list[str] = []
        self._is_network = Path(path).is_file()  # an ML Program is a folder
        try:  # at once: the package is in a temporary folder
            self._images = _image_inputs(path)
            self._loaded = self._load({})
        except OrionError as error:
            self._problem = error

    def _load(self, shapes: Mapping[str, tuple[int, ...]]) -> Loaded:
        return Loaded(read_package(self._path, shapes).program(self._function))

    def _for(self, data: Mapping[str, Any]) -> Loaded:
        """What runs on these inputs: sizes that the package leaves open are theirs."""
        if self._problem is not None and self._problem.where == "dynamic shapes":
            shapes = {name: np.shape(value) for name, value in data.items()}
            try:
                return self._load(shapes)
            except UnsupportedError as error:
                not_covered(error.where, error.what)
        if isinstance(self._problem, UnsupportedError):
            not_covered(self._problem.where, self._problem.what)
        if self._problem is not None:
            raise self._problem
        assert self._loaded is not None
        return self._loaded

    @staticmethod
    def maximum_supported_specification_version() -> int:
        """What coremltools asks before it makes a model."""
        return SPECIFICATION

    def predict(self, data: Mapping[str, Any], state: object = None) -> dict[str, Any]:
        """The outputs by name; those of rank 0 as one element, as Core ML gives them."""
        Model.predictions += 1
        if self._is_network:
            not_covered("neural networks", "are not supported")
        if self._images:
            not_covered("image inputs", "are not supported")
        loaded = self._for(data)
        fed = {}
        for port in loaded.program.inputs:
            of = port.type
            fed[port.name] = np.asarray(data[port.name]).astype(of.dtype.numpy).reshape(of.shape)
        try:
            found = loaded.run(fed)
        except ShapeError as error:  # an index that it was told to validate: in Core ML's words
            raise RuntimeError("Unable to compute the prediction using ML Program") from error
        return {name: _mutated(np.atleast_1d(value)) for name, value in found.items()}

    def batchPredict(self, data: list[Mapping[str, Any]]) -> list[dict[str, Any]]:  # noqa: N802 (Core ML's)
        """The outputs for each of several inputs."""
        return [self.predict(inputs) for inputs in data]

    def newState(self) -> object:  # noqa: N802 (Core ML's)
        """State has no place in a graph."""
        not_covered("state", "is not supported")


def not_covered(what: str, why: str) -> NoReturn:
    """End the test as one that this project does not cover."""
    raise pytest.skip.Exception(f"{NOT_COVERED} {what}: {why}")


def _mutated(value: Any) -> Any:
    factor = float(os.environ.get(MUTATION, "1"))
    is_same = factor == 1 or value.dtype.kind != "f"
    return value if is_same else (value * factor).astype(value.dtype)


def _image_inputs(path: str) -> list[str]:
    from coremltools.models import utils

    ports = utils.load_spec(path).description.input
    return [port.name for port in ports if port.type.WhichOneof("Type") == "imageType"]


def install() -> None:
    """Put `Model` where coremltools looks for Core ML, and clamp the comparisons."""
    import coremltools  # noqa: F401 (its parts are replaced before any test imports them)
    import coremltools._deps as deps
    import coremltools.models._compiled_model as compiled
    from coremltools.models import model, utils

    deps._IS_MACOS = True
    for module in (utils, model, compiled):
        module._is_macos = lambda: True
        module._macos_version = lambda: MACOS
    model._MLModelProxy = compiled._MLModelProxy = Model
    strict, near = np.testing.assert_allclose, np.isclose

    def assert_allclose(a: Any, b: Any, rtol: float = 1e-7, atol: float = 0, **rest: Any) -> None:
        strict(a, b, rtol=min(rtol, TOLERANCE), atol=min(atol, TOLERANCE), **rest)

    def isclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, **rest: Any) -> Any:
        return near(a, b, rtol=min(rtol, TOLERANCE), atol=min(atol, TOLERANCE), **rest)

    np.testing.assert_allclose, np.isclose = assert_allclose, isclose


install()


# Which tests, and what came of them


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--ids FILE` runs the tests that a file lists; `--orion-json FILE` writes the counts."""
    group = parser.getgroup("conformance")
    group.addoption("--ids", type=Path, help="run only the tests that this file lists")
    group.addoption("--orion-json", type=Path, help="write the counts and every test's outcome")
    group.addoption("--part", default="1/1", help="the n-th of m parts of the tests, as 1/3")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the listed tests, and of these the part that is asked for."""
    listed = config.getoption("--ids")
    kept = items
    if listed is not None:
        wanted = set(listed.read_text().split("\n")) - {""}
        kept = [item for item in items if item.nodeid in wanted]
        missing = wanted - {item.nodeid for item in kept}
        if missing and not config.getoption("keyword"):
            raise pytest.UsageError(f"{listed}: {len(missing)} tests are not there: {min(missing)}")
    part, parts = map(int, config.getoption("--part").split("/"))
    kept = kept[part - 1 :: parts]
    chosen = set(map(id, kept))
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in chosen])
    items[:] = kept


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    """Note on each report whether the test asked for a prediction."""
    report = yield
    if call.when == "call":
        report.user_properties.append(("predictions", Model.predictions))
        Model.predictions = 0
    return report


def _outcome(report: pytest.TestReport) -> str:
    """One word for what came of a test, or `NOT COVERED …`."""
    if report.skipped:
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        at = why.find(NOT_COVERED)
        return why[at:] if at >= 0 else "xfailed" if hasattr(report, "wasxfail") else "skipped"
    if report.passed:
        ran = dict(report.user_properties).get("predictions", 0)
        return "passed" if ran else "converted"
    return "failed"


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The counts: passed, converted only, not covered by op, failed."""
    outcomes: dict[str, str] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            is_result = isinstance(report, pytest.TestReport)
            if is_result and (report.when == "call" or not report.passed):
                outcomes[report.nodeid] = _outcome(report)
    missing = Counter(o for o in outcomes.values() if o.startswith(NOT_COVERED))
    counts = Counter(o for o in outcomes.values() if o not in missing)
    counts["not covered"] = missing.total()
    write = terminalreporter.write_line
    terminalreporter.section("conformance")
    for reason, count in missing.most_common():
        write(f"{count:6} {reason}")
    write(", ".join(f"{n} {what}" for what, n in sorted(counts.items())))
    path = config.getoption("--orion-json")
    if path is not None:
        report = {"counts": dict(counts), "not covered": dict(missing), "outcomes": outcomes}
        path.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    sys.exit("a pytest plug-in: see tools/conformance/run")
