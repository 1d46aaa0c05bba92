"""Steps until an end: data in, a line a step out, checkpoints on the way and at every end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from orion_ane.errors import BackendError, ConfigError
from orion_ane.runtime.backend import Backend, described, numerics_of
from orion_ane.train.checkpoint import Checkpoints, Run
from orion_ane.train.data import Batches
from orion_ane.train.peers import Wish
from orion_ane.train.step import Recipe, Report, Trainer

End: TypeAlias = Literal["steps", "interrupted", "time"]


@dataclass(frozen=True)
class Plan:
    """How long a run goes on, and what it leaves.

    Attributes:
        grad_accum: microbatches of a step.
        save_every: steps between checkpoints; 0 saves at the end alone.
        max_minutes: the time after which no step is begun; None is no bound.
        max_skips: steps in a row that may be not finite; one more ends the run.
        learns: what is learnt, as an object of JSON, where that is not the whole model.

    Raises:
        ConfigError: a value that means nothing.
    """

    grad_accum: int = 1
    save_every: int = 0
    max_minutes: float | None = None
    max_skips: int = 20
    learns: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for name, least in (("grad_accum", 1), ("save_every", 0), ("max_skips", 0)):
            if getattr(self, name) < least:
                raise ConfigError(name, "out of range", got=getattr(self, name), want=f"{least} up")
        if self.max_minutes is not None and not self.max_minutes > 0:
            raise ConfigError("max_minutes", "no time", got=self.max_minutes, want="above 0")


def settings_of(recipe: Recipe, batches: Batches, plan: Plan) -> dict[str, Any]:
    """What has to be the same for a run to go on as if it had never stopped.

    A constant rate does not ask how many steps there are: such a run may be made longer.
    """
    found = asdict(recipe)
    if recipe.schedule.shape == "constant":
        del found["schedule"]["steps"]
    sizes = {"seq": batches.windows.seq, "batch": batches.rows, "grad_accum": plan.grad_accum}
    if plan.learns:
        found["learns"] = plan.learns
    return {**found, **sizes}


def device_words(device: Backend) -> str:
    """A device and how it computes, for people: whatever moves a resumed run's last bits."""
    return described(*_where(device).values())


class Loop:
    """A run: a trainer, its data, and where its checkpoints go.

    Attributes:
        end: why it stopped; None while it goes on.
        on_saved: called with each checkpoint that is written.
        unsaved: why the end was not saved, for people; None where it was.
    """

    def __init__(
        self,
        trainer: Trainer,
        batches: Batches,
        plan: Plan,
        *,
        checkpoints: Checkpoints | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.trainer, self.batches, self.plan = trainer, batches, plan
        self.end: End | None = None
        self.unsaved: str | None = None
        self.on_saved: Callable[[Path], None] = lambda _: None
        self._checkpoints, self._clock = checkpoints, clock
        self._saved = trainer.state.step
        self._cursor = batches.cursor

    def run(self, *, stopped: Callable[[], bool] = lambda: False) -> Iterator[Report]:
        """The steps that are left, each as it is done; the last one is always saved (case C09).

        Args:
            stopped: asked after each step: whether to end with it.

        Raises:
            BackendError: the device failed, or too many steps in a row were not finite; what was
                learnt is saved.
            CheckpointError: a checkpoint cannot be written.
        """
        state, plan = self.trainer.state, self.plan
        peers = self.trainer.peers
        peers.wish = self._wish(stopped)
        self.end = "steps"
        try:
            while state.step < self.trainer.recipe.schedule.steps:
                yield self._step()
                self._want_progress()
                if plan.save_every and state.step % plan.save_every == 0:
                    self.save()
                if (end := peers.agreed()) is not None:  # of several processes, all end
                    self.end = end
                    return
        finally:
            if state.is_torn:
                self.unsaved = self._why_unsaved()
            else:
                self.save()

    def _wish(self, stopped: Callable[[], bool]) -> Callable[[], Wish]:
        """What tells why the run should end after a step, from now on."""
        minutes = self.plan.max_minutes
        until = None if minutes is None else self._clock() + 60 * minutes

        def wish() -> Wish:
            if stopped():
                return "interrupted"
            return "time" if until is not None and self._clock() >= until else None

        return wish

    def save(self) -> None:
        """Write a checkpoint, unless the last one is of this step.

        Raises:
            BackendError: programs have weights that are not those of the masters.
            CheckpointError: it cannot be written.
        """
        state = self.trainer.state
        if self._checkpoints is None or state.step == self._saved:
            return
        self.trainer.network.want_intact(state.masters)
        settings = settings_of(self.trainer.recipe, self.batches, self.plan)
        config = self.trainer.decoder.config
        device = device_words(self.trainer.updates.device)
        path = self._checkpoints.save(Run(config, state, settings, self._cursor, device=device))
        self._saved = state.step
        self.on_saved(path)

    def _why_unsaved(self) -> str:
        state = self.trainer.state
        why = f"step {state.step + 1} broke off while weights moved, and is not saved"
        kept = self._checkpoints
        return why if not kept else f"{why}; the checkpoint of step {self._saved} is as it was"

    def _step(self) -> Report:
        state = self.trainer.state
        before = state.step
        microbatches = [next(self.batches) for _ in range(self.plan.grad_accum)]
        try:
            return self.trainer.step(microbatches)
        finally:
            if state.step > before:  # the place belongs to the step, whether or not it went on
                self._cursor = self.batches.cursor

    def _want_progress(self) -> None:
        """End a run that learns nothing any more (case O09)."""
        state = self.trainer.state
        if state.streak >= -self.plan.max_skips:
            return
        halves = bool(self.trainer.network.half_stages)
        scale = min([state.loss_scale, *state.scales.values()])
        way = "a lower rate, or device cpu, which learns in fp32," if halves else "a lower rate"
        kept = "the checkpoint is kept"
        if self._checkpoints is None:
            kept = "nothing is kept, as it would be in `checkpoint_dir`"
        raise BackendError(
            f"step {state.step}",
            f"{-state.streak} steps in a row were not finite",
            got=f"loss scale {scale:g}" if halves else None,
            hint=f"{way} may help; {kept}",
        )


def _where(device: Backend) -> dict[str, Any]:
    """What computes, as every command's `--json` has it."""
    target = None if device.target is None else device.target.name
    return {"device": device.name, "target": target, "numerics": numerics_of(device)}


def line_of(report: Report, trainer: Trainer) -> dict[str, Any]:
    """A step as `--json` prints it."""
    state, costs = trainer.state, trainer.updates.costs
    device = trainer.updates.device
    parts = ("forward", "backward", "weight_grad", "optimizer", "update", "step")
    times = {f"{part}_ms": round(report.timings.get(f"{part}_ms", 0.0), 3) for part in parts}
    line: dict[str, Any] = {
        "step": report.step,
        "loss": report.loss,
        "lr": report.lr,
        "grad_norm": report.grad_norm,
        "loss_scale": report.loss_scale,
        "loss_scales": dict(report.loss_scales),
        "skipped": state.skipped,
        "tokens_seen": state.tokens_seen,
        **times,
        "compiles": device.compiles,
        "loads": device.loads,
        "reloads": costs.reloads,
        "bytes_written": costs.bytes_written,
        **_where(device),
        "updates": trainer.updates.name,
    }
    return line if report.skipped is None else {**line, "why_skipped": report.skipped}


def summary_of(loop: Loop, first: Mapping[str, Any], last: Mapping[str, Any]) -> dict[str, Any]:
    """The last line of a run, from its first and last steps' lines."""
    trainer = loop.trainer
    return {
        "type": "summary",
        "ended": loop.end,
        "first_loss": first.get("loss"),
        "step": trainer.state.step,
        "loss": last.get("loss"),
        "skipped": trainer.state.skipped,
        "tokens_seen": trainer.state.tokens_seen,
        "updates": trainer.updates.name,
        "why_updates": trainer.updates.why,
        **_where(trainer.updates.device),
        **asdict(trainer.updates.costs),
        # As in the steps' lines: of the whole run, not of new weights alone.
        "compiles": trainer.updates.device.compiles,
        "loads": trainer.updates.device.loads,
    }
