"""Training from one configuration to one result: what the command does, for programs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import takewhile
from math import isfinite
from pathlib import Path
from typing import Any, cast

from orion_ane.host.score import Score
from orion_ane.models.weights import Checkpoint
from orion_ane.models.weights.export import export
from orion_ane.train.config import TrainConfig, file
from orion_ane.train.loop import line_of, summary_of
from orion_ane.train.peers import joined
from orion_ane.train.records import Record, records
from orion_ane.train.setup import Prepared, prepare
from orion_ane.train.step import Report
from orion_ane.train.step import Trainer as Steps


@dataclass(frozen=True, eq=False)
class Result:
    """What a run was.

    Attributes:
        lines: each step that was taken here, as `--json` prints it.
        summary: the last line.
        model: what was learnt: its shape, tensors in fp32, and its tokenizer's files.
        exported: where it was written to; None where nothing was asked for.
    """

    lines: Sequence[Mapping[str, Any]]
    summary: Mapping[str, Any]
    model: Checkpoint
    exported: Path | None = None

    @property
    def losses(self) -> list[float | None]:
        """Each step's, before it; None where it was not finite."""
        return [line["loss"] for line in self.lines]

    @property
    def steps(self) -> int:
        """How many were taken here."""
        return len(self.lines)

    @property
    def learnt_nothing(self) -> bool:
        """Whether steps were taken here, and every one was skipped."""
        return _learnt_nothing(self.lines)

    @property
    def ended(self) -> str:
        """Why: `steps`, `time` or `interrupted`."""
        return str(self.summary["ended"])

    @property
    def eval_loss(self) -> float | None:
        """Over the held-out text at the end, in nats a token; None without one or not finite."""
        return self.summary.get("eval_loss")

    def export(self, path: str | Path, *, replace: bool = False) -> list[str]:
        """Write the model: a folder as Hugging Face has it, or `*.bin` for llama2.c.

        Args:
            path: the file or folder.
            replace: whether what was written there before may go; nothing else may.

        Returns:
            What people should know, as which tokenizer was not written.

        Raises:
            ConfigError: it cannot be written in that form, or something is there.
        """
        model = self.model
        return export(Path(path), model.config, model.tensors, model.tokenizer, replace=replace)


class Trainer:
    """Trains a model as `orion train` does, with the same options, notes and lines.

    Args:
        config: what is asked for.
    """

    def __init__(self, config: TrainConfig) -> None:
        self.config = config

    def train(
        self,
        *,
        on_step: Callable[[Mapping[str, Any]], None] = lambda _: None,
        on_note: Callable[[str], None] = lambda _: None,
        on_saved: Callable[[Path], None] = lambda _: None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Result:
        """Take every step that is left, save, export, and say what it was.

        Args:
            on_step: called with each step's line once it is done.
            on_note: called with what a person should know.
            on_saved: called with the folder of each checkpoint once it is written.
            stopped: asked after each step: whether to end with it, saved.

        Raises:
            ConfigError: what cannot be is refused before anything is compiled.
            DataError: data that cannot be used.
            CheckpointError: weights or checkpoints that cannot be read or written.
            BackendError: no such device, or one that fails; what was learnt is saved.
        """
        with ExitStack() as stack:
            peers = stack.enter_context(joined(timeout_s=self.config.peer_timeout))
            kept = stack.enter_context(records(self.config)) if peers.is_first else []
            prepared = prepare(self.config, peers)
            stack.callback(prepared.loop.trainer.close)
            for note in prepared.notes:
                on_note(note)
            prepared.loop.on_saved = on_saved
            lines = self._steps(prepared, kept, on_step, on_note, stopped)
            summary = self._summary(prepared, lines)
            for record in kept:
                record.end(summary)
            if (ruin := _ruined(lines)) is not None:
                on_note(ruin)
            return self._result(prepared, lines, summary, on_note)

    def _steps(
        self,
        prepared: Prepared,
        kept: Sequence[Record],
        on_step: Callable[[Mapping[str, Any]], None],
        on_note: Callable[[str], None],
        stopped: Callable[[], bool],
    ) -> list[dict[str, Any]]:
        """Every step's line, told to all who listen as it comes."""
        loop, every = prepared.loop, self.config.eval_every
        lines: list[dict[str, Any]] = []
        try:
            with closing(
                cast("Generator[Report, None, None]", loop.run(stopped=stopped))
            ) as reports:
                for report in reports:
                    line = _line(report, loop.trainer)
                    if every and report.step % every == 0:
                        line |= _told(prepared.evaluation())
                    lines.append(line)
                    for record in kept:
                        record.step(line)
                    on_step(line)
        finally:
            if loop.unsaved is not None:
                on_note(loop.unsaved)
        return lines

    def _summary(self, prepared: Prepared, lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The last line: what the run was, and what became of it."""
        ends = (lines[0], lines[-1]) if lines else ({}, {})
        summary = summary_of(prepared.loop, *ends) | self._held_out(prepared, lines)
        model = self.config.from_scratch or self.config.model
        summary["model"] = None if model is None else str(model)
        is_kept = self.config.export is not None and not _learnt_nothing(lines)
        summary["out"] = str(self.config.export) if is_kept else None
        return summary

    def _held_out(
        self, prepared: Prepared, lines: Sequence[Mapping[str, Any]]
    ) -> dict[str, float | None]:
        """What the held-out text says at the end, unless the last step has asked already."""
        if lines and "eval_loss" in lines[-1]:
            return {name: lines[-1][name] for name in ("eval_loss", "eval_perplexity")}
        return _told(prepared.evaluation())

    def _result(
        self,
        prepared: Prepared,
        lines: Sequence[Mapping[str, Any]],
        summary: Mapping[str, Any],
        on_note: Callable[[str], None],
    ) -> Result:
        path = file(self.config.export)
        if path is not None and summary["out"] is None:
            on_note(f"nothing was learnt, so nothing is written to {path}")
            path = None
        if path is not None and prepared.loop.trainer.peers.is_first:
            for note in prepared.export(path, replace=self.config.replace):
                if note not in prepared.notes:  # which were told at the start
                    on_note(note)
        return Result(lines, summary, prepared.model(), path)


def _line(report: Report, trainer: Steps) -> dict[str, Any]:
    """A step's line, with its speed; JSON has no word for a number that is not finite."""
    speed = 1000 * report.tokens / max(report.timings["step_ms"], 1e-9)
    line = {**line_of(report, trainer), "tokens_per_s": round(speed, 3)}
    bad = {name for name, value in line.items() if isinstance(value, float) and not isfinite(value)}
    return {name: None if name in bad else value for name, value in line.items()}


def _skipped_last(lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The lines of the steps since the last that learnt something, the newest first."""
    return list(takewhile(lambda line: "why_skipped" in line, reversed(lines)))


def _learnt_nothing(lines: Sequence[Mapping[str, Any]]) -> bool:
    """Whether steps were taken, and every one was skipped."""
    return bool(lines) and len(_skipped_last(lines)) == len(lines)


def _ruined(lines: Sequence[Mapping[str, Any]]) -> str | None:
    """What a person should know of a run whose last steps learnt nothing; None where they did."""
    skipped = _skipped_last(lines)
    if not skipped:
        return None
    last, good = skipped[0], skipped[-1]["step"] - 1
    many = "the last step was" if len(skipped) == 1 else f"the last {len(skipped)} steps were"
    whose = f"that of step {good}" if good else "as it was at the start"
    loss = "that is not finite" if last["loss"] is None else f"of {last['loss']:.4f}"
    way = ": a lower rate may help" if good and last["loss"] is None else ""
    return f"{many} skipped ({last['why_skipped']}); the model is {whose}, with a loss {loss}{way}"


def _told(found: Score | None) -> dict[str, float | None]:
    return {} if found is None else found.told("eval")
