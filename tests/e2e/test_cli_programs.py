"""orion compile, run, check and diff on folders of programs."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from toys import toy_gpt2, toy_llama

import orion_ane
from orion_ane.artefacts import read_folder
from orion_ane.cli.main import main
from orion_ane.generate.programs import Programs
from orion_ane.models.build import decoder_of
from orion_ane.models.weights import load_checkpoint, to_fp16
from orion_ane.nn.blocks import Precision
from orion_ane.runtime.registry import backend
from orion_ane.types import DType

SCALED = """func main<ios18>(tensor<fp16, [1,4,1,32]> x) {
    tensor<fp16, [1,4,1,32]> y = mul(x=x, y=0.5);
} -> (y);
"""


@pytest.fixture(scope="module", params=[toy_gpt2, toy_llama], ids=["gpt2", "llama"])
def model(request, tmp_path_factory) -> Path:
    return request.param(tmp_path_factory.mktemp("toy") / "model", context=100)


@pytest.fixture(scope="module")
def compiled(model, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("out") / "compiled"
    assert main(["compile", "--model", str(model), "--out", str(out)]) == 0
    return out


def orion(capfd, *words: object) -> tuple[int, str, str]:
    capfd.readouterr()
    code = main([str(word) for word in words])
    out, err = capfd.readouterr()
    return code, out, err


def test_every_program_of_a_model_is_compiled_and_keeps_the_target(compiled, capfd):
    names = list(read_folder(compiled))
    assert names[0] == "body-00-01-32x64"
    assert len(names) == 5 * 2 + 4 + 5  # lanes by rooms, first runs, and a head for each
    code, out, _ = orion(capfd, "check", compiled, "--json")
    assert (code, json.loads(out)["violations"]) == (0, [])


def test_a_compiled_folder_is_that_of_its_model(model, compiled):
    """What a device would be given is in the folder."""
    checkpoint = load_checkpoint(model)
    tensors, _ = to_fp16(checkpoint.tensors)
    device = backend("emulator", target="strict", threads=1)
    fp16 = Precision(DType.FP16, DType.FP16)
    made = Programs(decoder_of(checkpoint.config), tensors, device, precision=fp16, min_lanes=32)
    program, found = made.body(range(2), 32, 64).program, read_folder(compiled)["body-00-01-32x64"]
    assert found.code_key == program.code_key
    assert found.weights_key == program.weights_key
    assert (found.inputs, found.outputs) == (program.inputs, program.outputs)


def test_a_program_runs_from_files_to_files(compiled, tmp_path, capfd, rng):
    program = read_folder(compiled)["head-32"]
    (port,) = program.inputs
    array = rng.normal(size=port.of.shape).astype(port.of.dtype.numpy)
    np.save(tmp_path / "h=i.npy", array)
    words = ["run", compiled, "--program", "head-32", "--input", f"hidden={tmp_path / 'h=i.npy'}"]
    code, out, err = orion(capfd, *words, "--out", tmp_path / "r", "--device", "cpu", "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["device"] == "cpu"
    record = document["outputs"]["logits"]
    logits = np.load(record["file"])
    assert (list(logits.shape), str(logits.dtype)) == (record["shape"], record["dtype"])
    want = backend("cpu", threads=1).compile(program).run({"hidden": array})["logits"]
    np.testing.assert_array_equal(logits, want)
    code, out, _ = orion(capfd, *words, "--out", tmp_path / "e", "--device", "emulator", "--json")
    assert (code, json.loads(out)["device"]) == (0, "emulator")
    code, _, err = orion(capfd, *words, "--out", tmp_path / "e", "--device", "emulator")
    assert code == 2
    assert "is there already\n  hint: give another folder, or --replace" in err
    more = ["--out", tmp_path / "e", "--device", "emulator", "--replace"]
    assert orion(capfd, *words, *more)[0] == 0
    (tmp_path / "e" / "mine.txt").write_text("keep me")
    code, _, err = orion(capfd, *words, *more)
    assert code == 2
    assert "only what this command wrote can be replaced" in err
    assert (tmp_path / "e" / "mine.txt").is_file()


@pytest.mark.parametrize("numerics", ["exact", "fp16", "fp32"])
def test_a_program_runs_by_the_numerics_that_are_asked_for(
    compiled, tmp_path, capfd, rng, numerics
):
    program = read_folder(compiled)["head-32"]
    (port,) = program.inputs
    array = rng.normal(size=port.of.shape).astype(port.of.dtype.numpy)
    np.save(tmp_path / "x.npy", array)
    words = ["run", compiled, "--program", "head-32", "--input", f"hidden={tmp_path / 'x.npy'}"]
    words += ["--out", tmp_path / "r", "--device", "emulator", "--numerics", numerics, "--json"]
    code, out, err = orion(capfd, *words)
    assert (code, err, json.loads(out)["numerics"]) == (0, "", numerics)
    device = backend("emulator", target="strict", numerics=numerics)
    want = device.compile(program).run({"hidden": array})["logits"]
    assert (np.load(tmp_path / "r" / "logits.npy") == want).all()


def test_layers_and_buckets_may_be_chosen(model, tmp_path, capfd):
    words = ["compile", "--model", model, "--layers-per-program", 1, "--bucket", "32x64"]
    code, out, _ = orion(capfd, *words, "--out", tmp_path / "out", "--json")
    assert code == 0
    records = json.loads(out)["programs"]
    assert [r["name"] for r in records] == ["body-00-00-32x64", "body-01-01-32x64", "head-32"]
    for record in records:
        assert {"code_key", "ops", "weight_bytes", "inputs", "outputs"} <= set(record)
        weights = tmp_path / "out" / record["name"] / "weights" / "weight.bin"
        assert weights.stat().st_size == record["weight_bytes"]
    code, _, err = orion(capfd, *words, "--bucket", "1x7", "--out", tmp_path / "other")
    assert code == 2
    assert "no such bucket of this model" in err


def test_buckets_of_one_model_share_their_weights_on_the_disk(compiled):
    first, second = (compiled / name / "weights" / "weight.bin" for name in ("head-32", "head-128"))
    assert first.samefile(second)


def test_a_text_is_made_to_fit_a_target(tmp_path, capfd):
    (tmp_path / "a.mil").write_text(SCALED)
    out = tmp_path / "out"
    code, _, _ = orion(capfd, "compile", tmp_path / "a.mil", "--out", out, "--target", "m1")
    assert code == 0
    assert read_folder(out).manifest.target == "m1"
    np.save(tmp_path / "x.npy", np.ones((1, 4, 1, 32), np.float16))
    words = ["run", out, "--input", f"x={tmp_path / 'x.npy'}", "--out", tmp_path / "r"]
    assert orion(capfd, *words)[0] == 0
    assert (np.load(tmp_path / "r" / "y.npy") == 0.5).all()
    assert orion(capfd, "diff", out, out)[0] == 0
    assert orion(capfd, "diff", tmp_path / "a.mil", out)[0] == 0


def test_weights_of_a_text_lie_beside_it(compiled, tmp_path, capfd):
    text = compiled / "head-32" / "model.mil"
    code, _, _ = orion(capfd, "compile", text, "--out", tmp_path / "out")
    assert code == 0
    assert orion(capfd, "diff", tmp_path / "out", compiled / "head-32")[0] == 0
    (tmp_path / "alone.mil").write_bytes(text.read_bytes())
    code, _, err = orion(capfd, "compile", tmp_path / "alone.mil", "--out", tmp_path / "other")
    assert code == 2
    assert f"orion: {tmp_path / 'alone.mil'}: weight " in err
    assert ": no such blob file: got @model_path/weights/weight.bin" in err


@pytest.mark.parametrize(
    "words",
    [["compile", "bad/model.mil", "--out", "out"]]
    + [["diff", *pair] for pair in (("bad", "good"), ("good", "bad"))],
    ids=" ".join,
)
def test_a_damaged_blob_file_is_told_with_its_text_and_its_path(
    compiled, tmp_path, monkeypatch, capfd, words
):
    monkeypatch.chdir(tmp_path)
    for folder in ("good", "bad"):
        shutil.copytree(compiled / "head-32", tmp_path / folder)
    weights = tmp_path / "bad" / "weights" / "weight.bin"
    data = bytearray(weights.read_bytes())
    data[64:68] = bytes(4)  # the mark of the first metadata
    weights.write_bytes(data)
    code, out, err = orion(capfd, *words)
    assert (code, out) == (2, "")
    assert re.match(
        r"orion: bad/model\.mil: weight \S+: @model_path/weights/weight\.bin: "
        r"blob at byte 64: no metadata here: got 0x00000000, want 0xdeadbeef\n",
        err,
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--input", "x={x}"], "which program"),
        (["--program", "none", "--input", "x={x}"], "no such program"),
        (["--program", "head-32"], "not every port is given"),
        (["--program", "head-32", "--input", "y={x}"], "no such port"),
        (["--program", "head-32", "--input", "hidden"], "no such port"),
        (["--program", "head-32", "--input", "hidden={x}", "--input", "hidden={x}"], "twice"),
        (
            ["--program", "head-32", "--input", "hidden={text}"],
            "not a .npy file: want what numpy.save writes\n",
        ),
        (["--program", "head-32", "--input", "hidden={pickle}"], "not a .npy file"),
        (["--program", "head-32", "--input", "hidden={several}"], "not one array"),
        (["--program", "head-32", "--input", "hidden={gone}"], "cannot be read"),
        (["--program", "head-32", "--input", "hidden={x}"], "has another type"),
        (["--program", "head-32", "--input", "hidden={x}", "--target", "m1"], "--target"),
    ],
)
def test_what_cannot_be_run_gives_one_message(compiled, tmp_path, capfd, words, message):
    np.save(tmp_path / "x.npy", np.ones(3))
    (tmp_path / "text.npy").write_text("no array")
    np.save(tmp_path / "pickle.npy", np.array([{}], object), allow_pickle=True)
    np.savez(tmp_path / "several.npy", a=np.ones(3))
    (tmp_path / "several.npy.npz").rename(tmp_path / "several.npy")
    files = {n: tmp_path / f"{n}.npy" for n in ("x", "text", "pickle", "several", "gone")}
    spelled = [word.format(**files) for word in words]
    code, out, err = orion(capfd, "run", compiled, *spelled, "--out", tmp_path / "out")
    assert (code, out) == (2, "")
    assert message in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "what to compile"),
        (["{file}", "--model", "{model}"], "what to compile"),
        (["{file}", "--bucket", "32x64"], "go with --model"),
        (["--model", "{model}", "--bucket", "32"], "no such bucket"),
        (["--model", "{model}", "--target", "m9"], "no such target"),
    ],
)
def test_what_cannot_be_compiled_gives_one_message(model, tmp_path, capfd, words, message):
    (tmp_path / "a.mil").write_text(SCALED)
    spelled = [word.format(file=tmp_path / "a.mil", model=model) for word in words]
    code, out, err = orion(capfd, "compile", *spelled, "--out", tmp_path / "out")
    assert (code, out) == (2, "")
    assert message in err
    assert not (tmp_path / "out").exists()


def test_a_place_that_the_system_refuses_is_named(tmp_path, capfd):
    (tmp_path / "a.mil").write_text(SCALED)
    code, out, err = orion(capfd, "compile", tmp_path / "a.mil", "--out", tmp_path / "a.mil" / "b")
    assert (code, out) == (2, "")
    assert f"orion: {tmp_path / 'a.mil'}: cannot be used: got " in err
    assert "Errno" not in err


def test_the_version_is_in_the_manifest(compiled):
    assert read_folder(compiled).manifest.tool == f"orion-ane {orion_ane.__version__}"


@pytest.mark.parametrize(
    "words",
    [
        ["check", "."],
        ["diff", ".", "."],
        ["diff", "good.mil", "bad/model.mil"],
        ["diff", "bad/model.mil", "good.mil"],
        ["compile", "bad/model.mil", "--out", "out"],
    ],
    ids=" ".join,
)
def test_of_several_files_the_damaged_one_is_named(tmp_path, monkeypatch, capfd, words):
    monkeypatch.chdir(tmp_path)
    good = "func main<ios18>(tensor<fp16, [1,64,1,32]> x) {} -> (x);"
    for folder, text in (("good", good), ("bad", "junk")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "model.mil").write_text(text, encoding="utf-8")
    (tmp_path / "good.mil").write_text(good, encoding="utf-8")
    assert main(words) == 2
    assert capfd.readouterr().err.startswith("orion: bad/model.mil:1:1: unexpected: got 'junk'")
