"""A model's programs for training: sequences in, the sums of losses and gradients out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from orion_ane.engine import Threads
from orion_ane.errors import BackendError, ConfigError
from orion_ane.host.contraction import add_looked_up
from orion_ane.host.loss import IGNORED, Loss, cross_entropy
from orion_ane.lora.dropout import Dropout
from orion_ane.models.decoder import Decoder
from orion_ane.nn.blocks import MASKED, Precision
from orion_ane.runtime.backend import Backend
from orion_ane.runtime.chain import Chains
from orion_ane.train.batch import Batch
from orion_ane.train.chained import Chained
from orion_ane.train.fingerprint import fingerprint
from orion_ane.train.gradients import Gradients, Timings
from orion_ane.train.layout import places, zeros
from orion_ane.train.placed import Placed
from orion_ane.train.room import Room
from orion_ane.train.scales import LEAST, chosen, largest
from orion_ane.train.stages import Stage, stages_of
from orion_ane.train.updates import Reload, Updates
from orion_ane.train.weight_gradients import add_gradients
from orion_ane.types import Array, DType

FP32 = Precision(DType.FP32, DType.FP32)
FP16 = Precision(DType.FP16, DType.FP16)


class Network:
    """The programs of one model over sequences of S lanes, loaded on their devices.

    The layers are on the device in its own precision.  The head, which has the widest sums, is on
    `host`, in fp32: a vocabulary's share of probability is too small for fp16's products.

    Args:
        decoder: the model.
        tensors: its canonical tensors that are learnt; those of the step are always given anew.
        frozen: the others, which have no gradients and stay as they are.
        dropout: fills the masks of the decoder's programs, where they have any.
        updates: the layers' device, and how new weights reach it.
        host: where the head runs; None is the device itself.
        lanes: S.
        precision: of the layers; None is fp32 where the device has no target, else fp16.
        layers_per_stage: how many layers a program holds.
        threads: how many the host may use; it does not show in the results.

    Raises:
        ConfigError: S does not fit the model's context.
        LimitError: a program breaks limits of the device.
        BackendError: a device refuses a program, or has no room.
    """

    def __init__(
        self,
        decoder: Decoder,
        tensors: Mapping[str, Array],
        updates: Updates,
        *,
        host: Backend | None,
        lanes: int,
        frozen: Mapping[str, Array] | None = None,
        dropout: Dropout | None = None,
        precision: Precision | None = None,
        layers_per_stage: int = 1,
        threads: int | None = None,
    ) -> None:
        if not 1 <= lanes <= decoder.config.context:
            want = f"1 to the context of {decoder.config.context}"
            raise ConfigError("seq", "does not fit the model", got=lanes, want=want)
        self.decoder, self.lanes, self.updates = decoder, lanes, updates
        self.threads = Threads(threads)
        default = FP32 if updates.device.target is None else FP16
        self.precision = precision or default
        self.head_precision = self.precision if host is None else FP32
        self._head_updates = updates if host is None else Reload(host, "the host's own memory")
        self._frozen, self._dropout = dict(frozen or {}), dropout
        learnt = {name: array.shape for name, array in tensors.items()}
        self._places = places(decoder, learnt)
        stages = stages_of(
            decoder,
            lanes=lanes,
            precision=self.precision,
            head_precision=self.head_precision,
            layers_per_stage=layers_per_stage,
            learnt=self._places.keys(),
        )
        self._placed: list[Placed] = []
        self._chained: Chained | None = None
        self._room, self._turn = Room(), 0
        self._weighs: bytes | None = fingerprint(tensors)  # what the programs have; None is a mix
        weights = self._weights(tensors)
        try:
            for stage in stages:
                way, own = self._way(stage), weights[self._of(stage)]
                self._placed.append(Placed(stage, own, way, self._places.keys(), self._room))
        except BaseException:
            self.close()
            raise
        positions = np.arange(lanes)
        masked = np.full((lanes, lanes), MASKED[self.precision.compute], np.float32)
        shared = {"mask": np.triu(masked, 1)[None, None], **decoder.tables(positions)}
        dtype = self.precision.compute.numpy
        self._shared = {name: array.astype(dtype) for name, array in shared.items()}
        self._positions = positions
        if isinstance(updates.device, Chains):
            placed = [each for each in self._placed if each.updates is updates]
            self._chained = Chained(updates.device, placed, self._shared)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """In forward order, the head last."""
        return tuple(placed.stage for placed in self._placed)

    @property
    def half_stages(self) -> tuple[str, ...]:
        """The names of those in fp16, whose gradients need a scale, in forward order."""
        return tuple(p.stage.name for p in self._placed if p.stage.is_half)

    def gradients(
        self,
        batches: Iterable[Batch],
        masters: Mapping[str, Array],
        *,
        scale: float | Mapping[str, float] = 1.0,
        timings: Timings | None = None,
        into: Mapping[str, Array] | None = None,
    ) -> Gradients:
        """The sums of losses and gradients over every row of every batch.

        Args:
            batches: the microbatches of a step.
            masters: the tensors in fp32, for what the host looks up.
            scale: multiplies what flows back through a stage, and is taken out again in fp32: of
                each by its name, or of all on the device.
            timings: to which the time is added.
            into: the arrays of an earlier step, to be written over: new memory takes longer to get
                than to fill.

        Raises:
            DataError: a row of another length, or an id outside the vocabulary.
            BackendError: a device failed, or its programs have other weights than the masters.
        """
        self._want_fresh(masters)
        spent = timings or Timings()
        total = Gradients(self._cleared(into, masters))
        scales = scale if isinstance(scale, Mapping) else self._even(scale)
        for batch in batches:
            batch.want(lanes=self.lanes, vocab=self.decoder.config.vocab)
            for row, (ids, targets) in enumerate(
                zip(batch.ids, batch.targets, strict=True), batch.first
            ):
                self._row(ids, targets, masters, total, scales, spent, row)
        self._room.give_up()  # what comes next, as new weights, needs memory of its own
        return total

    def _cleared(
        self, into: Mapping[str, Array] | None, masters: Mapping[str, Array]
    ) -> dict[str, Array]:
        """A zero for every tensor, in the memory of `into` where there is one."""
        if into is None:
            return zeros(masters)
        arrays = {name: into[name] for name in masters}
        each = list(arrays.values())
        self.threads.each(lambda i: each[i].fill(0), range(len(each)))
        return arrays

    def loss(self, batches: Iterable[Batch], masters: Mapping[str, Array]) -> Gradients:
        """The sum of losses alone, nothing learnt or dropped: `arrays` is empty."""
        self._want_fresh(masters)
        total = Gradients({})
        for batch in batches:
            batch.want(lanes=self.lanes, vocab=self.decoder.config.vocab)
            for ids, targets in zip(batch.ids, batch.targets, strict=True):
                way = self._chained
                _, found = self._forward(ids, targets, masters, total, Timings(), chained=way)
                total.loss += found.total
                total.tokens += found.tokens
        return total

    def scales(
        self, batch: Batch, masters: Mapping[str, Array], *, start: float
    ) -> dict[str, float]:
        """The scale of each stage in fp16, chosen by the first row that has a target.

        Where the device shows what it computes inside, that counts too.  Nothing where no stage
        is in fp16, no row has a target, or values are not finite on the way there.

        Args:
            batch: as `gradients` takes them.
            masters: likewise.
            start: a power of two, with which each stage is tried first.
        """
        self._want_fresh(masters)
        batch.want(lanes=self.lanes, vocab=self.decoder.config.vocab)
        asked = [i for i, targets in enumerate(batch.targets) if (targets != IGNORED).any()]
        if self.precision.compute is not DType.FP16 or not asked:
            return {}
        row, total = asked[0], Gradients({})
        kept, found = self._forward(
            batch.ids[row], batch.targets[row], masters, total, Timings(), batch.first + row
        )
        if total.bad is not None:
            return {}
        scales: dict[str, float] = {}
        seeds = self._seeds(self._placed[-1].stage, found.gradient)
        for placed, known in zip(reversed(self._placed), reversed(kept), strict=True):
            scale = start if placed.stage.is_half else 1.0
            every, extent = placed.tried(known, seeds, scale)
            while placed.stage.is_half and extent.largest == math.inf and scale > LEAST:
                scale /= 4
                every, extent = placed.tried(known, seeds, scale)
            if placed.stage.is_half:
                scales[placed.stage.name] = chosen(scale, extent)
            seeds = placed.passed_on(every, scale)
        return scales

    def renew(self, masters: Mapping[str, Array]) -> None:
        """Have every program run with new weights.

        Raises:
            BackendError: the device cannot, or has no room.
        """
        self._weighs = None
        weights = self._weights(masters)
        for placed in self._placed:
            if not self._places.keys().isdisjoint(placed.stage.labels):
                placed.renew(weights[self._of(placed.stage)])
        if self._chained is not None:
            self._chained.renewed()
        self._turn = (self._turn + 1) % len(self._placed)
        self._want_intact(self._placed[self._turn], weights)  # all would take a fifth of the time
        self._weighs = fingerprint(masters)

    def want_intact(self, masters: Mapping[str, Array]) -> None:
        """Refuse programs whose weights are not those that are learnt, to the last bit.

        Raises:
            BackendError: naming the first that is not.
        """
        if self._weighs != fingerprint(masters):
            return  # they are known to be others, and nothing is learnt with them
        weights = self._weights(masters)
        for placed in self._placed:
            self._want_intact(placed, weights)

    def _want_intact(
        self, placed: Placed, weights: Mapping[Precision, Mapping[str, Array]]
    ) -> None:
        label = placed.damaged(weights[self._of(placed.stage)])
        if label is not None:
            self._weighs = None
            raise BackendError(
                placed.stage.name,
                "its programs were given other bits than were learnt",
                got=label,
                hint="memory or a disk is at fault; go on from the last checkpoint",
            )

    def close(self) -> None:
        """Unload every program."""
        if self._chained is not None:
            self._chained.close()
        for placed in self._placed:
            placed.close()

    def _of(self, stage: Stage) -> Precision:
        return self.head_precision if stage.name == "head" else self.precision

    def _even(self, scale: float) -> dict[str, float]:
        """One scale for every stage on the device."""
        return {p.stage.name: scale for p in self._placed if p.updates is self.updates}

    def _way(self, stage: Stage) -> Updates:
        return self._head_updates if stage.name == "head" else self.updates

    def _weights(self, tensors: Mapping[str, Array]) -> dict[Precision, dict[str, Array]]:
        """The programs' weights in each precision that a stage has."""
        apart = {self.precision, self.head_precision}
        every = {**self._frozen, **tensors}
        return {precision: self.decoder.weights(every, precision) for precision in apart}

    def _want_fresh(self, masters: Mapping[str, Array]) -> None:
        """Refuse to learn from programs that were made before the masters were."""
        if self._weighs == fingerprint(masters):
            return
        got = "an update that failed midway" if self._weighs is None else "others"
        raise BackendError(
            "network",
            "its programs do not have the weights that are learnt",
            got=got,
            hint="make it from a checkpoint's state, or renew it: nothing right would be learnt",
        )

    def _row(
        self,
        ids: Array,
        targets: Array,
        masters: Mapping[str, Array],
        total: Gradients,
        scales: Mapping[str, float],
        spent: Timings,
        number: int,
    ) -> None:
        """Add one sequence, the number-th of the run, to the sums."""
        if (targets == IGNORED).all():
            return  # nothing to learn (case D05)
        kept, found = self._forward(
            ids, targets, masters, total, spent, number, chained=self._chained
        )
        total.loss += found.total
        total.tokens += found.tokens
        seeds = self._seeds(self._placed[-1].stage, found.gradient)
        lent: list[Array] = []
        for i, placed in reversed([*enumerate(self._placed)]):
            every = self._stage_back(i, kept[i], seeds, total, scales, spent)
            self._room.leave(lent)  # what this stage has read
            lent = [every[name] for name in placed.stage.backward.outputs]
            seeds = placed.passed_on(every, scales.get(placed.stage.name, 1.0))
        with spent.of("weight_grad_ms"), np.errstate(all="ignore"):
            dx = seeds["d_hidden"][0, :, 0].T  # [S, C]
            for name, rows in zip(
                self.decoder.host_names, (ids, self._positions), strict=False
            ):  # tokens first, then positions, where the model has a table of them
                if name in total.arrays:
                    add_looked_up(total.arrays[name], rows, dx)

    def _forward(
        self,
        ids: Array,
        targets: Array,
        masters: Mapping[str, Array],
        total: Gradients,
        spent: Timings,
        learnt_as: int | None = None,
        *,
        chained: Chained | None = None,
    ) -> tuple[list[dict[str, Array]], Loss]:
        """What every stage keeps for the way back, and the loss.

        Of a row that is learnt from, `learnt_as` is its number; else nothing is dropped.  Of stages
        that are chained, what stays on the device is not among what is kept.
        """
        kept: list[dict[str, Array]] = []
        self._room.leave_all()  # one row at a time
        with spent.of("forward_ms"):
            tables = {**self._frozen, **masters}
            x = self.decoder.embed(tables, ids, self._positions).T[None, :, None]  # [1,C,1,S]
            outputs: dict[str, Array] = {}
            own = [self._masks(placed.stage, learnt_as) for placed in self._placed]
            ahead: list[dict[str, Array]] = []
            if chained is not None:
                ahead = chained.forward(x, own[: len(chained)], is_learnt=learnt_as is not None)
            for i, placed in enumerate(self._placed):
                stage = placed.stage
                with np.errstate(all="ignore"):
                    fed = {stage.takes: np.ascontiguousarray(x, stage.dtype.numpy)}
                fed |= {n: self._shared[n] for n in stage.forward.inputs if n in self._shared}
                fed |= own[i]
                outputs = ahead[i] if i < len(ahead) else placed.forward(fed)
                known = {**fed, **outputs}
                kept.append({name: known[name] for name in stage.kept if name in known})
                for name in stage.gives:
                    finite = bool(np.isfinite(outputs[name]).all())
                    total.note(stage.name, name, finite=finite)
                x = outputs.get("hidden", x)
            parts = [outputs[name] for name in self._placed[-1].stage.gives]
            logits = (parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1))[0, :, 0]
            room = logits if logits.dtype == np.float32 else None
            found = cross_entropy(logits, targets, axis=0, out=room, each=self.threads.each)
        return kept, found

    def _masks(self, stage: Stage, row: int | None) -> dict[str, Array]:
        """What a stage reads of dropout for a row of the run; ones where nothing is learnt."""
        found: dict[str, Array] = {}
        if self._dropout is not None:
            for name in stage.forward.inputs:
                if name not in self._dropout.ports:
                    continue
                if row is None:
                    mask = self._dropout.whole(name, lanes=self.lanes)
                else:
                    mask = self._dropout.mask(name, row=row, lanes=self.lanes)
                found[name] = mask.astype(stage.dtype.numpy, copy=False)
        return found

    def _seeds(self, head: Stage, gradient: Array) -> dict[str, Array]:
        """The cotangent of each of the head's outputs, in fp32 and without any scale."""
        seeds, at = {}, 0
        for name in head.gives:
            rows = head.forward.outputs[name].type.shape[1]
            part = gradient[at : at + rows]
            seeds[f"d_{name}"] = np.ascontiguousarray(part)[None, :, None]
            at += rows
        return seeds

    def _note_flow(
        self,
        stage: Stage,
        seeds: Mapping[str, Array],
        every: Mapping[str, Array],
        total: Gradients,
    ) -> None:
        """Remember how large what flowed came, and the first of it that was not finite."""
        names = (*seeds, *stage.backward.outputs)
        if not stage.is_half:  # an output alone, whose values all the others make
            names = (f"d_{stage.takes}",)
        for name in names:
            size = largest(every[name])
            total.note(stage.name, name, finite=size < math.inf, back=True)
            if stage.is_half:
                total.largest[stage.name] = max(size, total.largest.get(stage.name, 0.0))

    def _stage_back(
        self,
        number: int,
        known: Mapping[str, Array],
        seeds: Mapping[str, Array],
        total: Gradients,
        scales: Mapping[str, float],
        spent: Timings,
    ) -> dict[str, Array]:
        """Add the number-th stage's weight gradients to the sums; all that it read and gave."""
        placed, chained = self._placed[number], self._chained
        stage = placed.stage
        factor = scales.get(stage.name, 1.0)
        with spent.of("backward_ms"):
            if chained is not None and number < len(chained):
                every = chained.back(number, known, seeds, scales)
            else:
                every = placed.back(known, seeds, factor)
            self._note_flow(stage, seeds, every, total)
        with spent.of("weight_grad_ms"), self.threads.running():
            add_gradients(
                stage, every, self._places, total.arrays, factor=factor, threads=self.threads
            )
        return every
