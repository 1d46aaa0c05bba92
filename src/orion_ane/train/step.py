"""One step of training: gradients, clip, AdamW on fp32 masters, new weights to the programs."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from orion_ane.errors import BackendError, ConfigError
from orion_ane.host.adamw import AdamW, clip, global_norm
from orion_ane.host.schedule import Schedule
from orion_ane.lora.adapted import Adapted
from orion_ane.models.decoder import Decoder
from orion_ane.models.weights import shapes
from orion_ane.runtime.backend import Backend
from orion_ane.train.batch import Batch
from orion_ane.train.gradients import Gradients, Timings
from orion_ane.train.network import Network
from orion_ane.train.peers import Peers
from orion_ane.train.scales import AGAIN, adjust, is_power_of_two
from orion_ane.train.state import State
from orion_ane.train.updates import Updates, UpdatesName
from orion_ane.train.updates import updates as make_updates
from orion_ane.types import Array


@dataclass(frozen=True)
class Recipe:
    """How a model learns.

    Attributes:
        schedule: the rate of each step.
        rule: AdamW's constants.
        clip: the most that the norm of all gradients may be; None is no bound.
        decay_all: decay vectors too, and not only matrices (case O01).
        decay_embeddings: whether tables that are looked up decay with the matrices.
        loss_scale: multiplies what flows back through a device in fp16, until each stage has a
            scale of its own; a power of two, so that taking it out again is exact.

    Raises:
        ConfigError: a value that means nothing.
    """

    schedule: Schedule
    rule: AdamW = field(default_factory=AdamW)
    clip: float | None = 1.0
    decay_all: bool = False
    decay_embeddings: bool = True
    loss_scale: float = 1.0

    def __post_init__(self) -> None:
        if self.clip is not None and not 0 < self.clip < math.inf:
            raise ConfigError("clip", "no such norm", got=self.clip, want="above 0")
        if not is_power_of_two(self.loss_scale):
            raise ConfigError("loss_scale", "loses bits", got=self.loss_scale, want="2, 4, 8, …")


@dataclass(frozen=True)
class Report:
    """What a step was.

    Attributes:
        step: from 1.
        loss: the mean before it, in nats a token.
        lr: its rate.
        grad_norm: the true norm of the mean gradient, before any clipping.
        tokens: the targets that counted.
        skipped: why nothing was learnt, with the first bad tensor; None where it was.
        loss_scale: as it was used where gradients enter the device.
        loss_scales: of every stage in fp16, by name, as they were used.
        timings: milliseconds, by part; `step_ms` is all.
    """

    step: int
    loss: float
    lr: float
    grad_norm: float
    tokens: int
    skipped: str | None
    loss_scale: float
    loss_scales: Mapping[str, float]
    timings: Mapping[str, float]


class Trainer:
    """A model that learns on a device.

    Args:
        decoder: the model.
        start: its canonical tensors, or what an earlier run has learnt.
        device: where the layers run; any backend.
        recipe: how it learns.
        seq: tokens of a sequence.
        updates: how new weights reach the device.
        host: where the head runs in fp32; None is the device itself.
        peers: the other processes that learn with it; None is none.
        options: what else `Network` takes; with `frozen` tensors, only the others are learnt.

    Raises:
        ConfigError: a setting that means nothing, or tensors that are not the model's.
        BackendError: the device refuses a program, or would keep old weights.
    """

    def __init__(
        self,
        decoder: Decoder,
        start: Mapping[str, Array] | State,
        device: Backend,
        recipe: Recipe,
        *,
        seq: int,
        updates: UpdatesName | Updates = "auto",
        host: Backend | None = None,
        peers: Peers | None = None,
        **options: Any,
    ) -> None:
        self.peers = peers or Peers()
        if isinstance(start, State):
            self.state = start
        else:
            self.state = State.fresh(start, loss_scale=recipe.loss_scale)
        frozen = options.get("frozen") or {}
        want_model(decoder, {**frozen, **self.state.masters})
        self.decoder, self.recipe = decoder, recipe
        self.updates = make_updates(updates, device) if isinstance(updates, str) else updates
        # Programs are built from the masters, so that a resumed run cannot have old ones.
        masters = self.state.masters
        self.network = Network(decoder, masters, self.updates, host=host, lanes=seq, **options)
        self._sums: dict[str, Array] | None = None  # the last step's, whose memory the next takes

    def step(self, batches: Sequence[Batch]) -> Report:
        """Learn from the microbatches of one step, which all targets together weigh (case D01).

        Raises:
            DataError: a row of another length, or an id outside the vocabulary.
            BackendError: a device failed, or the step before broke off while it was written.
        """
        started, state, timings = time.perf_counter(), self.state, Timings()
        _want_whole(state)
        lr, scales = self.recipe.schedule(state.step), self._scales(batches)
        used = {name: scales.get(name, state.loss_scale) for name in self.network.half_stages}
        found = self.network.gradients(
            batches, state.masters, scale=used, timings=timings, into=self._sums
        )
        self._sums = found.arrays
        with timings.of("exchange_ms"):
            self.peers.total(found, state)
        with timings.of("optimizer_ms"), self.network.threads.running():
            loss = found.mean(each=self.network.threads.each)
            norm = self._clipped(found)
            why = _no_step(found, loss, norm)
            with state.one_step():
                if why is None:
                    self._learn(found.arrays, lr)
                state.step += 1
                state.tokens_seen += found.tokens
                state.scales = scales
                self._count(why, found)
        if why is None:  # last: whatever happens now, the state is that of a whole step
            with timings.of("update_ms"):
                self.network.renew(state.masters)
        spent = {**timings.ms, "step_ms": (time.perf_counter() - started) * 1000}
        scale = next(reversed(used.values()), 1.0)
        return Report(state.step, loss, lr, norm, found.tokens, why, scale, used, spent)

    def _scales(self, batches: Sequence[Batch]) -> dict[str, float]:
        """The stages' scales for this step: chosen at first, and again when all went well long."""
        state = self.state
        if state.scales and (state.streak <= 0 or state.streak % AGAIN):
            return dict(state.scales)
        if not self.network.half_stages or state.streak < 0 or not batches:
            return dict(state.scales)
        start = self.recipe.loss_scale
        found = self.network.scales(batches[0], state.masters, start=start)
        return self.peers.least(found or state.scales)

    def _count(self, why: str | None, found: Gradients) -> None:
        """Keep the counts, and the scales."""
        state = self.state
        if why is None:
            state.streak = max(state.streak, 0) + 1
        else:
            state.skipped += 1
            if found.tokens:
                state.streak = min(state.streak, 0) - 1
        if found.tokens and self.network.half_stages:
            adjust(state, found, is_bad=why is not None)

    def _clipped(self, found: Gradients) -> float:
        arrays, each = found.arrays.values(), self.network.threads.each
        limit = self.recipe.clip
        return global_norm(arrays, each=each) if limit is None else clip(arrays, limit, each=each)

    def _learn(self, gradients: Mapping[str, Array], lr: float) -> None:
        state = self.state
        state.updates += 1
        weights = list(state.masters.items())

        def move(i: int) -> None:
            name, weight = weights[i]
            self.recipe.rule.update(
                weight,
                gradients[name],
                state.moments[name],
                step=state.updates,
                lr=lr,
                decay=self._decays(name, weight),
            )

        self.network.threads.each(move, range(len(weights)))

    def _decays(self, name: str, weight: Array) -> bool:
        recipe = self.recipe
        if recipe.decay_all:
            return True
        is_table = name in self.decoder.host_names
        return weight.ndim > 1 and (recipe.decay_embeddings or not is_table)

    def close(self) -> None:
        """Unload every program; what was learnt stays in `state`."""
        self.network.close()


def _want_whole(state: State) -> None:
    if state.is_torn:
        raise BackendError(
            f"step {state.step + 1}",
            "broke off while weights moved: some are of this step, others of the one before",
            hint="go on from the last checkpoint",
        )


def _no_step(found: Gradients, loss: float, norm: float) -> str | None:
    """Why a step is skipped, or None."""
    if not found.tokens:
        return "no target counts"
    if found.bad is None and math.isfinite(norm) and math.isfinite(loss):
        return None
    return f"not finite: {found.bad or _first_bad(found)}"


def _first_bad(found: Gradients) -> str:
    """What is not finite of a step whose every stage passed finite numbers on."""
    if not math.isfinite(found.loss):
        return "the loss"
    for name, array in found.arrays.items():
        if not np.isfinite(array).all():
            return f"the gradient of {name}"
    return "the norm of the gradients"


def want_model(decoder: Decoder, tensors: Mapping[str, Array]) -> None:
    """Refuse tensors that are not the model's.

    Raises:
        ConfigError: naming the first that is missing, left over or of another shape.
    """
    want: dict[str, tuple[int, ...]] = shapes(decoder.config)
    if isinstance(decoder, Adapted):
        want |= decoder.shapes
    got = {name: array.shape for name, array in tensors.items()}
    for name in (*want, *got):
        if want.get(name) != got.get(name):
            raise ConfigError(
                f"tensor {name}", "not the model's", got=got.get(name), want=want.get(name)
            )
