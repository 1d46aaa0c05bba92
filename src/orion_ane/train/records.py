"""Where the lines of a run go: a log file, TensorBoard, a figure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from orion_ane.artefacts.written import want_apart, want_file
from orion_ane.errors import ConfigError
from orion_ane.train.config import TrainConfig, file, files
from orion_ane.train.extras import extra
from orion_ane.train.plot import Plot

TAGS = {
    "loss": "loss/train",
    "eval_loss": "loss/held_out",
    "lr": "optimizer/lr",
    "grad_norm": "optimizer/grad_norm",
    "loss_scale": "optimizer/loss_scale",
    "skipped": "optimizer/skipped",
    "tokens_per_s": "speed/tokens_per_s",
    "step_ms": "speed/step_ms",
    "tokens_seen": "data/tokens_seen",
}
"""TensorBoard's names of what a line says."""
LONGEST_LINE = 1 << 16


class Record(Protocol):
    """Something that keeps the lines of a run."""

    def step(self, line: Mapping[str, Any]) -> None:
        """Take a step's line."""

    def end(self, summary: Mapping[str, Any]) -> None:
        """Take the last line."""

    def close(self) -> None:
        """The run is over, however it ended."""


class LogFile:
    """JSON lines, added to a file one by one."""

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, path.open("ab", buffering=0)
        if _is_cut(path):
            self._file.write(b"\n")

    def step(self, line: Mapping[str, Any]) -> None:
        """Add a line.

        Raises:
            OSError: with the file's name; a disk that is full takes a part of it.
        """
        text = f"{json.dumps(line)}\n".encode()
        try:
            while text:
                text = text[self._file.write(text) :]
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from error

    end = step

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoard:
    """Scalars for TensorBoard, written by its own package.

    Raises:
        ConfigError: it is not installed.
    """

    def __init__(self, folder: Path) -> None:
        package = extra("tensorboard.summary", option="tensorboard", name="tensorboard")
        self._writer = package.Writer(str(folder))

    def step(self, line: Mapping[str, Any]) -> None:
        """Write what a step was, at once."""
        for name, tag in TAGS.items():
            value = line.get(name)
            if value is not None and math.isfinite(value):
                self._writer.add_scalar(tag, value, line["step"])
        self._writer.flush()

    def end(self, summary: Mapping[str, Any]) -> None:
        """The held-out loss at the end counts with the last step."""
        if summary.get("eval_loss") is not None and summary["step"] is not None:
            self._writer.add_scalar(TAGS["eval_loss"], summary["eval_loss"], summary["step"])

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()


@contextmanager
def records(config: TrainConfig) -> Iterator[list[Record]]:
    """All that a run is to be kept in, closed when it is over.

    Raises:
        ConfigError: one needs a package that is not installed, or is there and something else.
        OSError: one cannot be written.
    """
    _want_apart_from_each_other(config)
    found: list[Record] = []
    with ExitStack() as stack:
        if (path := file(config.plot)) is not None:
            found.append(Plot(path, title=_title(config)))
            stack.callback(found[-1].close)
        if (path := file(config.tensorboard)) is not None:
            found.append(TensorBoard(path))
            stack.callback(found[-1].close)
        if (path := file(config.log_file)) is not None:
            want_apart("log_file", path, (*files(config.data), *files(config.eval_data)))
            want_file("log_file", path, _takes_lines, "log of a run")
            found.append(LogFile(path))
            stack.callback(found[-1].close)
        yield found


def _takes_lines(path: Path) -> bool:
    """Whether lines of a run lie in a file already, or it is no file but a device or a pipe."""
    if path.is_dir() or not path.exists():
        return False
    if not path.is_file():
        return True
    with path.open("rb") as opened:
        first = opened.readline(LONGEST_LINE)
    try:
        line = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(line, dict) and {"step", "loss", "tokens_seen"} <= line.keys()


def _title(config: TrainConfig) -> str:
    name = config.model or config.from_scratch or ""
    return f"{Path(name).name}: lr {config.lr:g}, {config.schedule}, batch {config.batch}"


def _is_cut(path: Path) -> bool:
    """Whether a file's last line has no end, as a full disk or a kill leaves it."""
    if not path.is_file() or not path.stat().st_size:  # a pipe or a device is no file
        return False
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read() != b"\n"


def _want_apart_from_each_other(config: TrainConfig) -> None:
    """Refuse two places of a run of which one would go over, or into, the other."""
    names = ("export", "checkpoint_dir", "log_file", "plot")
    places = [(name, file(getattr(config, name))) for name in names]
    known = [(name, path.resolve()) for name, path in places if path is not None]
    for i, (name, path) in enumerate(known):
        for other, place in known[i + 1 :]:
            is_within = name == "export" and place.is_relative_to(path)
            if is_within or place == path:
                what = f"is where `{name}` goes, or within it"
                raise ConfigError(other, what, got=place, hint="give another place")
