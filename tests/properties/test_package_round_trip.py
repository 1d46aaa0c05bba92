"""Graph to `.mlpackage` and back, over random graphs, at every opset."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import oracle
from packages import package_graphs
from strategies import feeds

from orion_ane.interop.coreml import read_package, write_package
from orion_ane.ir import isomorphic, verify
from orion_ane.mil import DIALECTS, returned
from orion_ane.ops import evaluate
from orion_ane.runtime import backend

oracle("coremltools")  # its message classes are what packages are written with

DIALECT = st.sampled_from(list(DIALECTS.values()))


@settings(max_examples=60)
@given(case=package_graphs(), dialect=DIALECT)
def test_a_package_reads_back_as_the_graph_that_it_was_written_from(case, dialect):
    graph, weights = case
    with tempfile.TemporaryDirectory() as room:
        path = Path(room) / "a.mlpackage"
        write_package(graph, path, weights, dialect=dialect)
        package = read_package(path)
        verify(package.graph)
        assert isomorphic(package.graph, returned(graph))
        assert package.function().opset == dialect.opset


@settings(max_examples=15)
@given(data=st.data(), case=package_graphs())
def test_a_package_computes_what_its_graph_does(data, case):
    graph, weights = case
    fed = data.draw(feeds(graph))
    want = evaluate(graph, fed, weights)
    with tempfile.TemporaryDirectory() as room:
        path = Path(room) / "a.mlpackage"
        write_package(graph, path, weights)
        program = read_package(path).program()
        got = (
            backend("emulator", target=None, threads=1)
            .compile(program)
            .run({port.name: fed[port.name] for port in program.inputs})
        )
    for name, value in want.items():
        np.testing.assert_allclose(
            got[name].astype(np.float64), value.astype(np.float64), rtol=0.02, atol=0.02
        )


@settings(max_examples=15)
@given(case=package_graphs(), dialect=DIALECT)
def test_a_package_that_is_read_and_written_again_is_the_same_bytes(case, dialect):
    graph, weights = case
    with tempfile.TemporaryDirectory() as room:
        first, second = Path(room) / "a.mlpackage", Path(room) / "b.mlpackage"
        write_package(graph, first, weights, dialect=dialect)
        write_package(read_package(first), second)
        files = sorted(p.relative_to(first) for p in first.rglob("*") if p.is_file())
        assert files == sorted(p.relative_to(second) for p in second.rglob("*") if p.is_file())
        for file in files:
            assert (first / file).read_bytes() == (second / file).read_bytes(), file
