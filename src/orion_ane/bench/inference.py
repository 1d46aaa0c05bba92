"""Inference: reading a prompt and going on from it, beside the memory's speed and peers."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any, Protocol

import numpy as np

from orion_ane.bench.bandwidth import BEST, UNITS, Bandwidth
from orion_ane.bench.harness import Rates, Samples, Work, interleaved
from orion_ane.bench.peers import Peer
from orion_ane.errors import ConfigError
from orion_ane.generate.model import Model
from orion_ane.generate.session import Session
from orion_ane.models.config import ModelConfig
from orion_ane.models.weights import shapes

PREFILL, DECODE = "prefill", "decode"
WEIGHTS = "decode: weights read"
TRAFFIC = "decode: weights, keys and values read"
SHARE = "decode, share of read bandwidth"
"""A token reads each weight, and the keys and values so far; MBU is the name some give it."""
OURS, MEMORY = "orion", "memory"


def check_room(config: ModelConfig, prompt: int, new: int) -> None:
    """Refuse what the model's context cannot hold.

    Raises:
        ConfigError: too many tokens.
    """
    if prompt + new > config.context:
        got, want = f"{prompt} and {new} tokens", f"together at most {config.context}"
        hint = "--prompt-tokens and --max-tokens say how many"
        raise ConfigError("context", "too long for the model", got=got, want=want, hint=hint)


def peers_work(
    config: ModelConfig, prompt: int, new: int, *, origin: str, threads: int
) -> dict[str, Any]:
    """What a peer is asked for: a model of this shape, and how many tokens.

    `model` is where the weights lie; a peer may use those or any others of the same shape, such as
    random ones of the sizes in `tensors`, drawn in that order.
    """
    work: dict[str, Any] = {"what": "inference", "config": asdict(config), "model": origin}
    work["tensors"] = {name: list(shape) for name, shape in shapes(config).items()}
    return work | {"prompt": prompt, "new": new, "threads": threads, "ids": _ids(config, prompt)}


class Sequences(Protocol):
    """What a run needs of a model."""

    @property
    def config(self) -> ModelConfig: ...  # noqa: D102 - the model's shape
    def session(self, *, expect: int = 0) -> Session: ...  # noqa: D102 - a new sequence


class Ours:
    """One run: a new sequence reads the prompt, then takes the likeliest token, again and again."""

    def __init__(self, model: Sequences, prompt: int, new: int) -> None:
        self._model, self._new = model, new
        self._ids = _ids(model.config, prompt)

    def __call__(self) -> Rates:
        """Tokens a second of both, and how many bytes the second read."""
        session = self._model.session(expect=len(self._ids) + self._new)
        session.prepare(len(self._ids), 1)
        start = time.perf_counter()
        logits = session.append(self._ids)
        middle, weights, kept = time.perf_counter(), session.weight_bytes, session.cache_bytes
        for _ in range(self._new):
            logits = session.append([int(np.argmax(logits))])
        decode_s = time.perf_counter() - middle
        weights, kept = session.weight_bytes - weights, session.cache_bytes - kept
        return {
            PREFILL: len(self._ids) / (middle - start),
            DECODE: self._new / decode_s,
            WEIGHTS: weights / decode_s / 1e9,
            TRAFFIC: (weights + kept) / decode_s / 1e9,
        }


def measure(
    model: Model, peers: list[Peer], *, prompt: int, new: int, runs: int, threads: int | None
) -> Samples:
    """The model, the peers and the memory, in turn."""
    units = {PREFILL: "tokens/s", DECODE: "tokens/s", WEIGHTS: "GB/s", TRAFFIC: "GB/s"}
    for peer in peers:
        units |= {f"{row}, {peer.name}": "tokens/s" for row in (PREFILL, DECODE)}
    samples = Samples(units | UNITS)
    works: dict[str, Work] = {OURS: Ours(model, prompt, new)}
    works |= {peer.name: peer for peer in peers}
    works[MEMORY] = Bandwidth(threads=threads)
    own = {OURS, MEMORY}

    def take(work: str, found: Rates) -> None:
        samples.add(found if work in own else {f"{k}, {work}": rate for k, rate in found.items()})

    interleaved(works, runs, take)
    rates = samples.rates
    for peer in peers:
        for row in (DECODE, PREFILL):
            if (theirs := f"{row}, {peer.name}") in rates:
                samples.ratio(f"{row}, over {peer.name}", rates[theirs], rates[row])
    samples.ratio(SHARE, rates[BEST], rates[TRAFFIC])
    samples.ratio(f"{SHARE}, weights alone", rates[BEST], rates[WEIGHTS])
    return samples


def _ids(config: ModelConfig, count: int) -> list[int]:
    return np.random.default_rng(0).integers(0, config.vocab, count).tolist()
