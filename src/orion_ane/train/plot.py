"""The figure of a run: loss above, throughput below, over its steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from orion_ane.artefacts.written import want_file
from orion_ane.errors import ConfigError
from orion_ane.train.extras import extra

Points: TypeAlias = list[tuple[int, float]]

SMOOTH = 20
"""Beyond so many steps a mean is drawn over the losses of the steps, of a twentieth of them."""
LOSS, MEAN, HELD_OUT, SPEED = "#9db8d9", "#1f5fa8", "#d1495b", "#3a7d5c"
SMALLEST = 1e-12
WRITER = "orion-ane"
HEAD = 200
"""Bytes of a PNG in which the program that wrote it is named."""


@dataclass(frozen=True)
class Curves:
    """What is drawn, by step.

    Attributes:
        loss: of each step that learnt.
        mean: of the last few of them.
        held_out: of the text that is not learnt.
        tokens_per_s: of each step.
        skipped: steps that learnt nothing.
    """

    loss: Points
    mean: Points
    held_out: Points
    tokens_per_s: Points
    skipped: list[int]


def curves(lines: Iterable[Mapping[str, Any]]) -> Curves:
    """The curves of a run, from its steps' lines."""
    loss: Points = []
    held_out: Points = []
    speed: Points = []
    skipped: list[int] = []
    for line in lines:
        step = line["step"]
        if "why_skipped" in line:
            skipped.append(step)
        elif line["loss"] is not None:
            loss.append((step, line["loss"]))
        if line.get("eval_loss") is not None:
            held_out.append((step, line["eval_loss"]))
        speed.append((step, line["tokens_per_s"]))
    return Curves(loss, _mean(loss), held_out, speed, skipped)


def _mean(loss: Points) -> Points:
    if len(loss) <= SMOOTH:
        return []
    width = max(5, len(loss) // SMOOTH)
    ends = range(width, len(loss) + 1)
    return [
        (loss[end - 1 - width // 2][0], sum(y for _, y in loss[end - width : end]) / width)
        for end in ends
    ]


def draw(found: Curves, *, title: str = "") -> Any:
    """A figure of the curves, one of matplotlib's.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    figure_of = _matplotlib()
    figure = figure_of(figsize=(8, 5.6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1.2))
    if found.mean:
        above.plot(*_axes(found.loss), color=LOSS, lw=0.8, label="each step")
        width = len(found.loss) - len(found.mean) + 1
        above.plot(*_axes(found.mean), color=MEAN, lw=1.8, label=f"mean of {width} steps")
    else:
        above.plot(*_axes(found.loss), color=MEAN, lw=1.8, marker="o", ms=3, label="each step")
    if found.held_out:
        above.plot(
            *_axes(found.held_out), color=HELD_OUT, lw=1.5, marker="o", ms=4, label="held out"
        )
    for i, step in enumerate(found.skipped):
        above.axvline(step, color="0.6", lw=0.8, ls=":", label=None if i else "skipped")
    above.set_ylabel("loss, nats a token")
    above.legend(frameon=False, loc="upper right")
    below.plot(*_axes(found.tokens_per_s), color=SPEED, lw=1.0)
    top = max((y for _, y in found.tokens_per_s), default=1.0)
    below.set(xlabel="step", ylabel="tokens/s", ylim=(0, 1.15 * max(top, SMALLEST)))
    for axes in (above, below):
        axes.grid(color="0.92", lw=0.8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.xaxis.get_major_locator().set_params(integer=True)
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def _axes(points: Points) -> tuple[list[int], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _matplotlib() -> Any:
    """matplotlib's figure, without its windows: nothing asks for a display."""
    return extra("matplotlib.figure", option="plot", name="plot").Figure


class Plot:
    """A figure that is written as PNG when a run ends, however it ends.

    Raises:
        ConfigError: matplotlib is not installed, or the file has another ending or no folder, or
            is there and no figure of a run.
    """

    def __init__(self, file: Path, *, title: str) -> None:
        if file.suffix.lower() != ".png":
            raise ConfigError("plot", "another kind of file", got=file.name, want="NAME.png")
        want_file("plot", file, _is_figure, "figure of a run")
        _matplotlib()
        self._file, self._title = file, title
        self._lines: list[Mapping[str, Any]] = []

    def step(self, line: Mapping[str, Any]) -> None:
        """Remember a step."""
        self._lines.append(dict(line))

    def end(self, summary: Mapping[str, Any]) -> None:
        """The loss at the end counts with the last step."""
        if self._lines and "eval_loss" in summary:
            self._lines[-1] = {**self._lines[-1], "eval_loss": summary["eval_loss"]}

    def close(self) -> None:
        """Draw what there was."""
        if self._lines:
            drawn = draw(curves(self._lines), title=self._title)
            drawn.savefig(self._file, dpi=150, format="png", metadata={"Software": WRITER})


def _is_figure(file: Path) -> bool:
    """Whether a file is a PNG that says that it was drawn here."""
    try:
        with file.open("rb") as opened:
            head = opened.read(HEAD)
    except OSError:
        return False
    return head.startswith(b"\x89PNG") and f"Software\0{WRITER}".encode() in head
