"""`orion lora train`, `eval`, `fuse` and `generate --adapter`: what one writes the next reads."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from toys import lost, toy_gpt2, toy_llama

from orion_ane.cli import lora
from orion_ane.cli.main import main
from orion_ane.lora.adapter import fresh
from orion_ane.lora.config import AdapterConfig
from orion_ane.lora.files import another_base, load_adapter, save_adapter
from orion_ane.lora.modules import head_name
from orion_ane.models.registry import find
from orion_ane.models.weights import load_checkpoint

TOYS = [toy_llama, toy_gpt2]


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "The cat sat on the mat."}\n' * 30)
    return path


def ran(capsys, *words, code=0):
    """The last JSON line of a command, and what it said."""
    assert main([*map(str, words)]) == code
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    return json.loads(lines[-1]) if lines else None, captured.err


@pytest.mark.parametrize("toy", TOYS)
def test_what_is_learnt_is_evaluated_worn_and_fused_L09(toy, tmp_path, rows, capsys):
    model, out = toy(tmp_path / "model"), tmp_path / "adapter"
    where = ["--model", model, "--device", "cpu", "--threads", "1", "--json"]
    words = ["--steps", "20", "--seq", "16", "--batch", "2", "--lr", "0.02", "--dropout", "0.1"]
    learnt, _ = ran(
        capsys, "lora", "train", *where, "--data", rows, "--eval-data", rows, *words,
        "--rank", "4", "--export", out,
    )  # fmt: skip
    assert learnt["updates"] == "input"
    assert json.loads((out / "adapter_config.json").read_text())["lora_dropout"] == 0.1
    told, _ = ran(capsys, "lora", "eval", *where, "--adapter", out, "--data", rows, "--seq", "16")
    assert told["adapter_loss"] < told["base_loss"] - 2
    assert told["adapter_loss"] == pytest.approx(learnt["eval_loss"], abs=1e-4)
    made, said = ran(
        capsys, "lora", "fuse", "--model", model, "--adapter", out, "--out", tmp_path / "fused",
        "--verify", "--json",
    )  # fmt: skip
    assert made["logit_error"] < 1e-5
    assert "verified" in said
    ids = ["--prompt", "The cat", "--max-tokens", "6", "--temperature", "0", "--json"]
    rest = ["--device", "cpu", "--threads", "1", *ids]
    worn, _ = ran(capsys, "generate", "--model", model, "--adapter", out, *rest)
    fused, _ = ran(capsys, "generate", "--model", tmp_path / "fused", *rest)
    bare, _ = ran(capsys, "generate", "--model", model, *rest)
    assert worn["ids"] == fused["ids"] != bare["ids"]


@pytest.mark.parametrize("toy", TOYS)
def test_a_head_of_an_adapters_own_is_fused_as_one(toy, tmp_path, capsys):
    """A head that comes whole: what was tied becomes untied, and the token vectors stay."""
    model = toy(tmp_path / "model")
    checkpoint = load_checkpoint(model)
    config = checkpoint.config
    folder = tmp_path / "adapter"
    save_adapter(folder, fresh(config, AdapterConfig(2, 4, ("c_fc", "v_proj")), seed=0))
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"modules_to_save": ["lm_head"]}))
    file = folder / "adapter_model.safetensors"
    head = np.random.default_rng(5).normal(size=(config.vocab, config.dim)).astype(np.float32)
    save_file(load_file(file) | {"base_model.model.lm_head.weight": head}, file)
    made, _ = ran(
        capsys, "lora", "fuse", "--model", model, "--adapter", folder, "--out", tmp_path / "fused",
        "--verify", "--json",
    )  # fmt: skip
    assert made["logit_error"] < 1e-5
    fused = load_checkpoint(tmp_path / "fused")
    assert not fused.config.tied
    assert (fused.tensors["head"] == head).all()
    table = "wte" if config.family == "gpt2" else "embed"
    assert (fused.tensors[table] == np.asarray(checkpoint.tensors[table], np.float32)).all()


def test_what_was_fused_wrongly_is_told(tmp_path, capsys, monkeypatch):
    model = toy_llama(tmp_path / "model")
    folder = tmp_path / "adapter"
    adapter = fresh(load_checkpoint(model).config, AdapterConfig(2, 4, ("v_proj",)), seed=0)
    save_adapter(folder, adapter)

    def spoilt(found, tensors):
        config = found.model
        return config, {n: np.asarray(t, np.float32) * np.float32(1.01) for n, t in tensors.items()}

    monkeypatch.setattr(lora, "merged", spoilt)
    words = ["--model", model, "--adapter", folder, "--out", tmp_path / "fused", "--verify"]
    _, said = ran(capsys, "lora", "fuse", *words, code=2)
    assert "not model and adapter together" in said


def test_an_adapter_is_put_where_nothing_is(tmp_path, capsys):
    """Case L11: into a copy, once."""
    model = toy_llama(tmp_path / "model")
    before = (model / "model.safetensors").read_bytes()
    folder = tmp_path / "adapter"
    adapter = fresh(load_checkpoint(model).config, AdapterConfig(2, 4, ("v_proj",)), seed=0)
    save_adapter(folder, adapter)
    assert load_adapter(folder, adapter.model).matrices.keys() == adapter.matrices.keys()
    words = ["lora", "fuse", "--model", model, "--adapter", folder, "--out"]
    ran(capsys, *words, tmp_path / "fused")
    for taken, why in ((tmp_path / "fused", "is there already"), (model, "this command reads")):
        assert why in ran(capsys, *words, taken, code=2)[1]
    assert (model / "model.safetensors").read_bytes() == before


def test_an_adapter_is_not_written_to_a_file(tmp_path, rows, capsys):
    words = ["--model", toy_llama(tmp_path / "model"), "--data", rows, "--steps", "1"]
    _, said = ran(capsys, "lora", "train", *words, "--export", tmp_path / "ad.bin", code=2)
    assert f"--export: not a folder, as an adapter is: got {tmp_path / 'ad.bin'}" in said
    assert not (tmp_path / "ad.bin").exists()


def test_an_adapter_is_held_to_a_text_on_the_device_and_in_the_numerics_asked_for(
    tmp_path, rows, capsys
):
    model = toy_llama(tmp_path / "model")
    config = load_checkpoint(model).config
    save_adapter(tmp_path / "ad", fresh(config, AdapterConfig(2, 4, ("v_proj",)), seed=0))
    words = ["lora", "eval", "--model", model, "--adapter", tmp_path / "ad", "--data", rows]
    words += ["--seq", "16", "--threads", "1", "--json"]
    assert main([*map(str, words[:-1])]) == 0
    plain = capsys.readouterr()
    assert [line.partition(": ")[0] for line in plain.out.splitlines()] == ["without", "with"]
    assert "device: cpu (auto)" in plain.err
    exact, _ = ran(capsys, *words, "--device", "cpu")
    half = ["--device", "emulator", "--target", "m1", "--numerics", "fp16"]
    found, _ = ran(capsys, *words, *half)
    assert [found[name] for name in ("device", "target", "numerics")] == ["emulator", "m1", "fp16"]
    assert exact["numerics"] == "fp32"
    assert found["base_loss"] != exact["base_loss"]
    assert found["base_loss"] == pytest.approx(exact["base_loss"], rel=1e-2)
    _, said = ran(capsys, *words, "--device", "cpu", "--target", "m1", code=2)
    assert "--target: not with device cpu" in said


@pytest.mark.parametrize(("device", "way"), [("cpu", "its own"), ("emulator", "take --device cpu")])
def test_an_adapter_is_not_blamed_for_a_model_that_is_lost(device, way, tmp_path, rows, capsys):
    model = lost(tmp_path / "lost")
    config = load_checkpoint(model).config
    save_adapter(tmp_path / "ad", fresh(config, AdapterConfig(2, 4, ("v_proj",)), seed=0))
    words = ["lora", "eval", "--model", model, "--adapter", tmp_path / "ad", "--data", rows]
    words += ["--seq", "16", "--threads", "1", "--device", device]
    _, said = ran(capsys, *words, code=2)
    assert "its loss without the adapter is not finite: got nan\n" in said
    assert f"hint: {way}" in said


@pytest.mark.parametrize(
    ("weight", "words"), [("nan", "--weight: no such weight"), ("1e300", "out of fp16's range")]
)
def test_a_weight_that_makes_numbers_infinite_fuses_nothing(weight, words, tmp_path, capsys):
    model = toy_llama(tmp_path / "model")
    config = load_checkpoint(model).config
    new = fresh(config, AdapterConfig(2, 4, ("v_proj",)), seed=0)
    some = {p: replace(one, b=np.ones_like(one.b)) for p, one in new.matrices.items()}
    save_adapter(tmp_path / "some", replace(new, matrices=some))
    out = tmp_path / "fused"
    words_of = ["--model", model, "--adapter", tmp_path / "some", "--out", out, "--weight", weight]
    _, said = ran(capsys, "lora", "fuse", *words_of, code=2)
    assert words in said
    assert not out.exists()


def test_an_adapter_of_a_model_that_nobody_named_is_refused(tmp_path, capsys):
    config = load_checkpoint(find("orion-stories")).config
    words = ["generate", "--prompt", "Once", "--max-tokens", "2", "--device", "cpu", "--adapter"]
    for base, name in (("tales/tiny-15m", "other"), ("orion-stories", "same"), ("", "unsaid")):
        settings = AdapterConfig(2, 4, ("v_proj",), base=base)
        save_adapter(tmp_path / name, fresh(config, settings, seed=0))
    _, said = ran(capsys, *words, tmp_path / "other", code=2)
    assert "got made for tales/tiny-15m" in said
    for name in ("same", "unsaid"):
        _, said = ran(capsys, *words, tmp_path / name, "--json")
        assert "made for" not in said
    note = "made for tales/tiny-15m, and orion-stories wears it"
    named = [tmp_path / "other", "--model", "orion-stories"]
    assert note in ran(capsys, *words, *named, "--json")[1]
    (tmp_path / "text").write_text("Once upon a time there was a cat.")
    words = ["lora", "eval", "--device", "cpu", "--data", tmp_path / "text", "--seq", "4"]
    assert note in ran(capsys, *words, "--adapter", *named, "--json")[1]


def test_a_model_is_known_by_its_folder_file_or_name_of_the_hub(tmp_path):
    config = {"base_model_name_or_path": "Owner/Tale-1"}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    hub = "/cache/models--Owner--Tale-1/snapshots/0123"
    for model, origin in (
        ("tale-1", "/x"), ("/m/Tale-1", "/x"), ("t", "/m/Tale-1.Q8_0.gguf"), ("t", hub),
    ):  # fmt: skip
        assert another_base(tmp_path, model, origin) == []
    assert another_base(tmp_path, "other/Tale-1-GGUF", "/x") == []
    for model in ("tale-12", "tale", "owner/tale-1-chat"):
        assert len(another_base(tmp_path, model, "/Tale-1/x")) == 1
    assert len(another_base(tmp_path, str(tmp_path), hub.replace("Tale-1", "Tale-2"))) == 1


def test_a_file_is_called_as_its_owner_likes(tmp_path):
    """Its name says nothing of the model in it, so it is no other model than the adapter's."""
    config = {"base_model_name_or_path": "Owner/Tale-1"}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    (tmp_path / "mine.gguf").write_bytes(b"")
    for model in (tmp_path / "mine.gguf", tmp_path):
        assert another_base(tmp_path, str(model), str(model)) == []


def test_a_target_that_is_no_linear_is_refused_beside_others(tmp_path, rows, capsys):
    words = ["--model", toy_llama(tmp_path / "model"), "--data", rows, "--steps", "1"]
    _, said = ran(capsys, "lora", "train", *words, "--targets", "q_proj,foo,1.k_proj", code=2)
    assert "this model has no such linear: got foo, 1.k_proj, want down_proj, gate_proj" in said


@pytest.mark.parametrize("alpha", ["0", "nan", "inf"])
def test_an_alpha_by_which_nothing_is_learnt_is_refused(alpha, tmp_path, rows, capsys):
    words = ["--model", toy_llama(tmp_path / "model"), "--data", rows, "--steps", "1"]
    _, said = ran(capsys, "lora", "train", *words, "--alpha", alpha, code=2)
    assert "alpha: nothing would be learnt" in said


def test_a_head_that_is_the_models_own_is_no_table_to_weigh(tmp_path, capsys):
    model = toy_llama(tmp_path / "model")
    checkpoint = load_checkpoint(model)
    own = np.asarray(checkpoint.tensors[head_name(checkpoint.config)], np.float32)
    adapter = fresh(checkpoint.config, AdapterConfig(2, 4, ("lm_head",)), seed=0)
    words = ["lora", "fuse", "--model", model, "--weight", "0.5", "--verify"]
    for name, head, code in (("own", own, 0), ("other", own + 1, 2)):
        save_adapter(tmp_path / name, replace(adapter, tables={"lm_head": head}))
        out = tmp_path / f"{name} fused"
        _, said = ran(capsys, *words, "--adapter", tmp_path / name, "--out", out, code=code)
        assert ("of tables that come whole" in said) is bool(code)
