from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import graphs, weight_feeds

import orion_ane.ops as o
from orion_ane.artefacts import Manifest, read_folder, write_folder
from orion_ane.artefacts.manifest import parse_manifest
from orion_ane.compiler import compile as compile_graph
from orion_ane.errors import ConfigError, MilError
from orion_ane.ir import Graph
from orion_ane.mil import Port, Program, pack
from orion_ane.mil.parse import parse
from orion_ane.ops.leaf import Leaf
from orion_ane.runtime.registry import backend
from orion_ane.types import DType, TensorType

compile_plain = partial(compile_graph, target=None)


def shared(rng: np.random.Generator) -> list[tuple[str, Program]]:
    """Two programs on one blob file."""
    arrays = {name: rng.normal(size=(4, 4, 1, 1)).astype(np.float16) for name in "ab"}
    file = pack(arrays)
    x = o.input_("x", TensorType(DType.FP16, (1, 4, 1, 32)))

    def program(name: str) -> Program:
        w = o.weight(name, file.types[name])
        return compile_plain(Graph({"x": x}, {"y": o.conv1x1(x, w)}), file)

    return [("first", program("a")), ("second", program("b"))]


@settings(max_examples=15)
@given(data=st.data())
def test_what_is_written_is_read_back(tmp_path_factory, data):
    graph = data.draw(graphs())
    program = compile_plain(graph, data.draw(weight_feeds(graph)))
    folder = tmp_path_factory.mktemp("round") / "out"
    manifest = write_folder(folder, [("p", program)], target="strict")
    found = read_folder(folder)
    back = found["p"]
    assert found.manifest == manifest
    assert (back.text, back.inputs, back.outputs) == (program.text, program.inputs, program.outputs)
    assert {k: bytes(v) for k, v in back.weights.items()} == {
        k: bytes(v) for k, v in program.weights.items()
    }
    assert (back.code_key, back.weights_key) == (program.code_key, program.weights_key)
    (entry,) = manifest.programs
    statements = parse(program.text).functions["main"].statements
    computing = [s for s in statements if s.nodes and not isinstance(s.nodes[0].op, Leaf)]
    assert entry.ops == len(computing)


def test_programs_on_one_file_share_it_on_the_disk_and_in_memory(tmp_path, rng):
    write_folder(tmp_path / "out", shared(rng))
    first, second = (tmp_path / "out" / n / "weights" / "weight.bin" for n in ("first", "second"))
    assert first.samefile(second)
    found = read_folder(tmp_path / "out")
    (a,), (b,) = found["first"].weights.values(), found["second"].weights.values()
    assert a is b


def test_where_files_cannot_have_two_names_each_program_has_a_copy(tmp_path, rng, monkeypatch):
    def no_link(*_: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", no_link)
    write_folder(tmp_path / "out", shared(rng))
    found = read_folder(tmp_path / "out")
    assert found["first"].weights_key == found["second"].weights_key
    (a,), (b,) = found["first"].weights.values(), found["second"].weights.values()
    assert a is b


def test_a_program_runs_from_its_folder(tmp_path, rng):
    (name, program), _ = shared(rng)
    write_folder(tmp_path / "out", [(name, program)])
    feed = {"x": rng.normal(size=(1, 4, 1, 32)).astype(np.float16)}
    device = backend("cpu", threads=1)
    before = device.compile(program).run(feed)
    after = device.compile(read_folder(tmp_path / "out")[name]).run(feed)
    np.testing.assert_array_equal(after["y"], before["y"])


def test_a_failure_leaves_no_trace(tmp_path, rng):
    def programs():
        yield from shared(rng)
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError):
        write_folder(tmp_path / "out", programs())
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_replaced_only_where_that_is_asked(tmp_path, rng):
    out = tmp_path / "out"
    out.mkdir()
    write_folder(out, shared(rng))
    with pytest.raises(ConfigError, match=r"is there already\n  hint: .*--replace"):
        write_folder(out, shared(rng))
    write_folder(out, shared(rng)[:1], replace=True)
    assert list(read_folder(out)) == ["first"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    for mine in (out / "first" / "mine.txt", out / "mine.txt"):
        mine.write_text("keep me")
        with pytest.raises(ConfigError, match="only what this command wrote"):
            write_folder(out, shared(rng), replace=True)
        mine.unlink()
    write_folder(out, shared(rng), replace=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "photo").write_text("")
    with pytest.raises(ConfigError, match="is there already"):
        write_folder(tmp_path / "other", shared(rng), replace=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is there already"):
        write_folder(tmp_path / "file", shared(rng), replace=True)


@pytest.mark.parametrize("name", ["", "..", "a/b", "a\\b", ".a", "a.", "CON:", "ä", "a" * 101])
def test_a_name_that_no_folder_can_have_is_refused(tmp_path, rng, name):
    ((_, program), _) = shared(rng)
    with pytest.raises(MilError, match="not a program's name"):
        write_folder(tmp_path / "out", [(name, program)])


def test_names_differ_in_more_than_case(tmp_path, rng):
    ((_, program), _) = shared(rng)
    with pytest.raises(MilError, match="two programs of one name"):
        write_folder(tmp_path / "out", [("a", program), ("A", program)])
    with pytest.raises(MilError, match="no program to write"):
        write_folder(tmp_path / "out", [])


def test_logical_types_are_kept(tmp_path):
    x = o.input_("x", TensorType(DType.FP16, (1, 4, 1, 32)))
    program = compile_plain(Graph({"x": x}, {"y": x + x}))
    port = Port("x", "x", program.inputs[0].type, TensorType(DType.FP32, (1, 4, 1, 7)))
    padded = Program(program.text, {}, (port,), program.outputs)
    manifest = write_folder(tmp_path / "out", [("p", padded)])
    assert read_folder(tmp_path / "out")["p"].inputs == (port,)
    assert isinstance(manifest, Manifest)
    assert parse_manifest("m", manifest.text().encode()) == manifest


def test_files_are_readable_by_whom_the_system_allows(tmp_path, rng):
    write_folder(tmp_path / "out", shared(rng))
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o777 & ~mask
    assert isinstance(tmp_path, Path)
