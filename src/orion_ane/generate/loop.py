"""The one loop of generation: run, draw, show, until something ends it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from orion_ane.engine.compiling import clock
from orion_ane.generate.options import Options
from orion_ane.generate.result import FinishReason, Piece, Timings, Verification
from orion_ane.generate.stopping import StopFilter
from orion_ane.host.sampling import sample
from orion_ane.types import Array

Clock = Callable[[], float]


class Runs(Protocol):
    """What the loop needs of a session."""

    evaluations: int
    weight_bytes: int

    def append(self, ids: Sequence[int]) -> Array:
        """Run tokens and return the logits after the last."""
        ...


class Streamer(Protocol):
    """What the loop needs of a tokenizer: tokens in, whole characters out."""

    def push(self, token: int) -> str:
        """The characters that this token completes."""
        ...

    def flush(self) -> str:
        """What never became whole."""
        ...


class NoText:
    """The streamer of a model without a tokenizer: ids are all there is."""

    def push(self, token: int) -> str:
        """Nothing."""
        return ""

    def flush(self) -> str:
        """Nothing."""
        return ""


class Checker:
    """Compares a device's logits with those of a reference on the same tokens.

    Attributes:
        seconds: what the reference took so far.
    """

    def __init__(self, reference: Runs) -> None:
        """Start beside a device's sequence, with an empty one of the reference."""
        self._reference = reference
        self._error, self._same, self._count = 0.0, 0, 0
        self.seconds = 0.0

    def compare(self, ids: Sequence[int], logits: Array) -> None:
        """Run the same tokens on the reference and take note of the difference."""
        started = clock()
        wanted = self._reference.append(ids)
        self.seconds += clock() - started
        self._error = max(self._error, float(np.abs(wanted - logits).max()))
        self._same += int(np.argmax(wanted) == np.argmax(logits))
        self._count += 1

    @property
    def verification(self) -> Verification:
        """The figures so far."""
        return Verification(self._error, self._same / max(self._count, 1))


@dataclass
class Outcome:
    """What a loop leaves behind, filled as it goes."""

    ids: list[int]
    text: str
    reason: FinishReason
    timings: Timings
    evaluations_per_token: float = 0.0
    weight_bytes_per_token: int = 0


def run_loop(
    prompt: Sequence[int],
    options: Options,
    *,
    limit: int,
    session: Runs,
    streamer: Streamer,
    eos_ids: Collection[int],
    checker: Checker | None = None,
    clock: Clock = clock,
) -> Iterator[Piece | Outcome]:
    """Pieces of whole characters as they come, and the outcome last.

    Args:
        prompt: the ids to read.
        options: how to draw and when to stop.
        limit: the most new tokens, at least 1.
        session: an empty sequence on a device.
        streamer: ids to text.
        eos_ids: tokens that end the text and are not shown.
        checker: compares each logit, outside the time that is told.
        clock: seconds, for the timings.
    """
    rng = np.random.default_rng(options.seed)
    stops, shown, new = StopFilter(options.stops), "", list[int]()
    seconds: list[float] = []
    after_prompt = (0, 0)
    run: Sequence[int] = prompt
    reason: FinishReason | None = None
    while reason is None:
        started = clock()
        logits = session.append(run)
        token = sample(logits, options.sampling, rng)
        seconds.append(clock() - started)
        if run is prompt:
            after_prompt = (session.evaluations, session.weight_bytes)
        if checker is not None:
            checker.compare(run, logits)
        if token in eos_ids:
            reason = "stop"
            break
        new.append(token)
        piece = stops.push(streamer.push(token))
        shown += piece
        yield Piece(piece, token)
        if stops.stopped:
            reason = "stop"
        elif len(new) == limit:
            reason = "length"
        elif options.cancelled():
            reason = "interrupted"
        run = [token]
    if rest := stops.push(streamer.flush()) + stops.flush():
        shown += rest
        yield Piece(rest)
    runs = len(seconds) - 1
    timings = Timings(len(prompt), seconds[0], runs, sum(seconds[1:]))
    outcome = Outcome(new, shown, reason, timings)
    if runs:
        outcome.evaluations_per_token = (session.evaluations - after_prompt[0]) / runs
        outcome.weight_bytes_per_token = (session.weight_bytes - after_prompt[1]) // runs
    yield outcome
