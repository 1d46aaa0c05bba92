"""How `orion train` tells people what it does."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from orion_ane.cli.train import Lines, _progress
from orion_ane.train.config import TrainConfig

LINE = {"loss": 2.5, "grad_norm": 1.0, "lr": 1e-3, "tokens_per_s": 512.0}


class Screen(io.StringIO):
    """A terminal, or a file."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def told(monkeypatch, *, is_terminal, is_first=True):
    screen = Screen(is_terminal=is_terminal)
    monkeypatch.setattr("sys.stderr", screen)
    config = TrainConfig(data="x", steps=4)
    with _progress(config, as_json=False, is_first=is_first) as progress:
        progress.note("updates: reload")
        progress.saved(Path("run/step-1"))
        for step in (3, 4):  # resumed after the second
            progress.step({**LINE, "step": step})
        progress.saved(Path("run/step-2"))
    return screen.getvalue()


def test_a_terminal_shows_a_bar_with_loss_speed_and_what_is_left(monkeypatch):
    said = told(monkeypatch, is_terminal=True)
    assert "note: updates: reload" in said
    assert "50%" in said
    assert "100%" in said
    assert "4/4 loss 2.5000, norm 1.000, lr 1.00e-03, 512 tokens/s" in said
    assert "\ncheckpoint: run/step-1\n" in said
    assert "\r\x1b[Kcheckpoint: run/step-2\n" in said


def test_what_is_no_terminal_gets_lines_and_no_bar(monkeypatch):
    said = told(monkeypatch, is_terminal=False)
    assert "\r" not in said
    assert "\x1b" not in said
    *_, last, saved = said.splitlines()
    assert last.startswith("step 4/4: loss 2.5000, norm 1.000")
    assert last.endswith(", 0 s left")
    assert saved == "checkpoint: run/step-2"


def test_the_first_step_says_nothing_of_the_speed_of_others(monkeypatch):
    """Loops are compiled in it."""
    screen, seconds = Screen(is_terminal=False), iter((100.0, 102.0, 104.0))
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr("time.monotonic", lambda: next(seconds))
    lines = Lines(9)
    for step in (3, 4, 5):
        lines.step({**LINE, "step": step})
    first, second, third = screen.getvalue().splitlines()
    assert first == "step 3/9: loss 2.5000, norm 1.000, lr 1.00e-03"
    assert second.endswith("512 tokens/s, 10 s left")
    assert third.endswith("512 tokens/s, 8 s left")


def test_a_reading_of_the_held_out_text_is_always_told(monkeypatch):
    """However soon it comes after the line before."""
    screen = Screen(is_terminal=False)
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr("time.monotonic", lambda: 100.0)
    lines = Lines(9)
    for step in range(1, 5):
        lines.step({**LINE, "step": step, **({"eval_loss": 2.25} if step == 3 else {})})
    said = [line.partition(", norm")[0] for line in screen.getvalue().splitlines()]
    assert said == ["step 1/9: loss 2.5000", "step 3/9: loss 2.5000 (held out 2.2500)"]


@pytest.mark.parametrize("is_terminal", [False, True])
def test_of_several_processes_one_speaks(is_terminal, monkeypatch):
    assert told(monkeypatch, is_terminal=is_terminal, is_first=False) == ""
