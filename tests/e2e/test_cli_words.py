"""What commands call things: options as typed, the device with its numerics, near names."""

from __future__ import annotations

import json
import sys

import pytest
from toys import toy_llama

import orion_ane
from orion_ane.cli.main import main
from orion_ane.engine.threads import processors
from orion_ane.errors import ConfigError
from orion_ane.train.config import TrainConfig


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return str(toy_llama(tmp_path_factory.mktemp("llama")))


@pytest.fixture
def text(tmp_path):
    (tmp_path / "tales.txt").write_text("a cat sat and a dog ran. " * 8)
    return str(tmp_path / "tales.txt")


def ran(capfd, *words):
    code = main([*words])
    out, err = capfd.readouterr()
    return code, out, err


@pytest.mark.parametrize(
    ("command", "words", "said"),
    [
        ("generate", ["--max-tokens", "0"], "--max-tokens: out of range: got 0"),
        ("generate", ["--top-k", "-1"], "--top-k: out of range: got -1"),
        ("generate", ["--numerics", "exact", "--device", "cpu"], "--numerics: not with device cpu"),
        ("generate", ["--device", "emulator", "--weights", "fp32"], "--weights: the emulator comp"),
        ("train", ["--batch", "0"], "--batch: no rows"),
        ("train", ["--grad-accum", "0"], "--grad-accum: out of range"),
        ("train", ["--max-minutes", "-1"], "--max-minutes: no time"),
        ("train", ["--steps", "0"], "--steps: nothing to train"),
        ("train", ["--save-every", "2"], "--save-every: without a folder"),
        ("train", ["--eval-every", "-1"], "--eval-every: out of range"),
        ("train", ["--eval-every", "2"], "--eval-every: without a text"),
        ("train", ["--clip", "-1"], "--clip: no such norm: got -1.0, want above 0, or 0, which is"),
        (
            "lora train",
            ["--targets", "all"],
            "--targets: no linear of this model has such a name: got all, want all-linear, or ends",
        ),
        ("lora train", ["--targets", "q_proj,foo"], "--targets: this model has no such linear"),
    ],
)
def test_an_error_names_an_option_as_it_was_typed(command, words, said, capfd, llama, text):
    if command == "generate":
        asked = ["--prompt", "a", "--json"]
    else:
        asked = ["--data", text, "--steps", "1", "--device", "cpu", "--seq", "8", "--json"]
    code, out, err = ran(capfd, *command.split(), "--model", llama, *asked, *words)
    assert code == 2
    assert err.splitlines()[-1 if "\n  hint" not in err else -2].startswith(f"orion: {said}")
    assert json.loads(out)["error"]["where"] == said.partition(":")[0]


def test_a_hint_names_an_option_as_it_is_typed(capfd, llama, text):
    for words, hint in (
        (["--eval-every", "2"], "give --eval-data"),
        (["--resume"], "give --checkpoint-dir"),
    ):
        asked = ["--model", llama, "--data", text, "--steps", "1", "--device", "cpu", "--json"]
        code, out, err = ran(capfd, "train", *asked, *words)
        assert code == 2
        assert err.endswith(f"\n  hint: {hint}\n")
        assert json.loads(out)["error"]["hint"] == hint


def test_python_names_the_argument(llama):
    with orion_ane.load(llama, device="cpu", threads=1) as model:
        for name, value in (("max_tokens", 0), ("top_k", -1), ("top_p", 2.0)):
            with pytest.raises(ConfigError) as refused:
                model.generate("a", **{name: value})
            assert refused.value.where == name
    with pytest.raises(ConfigError) as refused:
        TrainConfig(data="x", steps=1, eval_every=-1)
    assert refused.value.where == "eval_every"


def test_a_word_that_is_no_option_of_the_command_stays(capfd):
    code, _, err = ran(capfd, "rules", "nonsense")
    assert code == 2
    assert err.startswith("orion: rules: no such limit")


@pytest.mark.parametrize(
    ("asked", "meant"), [("ane4", "ANE004"), ("0004", "ANE004"), ("anf132", "ANE132")]
)
def test_a_code_that_is_nearly_one_is_told(asked, meant, capfd):
    code, out, err = ran(capfd, "rules", asked)
    assert (code, out) == (2, "")
    assert f"did you mean {meant}" in err


def test_more_threads_than_processors_are_taken_and_told(capfd, llama):
    words = ["generate", "--model", llama, "--prompt", "a", "--max-tokens", "2", "--threads"]
    many = processors() + 1
    code, more, err = ran(capfd, *words, str(many))
    assert code == 0
    assert f"note: {many} threads, as --threads asks, on {processors()} processor" in err
    code, one, err = ran(capfd, *words, "1")
    assert "threads" not in err
    assert more == one


def test_a_prompt_without_its_option_is_told_which(capfd):
    code, out, err = ran(capfd, "generate", "Once upon a time", "--json")
    assert code == 2
    assert 'hint: a prompt is an option: orion generate --prompt "TEXT"' in err
    assert json.loads(out)["error"]["hint"].startswith("a prompt is an option")
    assert "hint: orion rules --help" in ran(capfd, "rules", "a", "b")[2]


def test_an_adapter_that_is_nowhere_is_told_so(capfd, llama, tmp_path):
    words = ["generate", "--model", llama, "--prompt", "a", "--adapter", str(tmp_path / "no")]
    code, _, err = ran(capfd, *words)
    assert (code, err.count("orion: ")) == (2, 1)
    assert f"{tmp_path / 'no'}: no such folder" in err


def test_a_pipe_with_nothing_in_it_is_no_prompt(capfd, llama, monkeypatch, tmp_path):
    (tmp_path / "nothing").write_bytes(b"")
    with (tmp_path / "nothing").open() as handle:
        monkeypatch.setattr(sys, "stdin", handle)
        code, out, err = ran(capfd, "generate", "--model", llama)
    assert (code, out) == (2, "")
    assert (
        'the prompt is empty: standard input has nothing; give --prompt TEXT, or --prompt ""' in err
    )
    assert ran(capfd, "generate", "--model", llama, "--prompt", "", "--max-tokens", "1")[0] == 0


def test_a_prompt_out_of_a_pipe_is_no_option(capfd, llama, monkeypatch, tmp_path):
    (tmp_path / "long").write_text("a" * 400)
    code, _, err = ran(capfd, "generate", "--model", llama, "--prompt", "a" * 400)
    assert (code, err.startswith("orion: --prompt: longer")) == (2, True)
    with (tmp_path / "long").open() as handle:
        monkeypatch.setattr(sys, "stdin", handle)
        code, _, err = ran(capfd, "generate", "--model", llama)
    assert (code, err.startswith("orion: prompt: longer")) == (2, True)


def test_a_target_alone_asks_for_the_emulator_which_is_said(capfd, llama, text):
    words = ["--model", llama, "--target", "m1", "--numerics", "fp16"]
    asked = ["--prompt", "a", "--max-tokens", "2"]
    code, _, err = ran(capfd, "generate", *words, *asked)
    assert code == 0
    assert "device: emulator (m1, fp16), which --target asks for\n" in err
    assert "tokens on emulator (m1, fp16), ended by" in err
    found = json.loads(ran(capfd, "generate", *words, *asked, "--json")[1])
    assert [found[name] for name in ("device", "target", "numerics")] == ["emulator", "m1", "fp16"]
    train = ["--data", text, "--steps", "1", "--batch", "1", "--seq", "8"]
    code, _, err = ran(capfd, "train", *words, *train)
    assert code == 0
    assert err.startswith("note: device: emulator (m1, fp16)\n")
    with orion_ane.load(llama, target="m1", threads=1) as model:
        assert (model.device, model.target, model.numerics) == ("emulator", "m1", "exact")


def test_how_a_device_computes_is_in_the_line_of_figures(capfd, llama):
    _, _, err = ran(capfd, "generate", "--model", llama, "--prompt", "a", "--max-tokens", "1")
    assert "1 tokens on cpu (fp32), ended by length" in err


def test_a_model_that_is_not_given_is_asked_for_with_options_that_there_are(capfd, text):
    code, _, err = ran(capfd, "lora", "train", "--data", text, "--steps", "1")
    assert code == 2
    assert "give --model" in err
    assert "--from-scratch" not in err
    code, _, err = ran(capfd, "train", "--data", text, "--steps", "1")
    assert code == 2
    assert "or --from-scratch" in err


@pytest.mark.parametrize(
    "command", ["train", "lora train", "lora eval", "train --from-scratch x/y"]
)
def test_a_model_is_fetched_where_that_is_asked_for(command, text, tmp_path, monkeypatch, capfd):
    """Offline, so that what is tried shows and nothing is fetched."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    asked = [*command.split(), "--model", "a/b", "--data", text]
    asked += ["--adapter", "x"] if "eval" in command else ["--steps", "1"]
    for words, said in (
        ([], "HF_HUB_OFFLINE is set: put it there"),
        (["--download"], "cannot be "),
    ):
        code, _, err = ran(capfd, *asked, *words)
        assert code == 2
        assert said in err
