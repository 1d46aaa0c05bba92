"""`Trainer(config).train()`, and where a run's lines go."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from toys import VOCAB, toy_llama

import orion_ane
from orion_ane.ane.targets import target
from orion_ane.errors import ConfigError
from orion_ane.train.checkpoint import Checkpoints
from orion_ane.train.config import TrainConfig
from orion_ane.train.plot import curves, draw

LINE = {"loss": 2.0, "tokens_per_s": 50.0}


@pytest.fixture
def small(tmp_path):
    ids = np.random.default_rng(5).integers(0, VOCAB, 400).astype("<u2")
    ids.tofile(tmp_path / "a.bin")
    ids[:70].tofile(tmp_path / "b.bin")
    model = str(toy_llama(tmp_path / "model"))
    options = {"data": tmp_path / "a.bin", "steps": 4, "seq": 16, "batch": 2, "lr": 1e-2}

    def config(**more):
        given = {**options, "model": model, "device": "cpu", "threads": 1, **more}
        return orion_ane.TrainConfig(**given)

    return config


def test_a_configuration_trains_as_the_command_does(small, tmp_path):
    out, lines, notes = tmp_path / "out", [], []
    kept = {"checkpoint_dir": tmp_path / "run", "save_every": 3}
    trainer = orion_ane.Trainer(small(export=str(out), **kept))
    saved = []
    result = trainer.train(on_step=lines.append, on_note=notes.append, on_saved=saved.append)
    assert saved == [tmp_path / "run" / f"step-{step:08d}" for step in (3, 4)]
    assert (result.steps, result.ended, result.exported) == (4, "steps", out)
    assert result.losses == [line["loss"] for line in lines]
    assert list(result.lines) == lines
    assert result.summary["step"] == 4
    assert any("updates: " in note for note in notes)
    result.export(tmp_path / "again")
    for folder in (out, tmp_path / "again"):
        with orion_ane.load(str(folder), device="cpu", threads=1) as model:
            assert model.generate([1, 2, 3], max_tokens=2).ids


def test_a_model_and_a_target_may_be_paths_and_targets(small, tmp_path):
    model, log = tmp_path / "model", tmp_path / "log"
    config = small(model=model, device="auto", target=target("m1"), steps=1, log_file=log)
    summary = orion_ane.Trainer(config).train().summary
    assert json.loads(log.read_text().splitlines()[-1]) == summary
    assert (summary["model"], summary["target"]) == (str(model), "m1")


def test_a_run_is_stopped_from_outside(small):
    result = orion_ane.Trainer(small()).train(stopped=lambda: True)
    assert (result.steps, result.ended) == (1, "interrupted")


def test_an_error_of_a_listener_leaves_a_checkpoint(small, tmp_path):
    def fails(line):
        if line["step"] == 2:
            raise RuntimeError("no more")

    trainer = orion_ane.Trainer(small(checkpoint_dir=tmp_path / "run"))
    with pytest.raises(RuntimeError, match="no more"):
        trainer.train(on_step=fails)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["step-00000002"]


def test_a_figure_and_events_tell_a_run(small, tmp_path):
    config = small(
        eval_data=(tmp_path / "b.bin",),
        eval_every=2,
        plot=tmp_path / "run.png",
        tensorboard=tmp_path / "events",
        log_file=tmp_path / "log",
    )
    result = orion_ane.Trainer(config).train()
    with Image.open(tmp_path / "run.png") as image:
        assert image.format == "PNG"
        assert min(image.size) > 500
        assert len(set(image.convert("L").tobytes())) > 50  # something is drawn
    events = EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    found = {
        tag: [(e.step, float(e.tensor_proto.float_val[0])) for e in events.Tensors(tag)]
        for tag in ("loss/train", "loss/held_out", "speed/tokens_per_s")
    }
    assert [step for step, _ in found["speed/tokens_per_s"]] == [1, 2, 3, 4]
    assert [loss for _, loss in found["loss/train"]] == pytest.approx(result.losses)
    held_out = [line["eval_loss"] for line in result.lines if "eval_loss" in line]
    assert [step for step, _ in found["loss/held_out"]][:2] == [2, 4]
    assert [loss for _, loss in found["loss/held_out"]][:2] == pytest.approx(held_out)
    assert result.eval_loss == held_out[-1]
    logged = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert logged == [*result.lines, result.summary]


def test_curves_are_those_of_the_lines():
    lines = [{**LINE, "step": i, "loss": 3.0 - i / 100} for i in range(1, 101)]
    lines[9] |= {"why_skipped": "not finite", "loss": None}
    lines[49] |= {"eval_loss": 2.8}
    found = curves(lines)
    assert found.loss == [(i, 3.0 - i / 100) for i in range(1, 101) if i != 10]
    assert found.mean[-1] == (98, pytest.approx(sum(3 - i / 100 for i in range(96, 101)) / 5))
    assert (found.held_out, found.skipped) == ([(50, 2.8)], [10])
    figure = draw(found, title="a run")
    above, below = figure.axes
    assert [line.get_label() for line in above.lines] == [
        *("each step", "mean of 5 steps", "held out", "skipped")
    ]
    assert list(above.lines[0].get_ydata()) == [y for _, y in found.loss]
    assert list(below.lines[0].get_ydata()) == [50.0] * 100
    short = curves(lines[:3])
    assert short.mean == []
    assert len(draw(short).axes[0].lines) == 1


@pytest.mark.parametrize(
    ("asked", "module"), [("plot", "matplotlib.figure"), ("tensorboard", "tensorboard.summary")]
)
def test_what_needs_an_extra_says_so_before_anything_runs(asked, module, small, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    config = small(**{asked: "x.png"})
    with pytest.raises(ConfigError, match=rf"{asked}: needs the package(.|\n)*\[{asked}\]"):
        orion_ane.Trainer(config).train()


@pytest.mark.parametrize(
    "bad",
    [
        {"target": "m1", "device": "cpu"},
        {"eval_every": -1},
        {"eval_every": 2},
        {"peer_timeout": math.nan},
    ],
)
def test_settings_that_mean_nothing_together_are_refused(bad, small):
    with pytest.raises(ConfigError):
        small(**bad)


@pytest.mark.parametrize(
    "bad",
    [
        {"steps": 2.5}, {"steps": "2"}, {"steps": np.float32(2)}, {"batch": True}, {"seq": "16"},
        {"lr": "x"}, {"lr": None}, {"clip": True}, {"max_minutes": "1"}, {"resume": 1},
        {"device": None}, {"model": 5}, {"export": 5}, {"adapter": "x"}, {"data": None},
        {"data": ["a", None]}, {"eval_data": 5}, {"data": b"a.txt"},
    ],
)  # fmt: skip
def test_a_setting_of_another_kind_is_refused_with_its_name(bad, small):
    ((name, value),) = bad.items()
    with pytest.raises(ConfigError) as error:
        small(**bad)
    assert str(error.value).startswith(f"{name}: of another kind: got {value!r}, want ")


@pytest.mark.parametrize("name", ["run.pdf", "none/run.png"])
def test_a_figure_that_could_not_be_written_is_refused_before_a_step(name, small):
    with pytest.raises(ConfigError, match="plot"):
        orion_ane.Trainer(small(plot=name)).train()


def test_the_configuration_mirrors_the_options_of_the_command():
    from dataclasses import MISSING, fields

    from orion_ane.cli.train import train

    known = {o.name: o for o in train.params if o.expose_value} | {"threads": None, "adapter": None}
    for field in fields(TrainConfig):
        option = known.pop(field.name)
        if option is not None and not option.multiple and not option.required:
            default = None if field.default is MISSING else field.default
            shown = option.default if option.default.__class__.__name__ != "Sentinel" else None
            assert shown == default or not (shown or default), field.name
    assert set(known) == {"as_json"}


def test_wide_products_in_bf16_learn_the_same_text(small, tmp_path):
    """Close to fp32, and not it: so that what was asked for was done."""
    wide = {"seq": 32, "batch": 2, "steps": 6}  # more columns than a thin product has
    with_fp32 = orion_ane.Trainer(small(**wide)).train()
    result = orion_ane.Trainer(small(numerics="bf16", export=tmp_path / "out", **wide)).train()
    pairs = list(zip(result.losses, with_fp32.losses, strict=True))
    assert all(got == pytest.approx(want, rel=1e-2) for got, want in pairs)
    assert any(got != want for got, want in pairs)
    assert {array.dtype for array in result.model.tensors.values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"numerics": "fp16"}, "numerics: not with device cpu: got fp16, want fp32 or bf16"),
        ({"numerics": "exact"}, "cpu: got exact, want fp32 or bf16\n  hint: device emulator takes"),
        (
            {"numerics": "exact", "device": "auto"},
            "auto: got exact, want fp32 or bf16\n  hint: dev",
        ),
        ({"numerics": "bf16", "updates": "input"}, "updates: not with numerics bf16"),
        ({"numerics": "bf16", "device": "emulator"}, "or fp32\n  hint: device cpu takes it"),
        (
            {"numerics": "bf16", "target": "m1", "device": "auto"},
            "not with device emulator: got bf",
        ),
        ({"numerics": "fp32", "device": "ane"}, "with device ane: want device cpu or emulator"),
        ({"numerics": "fp32x"}, "not with device cpu: got fp32x, want fp32 or bf16$"),
    ],
)
def test_numerics_that_a_device_has_not_are_refused(asked, message, small):
    with pytest.raises(ConfigError, match=message):
        orion_ane.Trainer(small(**asked)).train()


def test_auto_learns_in_the_numerics_of_the_device_that_it_takes(small):
    found = [
        orion_ane.Trainer(small(device=device, numerics="fp32", steps=1)).train()
        for device in ("cpu", "auto")
    ]
    assert found[0].losses == found[1].losses
    assert found[1].summary["numerics"] == "fp32"


def test_errors_are_in_pythons_words(small):
    """The command says the same with its options: `tests/e2e/test_cli_words.py`."""
    for asked, words in (
        ({"target": "m1", "device": "cpu"}, "want device emulator or ane"),
        ({"eval_every": 2}, "give `eval_data`"),
        ({"replace": True}, "give `export`"),
        ({"resume": True}, "give `checkpoint_dir`"),
        ({"model": None}, "give `model` to train one further, or `from_scratch`"),
        ({"clip": -1}, "clip: no such norm: got -1, want above 0, or 0, which is no bound"),
    ):
        with pytest.raises(ConfigError) as error:
            orion_ane.Trainer(small(**asked)).train()
        assert words in str(error.value)
        assert "--" not in str(error.value)


def test_the_emulator_computes_as_it_is_told(small):
    losses = [
        orion_ane.Trainer(small(device="emulator", numerics=numerics, steps=1)).train().losses
        for numerics in (None, "exact", "fp16")
    ]
    assert losses[0] == losses[1] != losses[2]
    assert losses[2] == pytest.approx(losses[0], rel=1e-2)


@pytest.mark.parametrize("option", ["checkpoint_dir", "export"])
def test_a_place_that_takes_no_files_is_refused_before_a_step(option, small, tmp_path):
    """Not after hours of training: the last moment at which a mistake costs nothing."""
    (tmp_path / "file").write_text("")
    place = tmp_path / "file" / "inside"
    lines = []
    with pytest.raises(ConfigError, match=rf"{option}: .* takes no files"):
        orion_ane.Trainer(small(**{option: place})).train(on_step=lines.append)
    assert not lines


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_log_that_has_no_room_is_named_and_what_was_learnt_is_saved(small, tmp_path):
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        orion_ane.Trainer(small(log_file="/dev/full", checkpoint_dir=tmp_path / "run")).train()
    assert Checkpoints(tmp_path / "run").newest().state.step == 1
