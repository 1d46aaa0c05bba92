"""Many steps without a compile: what is loaded at every instant, and what a run says it cost."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from orion_ane.ane.targets import target
from orion_ane.errors import BudgetError
from orion_ane.host.schedule import Schedule
from orion_ane.models.build import decoder_of
from orion_ane.models.config import LlamaConfig
from orion_ane.models.weights import shapes
from orion_ane.runtime.backends.emulator import Emulator
from orion_ane.runtime.registry import backend
from orion_ane.train.corpus import Tokens
from orion_ane.train.data import Batches, Windows
from orion_ane.train.loop import Loop, Plan, line_of, summary_of
from orion_ane.train.step import Recipe, Trainer

CONFIG = LlamaConfig(
    vocab=16, context=4, dim=8, layers=1, heads=2, kv_heads=1, head_dim=4, hidden=12, tied=True
)
LONG = (pytest.mark.slow, pytest.mark.timeout(1800))  # half a minute, on a machine of one's own
PROGRAMS = 2  # a layer's, there and back; the head's are on the host


class Watched(Emulator):
    """An emulator that holds few programs, and remembers how many it had at most."""

    def __init__(self, programs: int) -> None:
        strict = target("strict")
        behaviour = replace(strict.behaviour, programs=programs)
        super().__init__(target=replace(strict, behaviour=behaviour), threads=1)
        self.open: set[int] = set()
        self.most = 0

    def compile(self, program):
        return self._seen(super().compile(program))

    def load(self, program, *, donor):
        return self._seen(super().load(program, donor=donor))

    def _seen(self, loaded):
        self.open.add(id(loaded))
        self.most = max(self.most, len(self.open))
        close = loaded.close

        def closed() -> None:
            self.open.discard(id(loaded))
            close()

        loaded.close = closed
        return loaded


def loop_on(device, way, steps):
    rng = np.random.default_rng(3)
    tensors = {
        name: (rng.normal(size=of) * 0.2 + (len(of) == 1)).astype(np.float32)
        for name, of in shapes(CONFIG).items()
    }
    tokens = Tokens("made up", rng.integers(0, CONFIG.vocab, 99).astype(np.uint16))
    batches = Batches(Windows([tokens], CONFIG.context), batch=1, seed=1)
    trainer = Trainer(
        decoder_of(CONFIG),
        tensors,
        device,
        Recipe(Schedule(1e-3, steps, "constant"), loss_scale=16.0),
        seq=CONFIG.context,
        updates=way,
        host=backend("cpu", threads=1),
        threads=1,
    )
    return Loop(trainer, batches, Plan())


@pytest.mark.parametrize("way", ["donor", "input"])
@pytest.mark.parametrize("steps", [30, pytest.param(1000, marks=LONG)])
def test_no_step_compiles_and_no_more_is_loaded_than_the_target_holds(way, steps):
    """The device holds what the way needs, and not one program more."""
    needs = PROGRAMS + 1 if way == "donor" else PROGRAMS  # an exchange has the old and the new
    device = Watched(needs)
    loop = loop_on(device, way, steps)
    started = device.compiles
    lines = [json.loads(json.dumps(line_of(r, loop.trainer))) for r in loop.run()]
    assert len(lines) == steps
    assert lines[-1]["skipped"] == 0
    assert {line["compiles"] for line in lines} == {started}
    assert device.most == needs
    assert len(device.open) == PROGRAMS
    found = summary_of(loop, lines[0], lines[-1])
    exchanged = steps * PROGRAMS + 1 if way == "donor" else 0  # the canary's too
    assert (found["compiles"], found["reloads"]) == (started, 0)
    assert (found["loads"], found["unloads"]) == (exchanged, exchanged)
    halves = sum(2 * int(np.prod(of)) for name, of in shapes(CONFIG).items() if "layers" in name)
    # The weights alone; a file has headers and gaps besides, and each of two programs has one.
    # Inputs are given at the start as well.
    least = halves * (steps * PROGRAMS if way == "donor" else steps + 1)
    assert least <= found["bytes_written"]
    if way == "input":
        assert found["bytes_written"] < least * 1.1
    loop.trainer.close()
    assert not device.open


def test_a_target_with_less_room_than_an_exchange_takes_is_told():
    loop = loop_on(Watched(PROGRAMS), "donor", 3)
    with pytest.raises(BudgetError):
        list(loop.run())
    assert loop.trainer.state.step == 1  # learnt and kept; the programs are not what is learnt
