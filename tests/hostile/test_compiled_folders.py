from __future__ import annotations

import json
import os
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import orion_ane.ops as o
from orion_ane.artefacts import read_folder, write_folder
from orion_ane.compiler import compile as compile_graph
from orion_ane.errors import MilError, OrionError
from orion_ane.ir import Graph
from orion_ane.types import DType, TensorType

compile_plain = partial(compile_graph, target=None)


def program(scale: float = 1):
    x = o.input_("x", TensorType(DType.FP16, (1, 4, 1, 32)))
    array = np.full((4, 4, 1, 1), scale, np.float16)
    w = o.weight("w", TensorType.of(array))
    return compile_plain(Graph({"x": x}, {"y": o.conv1x1(x, w)}), {"w": array})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_folder(tmp_path / "out", [("one", program()), ("two", program(2))])
    return tmp_path / "out"


def edited(folder: Path, change) -> None:
    file = folder / "manifest.json"
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))


def read_all(folder: Path) -> list[object]:
    return list(read_folder(folder).values())


def test_a_manifest_cut_anywhere_is_refused(folder):
    data = (folder / "manifest.json").read_bytes()
    for end in range(0, len(data) - 2, 7):
        (folder / "manifest.json").write_bytes(data[:end])
        with pytest.raises(MilError, match=r"manifest\.json"):
            read_folder(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format="other"), "not a manifest of programs"),
        (lambda d: d.update(version=2), "another version"),
        (lambda d: d.update(version=True), "version is missing or damaged"),
        (lambda d: d.update(programs=[]), "names of their own"),
        (lambda d: d.update(programs=d["programs"] * 2), "names of their own"),
        (lambda d: d.update(programs=[{}] * 20_000), "too long"),
        (lambda d: d["programs"][0].update(name="../one"), "not a program's name"),
        (lambda d: d["programs"][0].update(name="/etc"), "not a program's name"),
        (lambda d: d["programs"][0].update(name=".."), "not a program's name"),
        (lambda d: d["programs"][0].update(name="o\0"), "not a program's name"),
        (lambda d: d["programs"][0].update(name="One" * 99), "not a program's name"),
        (lambda d: d["programs"][0].update(code_key="0" * 63), "code_key is no digest"),
        (lambda d: d["programs"][0].update(code_key="0" * 64), "not the text of the manifest"),
        (lambda d: d["programs"][0].update(weights_key="0" * 64), "weights_key is not that"),
        (lambda d: d["programs"][0].update(weight_bytes=-1), "weight_bytes is no size"),
        (lambda d: d["programs"][0].update(weight_bytes=1), "not the files' sum"),
        (lambda d: d["programs"][0].update(ops="many"), "ops is missing or damaged"),
        (lambda d: d["programs"][0].update(inputs={}), "inputs is missing or damaged"),
        (lambda d: d["programs"][0]["inputs"].append(7), "not an object"),
        (lambda d: d["programs"][0]["inputs"][0]["type"].update(shape=[0]), "no such type"),
        (lambda d: d["programs"][0]["inputs"][0]["type"].update(shape=["1"]), "no list of sizes"),
        (lambda d: d["programs"][0]["inputs"][0]["type"].update(dtype="fp8"), "no such type"),
        (lambda d: d["programs"][0]["inputs"].extend(d["programs"][0]["inputs"]), "listed twice"),
        (lambda d: d["programs"][0]["files"][0].update(digest="0" * 64), "not the bytes"),
        (
            lambda d: d["programs"][0]["files"][0].update(path="@model_path/../../etc/passwd"),
            "not a path in the program",
        ),
        (
            lambda d: d["programs"][0]["files"][0].update(path="/etc/passwd"),
            "not a path in the program",
        ),
        (
            lambda d: d["programs"][0]["files"][0].update(path="@model_path/weights//w.bin"),
            "not a path in the program",
        ),
        (lambda d: d["programs"][0].update(files=d["programs"][0]["files"] * 2), "listed twice"),
    ],
)
def test_a_forged_manifest_is_refused_with_its_fault(folder, change, message):
    edited(folder, change)
    with pytest.raises(MilError, match=message) as caught:
        read_all(folder)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize(
    "data", [b"", b"[", b"[]", b"null", b"[" * 100_000, b"\xff\xfe", b"1" * 9999]
)
def test_what_is_no_manifest_is_refused(folder, data):
    (folder / "manifest.json").write_bytes(data)
    with pytest.raises(MilError):
        read_folder(folder)


def test_a_missing_or_damaged_file_is_named(folder):
    text, blob = folder / "one" / "model.mil", folder / "two" / "weights" / "weight.bin"
    kept = blob.read_bytes()
    blob.write_bytes(kept[:-1])
    with pytest.raises(MilError, match=r"two/weights/weight\.bin: not the size"):
        read_folder(folder)["two"]
    blob.write_bytes(kept[:-1] + b"\x01")
    with pytest.raises(MilError, match=r"two/weights/weight\.bin: not the bytes"):
        read_folder(folder)["two"]
    blob.unlink()
    with pytest.raises(MilError, match=r"two/weights/weight\.bin: missing"):
        read_folder(folder)["two"]
    assert read_folder(folder)["one"].weights  # what is whole is read
    text.write_bytes(text.read_bytes() + b" ")
    with pytest.raises(MilError, match=r"one/model\.mil: not the text"):
        read_folder(folder)["one"]
    text.unlink()
    with pytest.raises(MilError, match=r"one/model\.mil: missing"):
        read_folder(folder)["one"]


@pytest.mark.skipif(os.name == "nt", reason="links need rights on Windows")
def test_a_link_that_leads_out_of_the_folder_is_not_followed(folder, tmp_path):
    blob = folder / "one" / "weights" / "weight.bin"
    outside = tmp_path / "outside.bin"
    outside.write_bytes(blob.read_bytes())
    blob.unlink()
    blob.symlink_to(outside)
    with pytest.raises(MilError, match="leads out of the folder"):
        read_folder(folder)["one"]


def test_a_folder_without_a_manifest_is_refused(tmp_path):
    with pytest.raises(MilError, match="not a compiled folder"):
        read_folder(tmp_path)


def test_noise_in_a_manifest_is_an_error_of_ours_or_harmless(folder, rng):
    data = bytearray((folder / "manifest.json").read_bytes())
    for _ in range(300):
        noisy = bytearray(data)
        for at in rng.integers(0, len(noisy), 3):
            noisy[at] = rng.integers(32, 127)
        (folder / "manifest.json").write_bytes(noisy)
        with suppress(OrionError):
            read_all(folder)
