"""`orion train`, through `main` and, to be interrupted, as a process."""

from __future__ import annotations

import json
import math
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from toys import VOCAB, lost, toy_gpt2, toy_llama

import orion_ane
from orion_ane.cli.main import main
from orion_ane.models.weights import load_checkpoint
from orion_ane.train.checkpoint import Checkpoints

LINE = {
    *("step", "loss", "lr", "grad_norm", "loss_scale", "skipped", "tokens_seen"),
    *("forward_ms", "backward_ms", "weight_grad_ms", "optimizer_ms", "update_ms", "step_ms"),
    *("compiles", "reloads", "device", "updates"),
}


@pytest.fixture
def tales(tmp_path):
    path = tmp_path / "tales.txt"
    path.write_text("The cat sat on the mat.\n<|endoftext|>\n" * 30)
    return path


def trained(capsys, *words, code=0):
    """The JSON lines of a run."""
    assert main(["train", "--json", "--threads", "1", *map(str, words)]) == code
    captured = capsys.readouterr()
    return [json.loads(line) for line in captured.out.splitlines()], captured.err


def options(model, data, steps=4):
    small = ["--seq", "16", "--batch", "2", "--lr", "0.01"]
    return ["--model", model, "--data", data, "--steps", steps, *small, "--device", "cpu"]


@pytest.mark.parametrize("toy", [toy_llama, toy_gpt2])
def test_a_model_learns_its_text(toy, tmp_path, tales, capsys):
    model = toy(tmp_path / "model")
    words = options(model, tales, 12)
    lines, said = trained(capsys, *words, "--eval-data", tales, "--log-file", tmp_path / "log")
    assert all(set(line) >= LINE for line in lines[:-1])
    assert [line["step"] for line in lines[:-1]] == list(range(1, 13))
    summary = lines[-1]
    assert (summary["type"], summary["ended"]) == ("summary", "steps")
    assert summary["eval_loss"] < lines[0]["loss"] - 1
    assert summary["eval_perplexity"] == pytest.approx(math.exp(summary["eval_loss"]))
    assert [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()] == lines
    assert "nothing is saved" in said
    for name in ("compiles", "loads", "reloads", "bytes_written"):
        assert summary[name] == lines[-2][name]
    assert summary["compiles"] > 0


def test_a_first_loss_is_what_generate_says(tmp_path, capsys):
    """Both ways through the same model, on the same ids."""
    model = toy_llama(tmp_path / "model")
    ids = np.random.default_rng(3).integers(0, VOCAB, 33).astype("<u2")
    ids.tofile(tmp_path / "x.bin")
    words = options(model, tmp_path / "x.bin", 1)
    lines, _ = trained(capsys, *words, "--seq", "32", "--batch", "1")
    with orion_ane.load(str(model), device="cpu", threads=1) as loaded:
        assert lines[0]["loss"] == pytest.approx(loaded.loss(ids.tolist()), rel=1e-5)


def test_a_run_in_two_parts_is_the_run_in_one(tmp_path, tales, capsys):
    words = options(toy_llama(tmp_path / "model"), tales)
    whole, _ = trained(capsys, *words, "--checkpoint-dir", tmp_path / "a")
    two = tmp_path / "b"
    trained(capsys, *words, "--checkpoint-dir", two, "--save-every", 1)
    for step in (3, 4):  # as if it had been killed after the second
        (two / f"step-{step:08d}" / "checkpoint.json").unlink()
    rest, said = trained(capsys, *words, "--checkpoint-dir", two, "--resume")
    assert [line["loss"] for line in rest[:-1]] == [line["loss"] for line in whole[2:-1]]
    assert said.count("passed over: ") == 2
    assert "goes on after step 2" in said
    ends = [Checkpoints(tmp_path / name).newest().state.masters for name in "ab"]
    assert all(np.array_equal(array, ends[1][name]) for name, array in ends[0].items())


@pytest.mark.parametrize("toy", [toy_llama, toy_gpt2])
def test_a_trained_model_is_exported_and_has_what_was_learnt(toy, tmp_path, tales, capsys):
    out = tmp_path / "out"
    words = options(toy(tmp_path / "model"), tales)
    lines, said = trained(capsys, *words, "--eval-data", tales, "--export", out)
    assert f"written to {out}" in said
    assert "nothing is saved" not in said
    assert "a run that breaks off cannot be resumed without --checkpoint-dir" in said
    found = [lines[-1]["eval_loss"]]
    again, _ = trained(capsys, *options(out, tales, 1), "--eval-data", tales, "--lr", "1e-30")
    assert again[-1]["eval_loss"] == pytest.approx(found[0], rel=1e-6)
    _, said = trained(capsys, *words, "--export", out, code=2)
    assert "is there already" in said
    assert "step 1" not in said


@pytest.mark.parametrize("toy", [toy_llama, toy_gpt2])
def test_a_new_model_learns_from_nothing(toy, tmp_path, tales, capsys):
    shape = (toy(tmp_path / "other") / "config.json").rename(tmp_path / "shape.json")
    words = options(toy(tmp_path / "model"), tales, 20)
    new = ["--from-scratch", shape, "--export", tmp_path / "out"]
    lines, _ = trained(capsys, *words, *new, "--eval-data", tales)
    assert lines[0]["loss"] == pytest.approx(math.log(VOCAB), abs=0.05)  # it knows nothing
    assert lines[-1]["eval_loss"] < math.log(VOCAB) - 1.5
    again, _ = trained(capsys, *words, "--from-scratch", shape, "--seed", "1")
    assert again[0]["loss"] != lines[0]["loss"]
    assert load_checkpoint(tmp_path / "out").tokenizer is not None
    _, said = trained(capsys, *words[2:], "--from-scratch", shape, code=2)
    assert "text, and the model has no tokenizer" in said
    _, said = trained(capsys, *words[2:], code=2)
    assert "--model: not given" in said


def strict(text):
    """JSON alone: Python's reader takes NaN too."""
    return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


def test_a_run_whose_last_steps_learnt_nothing_says_so_at_its_end(tmp_path, tales, capsys):
    words = [*options(toy_llama(tmp_path / "model"), tales), "--export", tmp_path / "out"]
    lines, said = trained(capsys, *words, "--lr", "1e30")
    assert lines[-1]["skipped"] == 3
    why = r"the last 3 steps were skipped \(not finite: head d_hidden\)"
    told = rf"note: {why}; the model is that of step 1, with a loss of (.*)\nwritten to"
    assert float(re.search(told, said)[1]) == pytest.approx(lines[-1]["loss"], abs=1e-4)


def test_a_run_of_which_no_step_was_taken_ends_with_a_status_of_its_own(tmp_path, tales, capsys):
    _, said = trained(capsys, *options(lost(tmp_path / "lost"), tales, 1), code=1)
    words = r"note: the last step was skipped \(.*\); the model is as it was at the start, with a"
    assert re.search(rf"{words} loss that is not finite\n", said)


def test_held_out_losses_that_are_not_finite_are_null(tales, tmp_path, capsys):
    held_out = ["--eval-data", str(tales), "--eval-every", "1", "--log-file", str(tmp_path / "log")]
    words = ["train", *map(str, options(lost(tmp_path / "lost"), tales, 2)), *held_out]
    assert main([*words, "--json"]) == 1
    lines = [strict(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [strict(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert len(lines) == 3
    assert all(line["eval_loss"] is line["eval_perplexity"] is None for line in lines)
    assert main(words) == 1
    assert "held out: loss not finite, perplexity not finite" in capsys.readouterr().err


def test_what_cannot_be_exported_is_refused_before_a_step(tmp_path, tales, capsys):
    words = options(toy_gpt2(tmp_path / "model"), tales)
    lines, said = trained(capsys, *words, "--export", tmp_path / "m.bin", code=2)
    assert [*lines[0]] == ["error"]
    assert "llama2.c has Llama alone" in said


def test_a_tokenizer_that_a_file_will_be_without_is_told_of_once_and_at_the_start(
    tmp_path, tales, capsys
):
    words = options(toy_llama(tmp_path / "model"), tales, 1)[:-2]
    assert main(["train", *map(str, words), "--export", str(tmp_path / "m.bin")]) == 0
    said = capsys.readouterr().err
    before, _, after = said.partition("note: llama2.c wants a tokenizer.bin beside it, and this ")
    assert after
    assert "step 1" not in before
    assert "step 1" in after
    assert "tokenizer.bin" not in after


def test_models_are_converted(tmp_path, capsys):
    model = toy_llama(tmp_path / "model")
    assert main(["convert", str(model), str(tmp_path / "out"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["family"] == "llama"
    want, got = load_checkpoint(model), load_checkpoint(tmp_path / "out")
    assert got.config == want.config
    assert all(np.array_equal(got.tensors[name], array) for name, array in want.tensors.items())
    assert main(["convert", str(model), str(tmp_path / "b"), "--program", "main"]) == 2


def test_a_checkpoint_is_told_where_people_read(tmp_path, tales, capsys):
    words = [*options(toy_llama(tmp_path / "model"), tales, 2), "--checkpoint-dir", tmp_path / "a"]
    assert main(["train", "--threads", "1", *map(str, words)]) == 0
    assert f"\ncheckpoint: {tmp_path / 'a' / 'step-00000002'}\n" in capsys.readouterr().err
    _, said = trained(capsys, *words[:-1], tmp_path / "b")
    assert "checkpoint: " not in said


def test_a_run_that_goes_on_on_another_device_says_so(tmp_path, tales, capsys):
    words = [*options(toy_llama(tmp_path / "model"), tales, 1), "--schedule", "constant"]
    words += ["--checkpoint-dir", tmp_path / "run"]
    trained(capsys, *words)
    _, said = trained(capsys, *words, "--resume", "--steps", 2)
    assert "began on" not in said
    _, said = trained(
        capsys, *words, "--resume", "--steps", 3, "--device", "emulator", "--numerics", "fp16"
    )
    assert said.count("began on cpu (fp32), goes on on emulator (strict, fp16)") == 1


def test_a_run_that_has_nothing_left_to_do_says_where_it_is(tmp_path, tales, capsys):
    words = [*options(toy_llama(tmp_path / "model"), tales, 3), "--schedule", "constant"]
    words += ["--checkpoint-dir", tmp_path / "run"]
    lines, _ = trained(capsys, *words)
    for steps, beyond in ((3, ""), (2, ": the checkpoint is of step 3")):
        found, said = trained(capsys, *words, "--resume", "--steps", steps)
        assert said.endswith(f"nothing to do: all {steps} steps are taken{beyond}\n")
        (summary,) = found
        assert [summary[name] for name in ("step", "skipped", "tokens_seen")] == [3, 0, 96]
        assert lines[-1]["tokens_seen"] == 96


def test_the_model_of_a_run_that_is_over_can_still_be_written(tmp_path, tales, capsys):
    """As the error says, of a checkpoint that is given as a model."""
    words = [*options(toy_llama(tmp_path / "model"), tales, 2), "--checkpoint-dir"]
    trained(capsys, *words, tmp_path / "run", "--export", tmp_path / "then")
    trained(capsys, *words, tmp_path / "run", "--resume", "--export", tmp_path / "later")
    then, later = (load_checkpoint(tmp_path / name).tensors for name in ("then", "later"))
    assert all(np.array_equal(array, later[name]) for name, array in then.items())


def test_what_cannot_be_resumed_is_refused(tmp_path, tales, capsys):
    words = options(toy_llama(tmp_path / "model"), tales, 1)
    folder = ["--checkpoint-dir", tmp_path / "run"]
    trained(capsys, *words, *folder)
    _, said = trained(capsys, *words, *folder, code=2)
    assert "holds the checkpoints of a run\n  hint: give --resume" in said
    _, said = trained(capsys, *words, "--batch", 3, *folder, "--resume", code=2)
    assert f"--batch 3: the run in {folder[1]} began with --batch 2\n" in said
    _, said = trained(capsys, *words, "--steps", 12, *folder, "--resume", code=2)
    assert f"--steps 12: the run in {folder[1]} began with --steps 1\n" in said
    assert "another folder; only a run that began with --schedule constant takes other" in said
    tales.write_text("something else " * 100)
    _, said = trained(capsys, *words, *folder, "--resume", code=2)
    assert "data: not those of the checkpoint" in said
    _, said = trained(capsys, *words, "--resume", code=2)
    assert "--resume: without a folder" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seq", "65"], "--seq: does not fit the model: got 65, want 1 to the context of 64\n"),
        (["--steps", "0"], "--steps: nothing to train"),
        (["--lr", "nan"], "--lr: no such rate"),
        (["--data", "missing.txt"], "missing.txt: cannot be read"),
        (["--target", "m1"], "--target: not with device cpu"),
        (["--seq", "5000", "--data", "missing.txt"], "--seq: does not fit the model"),
        (["--grad-accum", "0"], "--grad-accum: out of range"),
        (["--warmup", "9"], "--warmup: out of range"),
    ],
)
def test_bad_use_is_one_message(words, message, tmp_path, tales, capsys):
    _, said = trained(capsys, *options(toy_llama(tmp_path / "model"), tales), *words, code=2)
    assert message in said
    assert said.count("orion: ") == 1
    assert "Traceback" not in said


def test_a_text_that_is_too_short_says_what_would_do(tmp_path, tales, capsys):
    tales.write_text("once")
    _, said = trained(capsys, *options(toy_llama(tmp_path / "model"), tales), code=2)
    assert "too short for one sequence" in said
    assert "want at least 17 for --seq 16\n  hint: give more text, or --seq " in said


def test_the_device_that_auto_takes_is_said(tmp_path, tales, capsys):
    words = options(toy_llama(tmp_path / "model"), tales, 1)
    _, said = trained(capsys, *words)
    assert "(auto)" not in said
    (line, _), said = trained(capsys, *words[:-1], "auto")
    assert said.startswith(f"note: device: {line['device']} (auto)\n")


def test_reload_on_a_device_that_keeps_its_weights_is_refused(tmp_path, tales, capsys):
    words = options(toy_llama(tmp_path / "model"), tales)
    words[-1] = "emulator"
    _, said = trained(capsys, *words, "--updates", "reload", code=2)
    assert "runs on with the weights of before" in said
    assert "take --updates donor" in said


@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_saves_what_it_has_learnt_C09(asked, tmp_path, tales):
    words = options(toy_llama(tmp_path / "model"), tales, 100000)
    words += ["--checkpoint-dir", tmp_path / "run", "--export", tmp_path / "out"]
    words += ["--json", "--threads", "1"]
    command = [sys.executable, "-m", "orion_ane", "train", *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True) as process:
        lines = [process.stdout.readline() for _ in range(3)]
        process.send_signal(asked)
        if asked == signal.SIGTERM:  # as `timeout` sends it, to the command and to its group
            process.send_signal(asked)
        lines += process.stdout.read().splitlines()
        said = process.stderr.read()
        assert process.wait() == 130
    *_, last, summary = map(json.loads, lines)
    assert summary["ended"] == "interrupted"
    assert f"ended by interruption after step {last['step']}" in said
    assert Checkpoints(tmp_path / "run").newest().state.step == last["step"] == summary["step"]
    assert load_checkpoint(tmp_path / "out").config.vocab == VOCAB
