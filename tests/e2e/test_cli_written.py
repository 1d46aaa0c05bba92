"""What commands write goes in the place of their own older results alone, and if they may."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from toys import toy_gpt2, toy_llama

from orion_ane.cli import lora
from orion_ane.cli.main import main
from orion_ane.lora.adapter import fresh
from orion_ane.lora.config import AdapterConfig
from orion_ane.lora.files import save_adapter
from orion_ane.models.registry import find
from orion_ane.models.weights import load_checkpoint


def ran(capsys, *words, code=0):
    assert main([*map(str, words)]) == code
    return capsys.readouterr()


@pytest.fixture
def text(tmp_path):
    (tmp_path / "tales.txt").write_text("a cat sat and a dog ran. " * 8)
    return tmp_path / "tales.txt"


@pytest.fixture(params=["convert", "train", "lora train", "lora fuse", "convert to llama2.c"])
def writer(request, tmp_path, text, capsys):
    """A command that writes, without its place, and the place."""
    model = toy_llama(tmp_path / "model")
    learn = ["--model", model, "--data", text, "--steps", 1, "--batch", 1, "--seq", 8]
    learn += ["--device", "cpu", "--threads", 1]
    if request.param == "lora fuse":
        ran(capsys, "lora", "train", *learn, "--rank", 2, "--export", tmp_path / "ad")
    return {
        "convert": (["convert", model], tmp_path / "out"),
        "convert to llama2.c": (["convert", model], tmp_path / "out.bin"),
        "train": (["train", *learn, "--export"], tmp_path / "out"),
        "lora train": (["lora", "train", *learn, "--rank", 2, "--export"], tmp_path / "out"),
        "lora fuse": (
            ["lora", "fuse", "--model", model, "--adapter", tmp_path / "ad", "--out"],
            tmp_path / "out",
        ),
    }[request.param]


def contents(place):
    if place.is_file():
        return place.read_bytes()
    return {file.name: file.read_bytes() for file in place.iterdir()}


def test_an_older_result_goes_where_it_may_and_nothing_else_does(writer, capsys):
    words, out = writer
    ran(capsys, *words, out)
    first = contents(out)
    refused = ran(capsys, *words, out, code=2).err
    assert f"{out}: is there already" in refused
    assert "or --replace (in Python replace=True)" in refused
    ran(capsys, *words, out, "--replace")
    assert contents(out) == first
    if out.is_file():
        out.write_text("not a model")
        kept = out
    else:
        kept = out / "mine.txt"
        kept.write_text("not a model")
    assert "--replace" not in ran(capsys, *words, out, "--replace", code=2).err
    assert kept.read_text() == "not a model"


def test_a_folder_that_others_wrote_is_not_replaced(tmp_path, capsys):
    theirs = toy_gpt2(tmp_path / "theirs")
    before = contents(theirs)
    said = ran(capsys, "convert", "orion-stories", theirs, "--replace", code=2).err
    assert "only what this command wrote can be replaced" in said
    assert contents(theirs) == before


def test_a_model_is_not_fused_into_itself(tmp_path, capsys):
    own = tmp_path / "own"
    ran(capsys, "convert", toy_llama(tmp_path / "model"), own)
    some = fresh(load_checkpoint(own).config, AdapterConfig(2, 4, ("v_proj",)), seed=0)
    save_adapter(tmp_path / "ad", some)
    words = ["lora", "fuse", "--model", own, "--adapter", tmp_path / "ad", "--out", own]
    words += ["--replace"]
    assert "is, or holds, what this command reads" in ran(capsys, *words, code=2).err


def test_replace_without_anything_to_write_is_refused(tmp_path, text, capsys):
    words = ["train", "--model", tmp_path, "--data", text, "--steps", 1, "--replace"]
    said = ran(capsys, *words, code=2).err
    assert "--replace: nothing is written\n  hint: give --export" in said


def test_convert_takes_the_names_that_other_commands_take(tmp_path, capsys):
    ran(capsys, "convert", "orion-stories", tmp_path / "out")
    assert "tensors written to " in ran(capsys, "convert", "orion-stories", tmp_path / "two").err
    found, want = (load_checkpoint(one) for one in (tmp_path / "out", find("orion-stories")))
    assert found.config == want.config
    said = ran(capsys, "convert", "orion-storys", tmp_path / "no", code=2).err
    assert "did you mean orion-stories?" in said
    said = ran(capsys, "convert", "orion-stories", tmp_path / "no.mlpackage", code=2).err
    assert "no such file or folder" in said
    assert not (tmp_path / "no").exists()


def test_resume_wants_a_folder_that_is_there(tmp_path, text, capsys):
    learn = ["train", "--model", toy_llama(tmp_path / "model"), "--data", text, "--steps", 1]
    learn += ["--batch", 1, "--seq", 8, "--device", "cpu", "--checkpoint-dir"]
    ran(capsys, *learn, tmp_path / "run-1")
    said = ran(capsys, *learn, tmp_path / "run1", "--resume", code=2).err
    assert said == (
        f"orion: --checkpoint-dir: no such folder to resume: got {tmp_path / 'run1'}\n"
        f"  hint: did you mean {tmp_path / 'run-1'}? a run that begins is without --resume\n"
    )
    assert not (tmp_path / "run1").exists()
    (tmp_path / "begun").mkdir()  # as of a run that was killed before it saved
    assert "starts anew" in ran(capsys, *learn, tmp_path / "begun", "--resume").err


def test_the_tokenizer_that_a_new_model_finds_beside_its_config_is_said(tmp_path, text, capsys):
    toy_llama(tmp_path / "other")
    (tmp_path / "shape").mkdir()
    shutil.copy(tmp_path / "other" / "config.json", tmp_path / "shape")
    words = ["train", "--steps", 1, "--batch", 1, "--seq", 8, "--device", "cpu", "--from-scratch"]
    said = ran(capsys, *words, tmp_path / "other", "--data", text).err
    assert f"note: tokenizer: tokenizer.json in {tmp_path / 'other'}; --model names" in said
    np.arange(64, dtype="<u2").tofile(tmp_path / "ids.bin")
    said = ran(capsys, *words, tmp_path / "shape", "--data", tmp_path / "ids.bin").err
    assert "tokenizer" not in said


@pytest.fixture
def fusing(tmp_path, text, capsys):
    """What fuses an adapter that learnt, without a place, and the folders of both."""
    model, adapter = tmp_path / "model", tmp_path / "ad"
    ran(capsys, "convert", toy_llama(tmp_path / "read"), model)
    learn = ["--data", text, "--steps", 2, "--batch", 1, "--seq", 8, "--device", "cpu"]
    ran(capsys, "lora", "train", "--model", model, *learn, "--export", adapter)
    return ["lora", "fuse", "--model", model, "--adapter", adapter], model, adapter


def test_what_a_command_reads_is_not_replaced_by_it(fusing, tmp_path, text, capsys):
    fuse, model, adapter = fusing
    learn = ["--model", model, "--data", text, "--steps", 1, "--batch", 1, "--seq", 8]
    for words, option, place in (
        (fuse, "--out", model),
        (fuse, "--out", adapter),
        (["train", *learn], "--export", model),
        (["lora", "train", *learn], "--export", model),
        (["train", "--from-scratch", model, *learn], "--export", model),
    ):
        before = contents(place)
        said = ran(capsys, *words, option, place, "--replace", code=2).err
        assert f"{option}: is, or holds, what this command reads: got {place}" in said
        assert contents(place) == before
    ran(capsys, "convert", model, tmp_path / "own.bin")
    words = ["train", "--model", tmp_path / "own.bin", *learn[2:], "--export", tmp_path / "own.bin"]
    assert "what this command reads" in ran(capsys, *words, "--replace", code=2).err
    for one in (model, tmp_path / "own.bin"):
        said = ran(capsys, "convert", one, one, "--replace", code=2).err
        assert "OUT: is, or holds, what this command reads" in said


def test_an_adapter_and_a_model_do_not_go_in_each_others_place(fusing, tmp_path, text, capsys):
    fuse, model, adapter = fusing
    learn = ["--data", text, "--steps", 1, "--batch", 1, "--seq", 8, "--replace", "--export"]
    other = tmp_path / "fused"
    ran(capsys, *fuse, "--out", other)
    for words, place in (
        (["lora", "train", "--model", model, *learn], other),
        (["train", "--model", model, *learn], adapter),
        (["convert", "--replace", model], adapter),
    ):
        before = contents(place)
        said = ran(capsys, *words, place, code=2).err
        assert "only what this command wrote can be replaced" in said
        assert contents(place) == before


def test_a_fused_model_that_fails_its_check_leaves_the_one_before(
    fusing, tmp_path, capsys, monkeypatch
):
    fuse, _, _ = fusing
    out = tmp_path / "fused"
    ran(capsys, *fuse, "--out", out)
    before = contents(out)
    monkeypatch.setattr(lora, "logit_error", lambda *_: 1.0)
    for place, more in ((out, ["--replace"]), (tmp_path / "new", [])):
        said = ran(capsys, *fuse, "--out", place, *more, "--verify", code=2)
        assert f"{place}: is not model and adapter together" in said.err
        assert "written to" not in said.err
    assert contents(out) == before
    assert not (tmp_path / "new").exists()


def test_a_weight_by_which_nobody_could_wear_it_is_not_fused(fusing, tmp_path, capsys):
    fuse, _, _ = fusing
    said = ran(capsys, *fuse, "--out", tmp_path / "out", "--weight", "1e30", code=2).err
    assert "orion: adapter ad: its weight takes " in said
    assert "out of fp16's range: got 1e+30, want B times it within 65504" in said
    assert not (tmp_path / "out").exists()


TEXT = """func main<ios18>(tensor<fp32, [1,4,1,4]> x) {
    tensor<fp32, [1,4,1,4]> y = add(x=x, y=x);
} -> (y);
"""


def test_arrays_that_were_not_written_as_results_stay(tmp_path, capsys):
    (tmp_path / "a.mil").write_text(TEXT)
    ran(capsys, "compile", tmp_path / "a.mil", "--out", tmp_path / "programs", "--target", "paper")
    mine, out = tmp_path / "mine", tmp_path / "out"
    mine.mkdir()
    for name in ("x", "weights"):
        np.save(mine / f"{name}.npy", np.ones((1, 4, 1, 4), np.float32))
    before = contents(mine)
    run = ["run", tmp_path / "programs", "--device", "cpu"]
    fed = ["--input", f"x={mine / 'x.npy'}"]
    said = ran(capsys, *run, *fed, "--out", mine, "--replace", code=2).err
    assert "--out: is, or holds, what this command reads" in said
    shutil.copytree(mine, tmp_path / "theirs")
    said = ran(capsys, *run, *fed, "--out", tmp_path / "theirs", "--replace", code=2).err
    assert "only what this command wrote can be replaced" in said
    assert contents(mine) == contents(tmp_path / "theirs") == before
    for more in ([], ["--replace"]):
        ran(capsys, *run, *fed, "--out", out, *more)
    fed = ["--input", f"x={out / 'y.npy'}"]
    assert "reads" in ran(capsys, *run, *fed, "--out", out, "--replace", code=2).err
