"""orion convert: programs to packages and back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from oracles import oracle

from orion_ane.artefacts import read_folder
from orion_ane.artefacts.folder import write_folder
from orion_ane.cli.main import main
from orion_ane.compiler import compile as compile_graph
from orion_ane.interop.coreml import proto
from orion_ane.ir import Graph
from orion_ane.mil import parse_graph
from orion_ane.ops import input_, matmul, weight
from orion_ane.runtime import backend
from orion_ane.types import DType, TensorType

oracle("coremltools")

OF = TensorType(DType.FP16, (2, 4, 4))


@pytest.fixture
def folder(tmp_path):
    x = input_("x", OF)
    graph = Graph({"x": x}, {"y": matmul(x, weight("w", OF))})
    w = np.arange(32, dtype=np.float16).reshape(OF.shape)
    write_folder(tmp_path / "programs", [("main", compile_graph(graph, {"w": w}, target=None))])
    return tmp_path / "programs"


def test_a_program_that_went_through_a_package_is_the_same(folder, tmp_path, capfd):
    package, back = tmp_path / "a.mlpackage", tmp_path / "back"
    assert main(["convert", str(folder), str(package)]) == 0
    assert main(["convert", str(package), str(back)]) == 0
    assert main(["diff", str(folder), str(back)]) == 0
    first, second = read_folder(folder)["main"], read_folder(back)["main"]
    x = np.ones(OF.shape, np.float16)
    cpu = backend("cpu", threads=1)
    want, got = (cpu.compile(program).run({"x": x})["y"] for program in (first, second))
    np.testing.assert_array_equal(got, want)


def test_what_was_converted_is_told_as_json(folder, tmp_path, capfd):
    package, back = tmp_path / "a.mlpackage", tmp_path / "back"
    for source, out in ((folder, package), (package, back)):
        assert main(["convert", str(source), str(out), "--json"]) == 0
        assert json.loads(capfd.readouterr().out) == {"out": str(out), "programs": ["main"]}


def test_a_text_takes_the_weights_beside_it_and_is_refused_without_them(folder, tmp_path, capfd):
    text, package = folder / "main" / "model.mil", tmp_path / "a.mlpackage"
    assert main(["convert", str(text), str(package)]) == 0
    assert main(["convert", str(package), str(tmp_path / "back")]) == 0
    assert main(["diff", str(folder), str(tmp_path / "back")]) == 0
    alone = tmp_path / "alone.mil"
    alone.write_bytes(text.read_bytes())
    capfd.readouterr()
    assert main(["convert", str(alone), str(tmp_path / "b.mlpackage")]) == 2
    assert "weight w: no such blob file: got @model_path" in capfd.readouterr().err
    assert not (tmp_path / "b.mlpackage").exists()


def test_a_text_without_weights_becomes_a_package(tmp_path):
    text = "func main<ios16>(tensor<fp16, [1,4]> x) { tensor<fp16, [1,4]> y = tanh(x=x); } -> (y);"
    (tmp_path / "a.mil").write_text(text)
    assert main(["convert", str(tmp_path / "a.mil"), str(tmp_path / "a.mlpackage")]) == 0
    assert main(["convert", str(tmp_path / "a.mlpackage"), str(tmp_path / "out")]) == 0
    program = read_folder(tmp_path / "out")["main"]
    assert [type(n.op).__name__ for n in parse_graph(program.text).nodes] == ["Input", "Tanh"]
    assert "main<ios16>" in program.text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("programs", "out"), "holds no model"),
        (("broken.mlpackage", "b.mlpackage"), "nothing to do"),
        (("programs", "a.mlpackage", "--program", "other"), "no such program"),
        (("broken.mlpackage", "out"), "not an mlpackage"),
    ],
)
def test_what_cannot_be_converted_is_said(words, message, folder, tmp_path, capfd):
    (tmp_path / "broken.mlpackage").mkdir()
    source, out, *options = words
    assert main(["convert", str(tmp_path / source), str(tmp_path / out), *options]) != 0
    assert message in capfd.readouterr().err
    assert not (tmp_path / out).exists()


def test_a_package_that_is_there_goes_only_if_it_may(folder, tmp_path, capfd):
    package = str(tmp_path / "a.mlpackage")
    assert main(["convert", str(folder), package]) == 0
    assert main(["convert", str(folder), package]) != 0
    assert main(["convert", str(folder), package, "--replace"]) == 0


def test_the_extra_is_asked_for_as_the_readme_does():
    readme = Path(__file__).resolve().parents[2] / "README.md"
    command = proto._missing("coremltools").hint
    assert f"`{command}`" in readme.read_text(encoding="utf-8")


def test_a_package_of_others_is_not_replaced(folder, tmp_path, capfd):
    package = tmp_path / "a.mlpackage"
    assert main(["convert", str(folder), str(package)]) == 0
    manifest = package / "Manifest.json"
    theirs = manifest.read_text().replace(
        json.loads(manifest.read_text())["rootModelIdentifier"], "B"
    )
    manifest.write_text(theirs)  # as coremltools: another name each time
    assert main(["convert", str(folder), str(package), "--replace"]) == 2
    assert "only what this command wrote can be replaced" in capfd.readouterr().err
    assert manifest.read_text() == theirs


def test_a_package_with_a_file_of_somebody_s_inside_is_not_replaced(folder, tmp_path, capsys):
    package = tmp_path / "mine.mlpackage"
    assert main(["convert", str(folder), str(package)]) == 0
    assert main(["convert", str(folder), str(package), "--replace"]) == 0
    notes = package / "Data" / "com.apple.CoreML" / "notes.txt"
    notes.write_text("precious")
    assert main(["convert", str(folder), str(package), "--replace"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert notes.read_text() == "precious"
