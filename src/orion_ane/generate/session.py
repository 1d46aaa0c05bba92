"""One sequence on a device: tokens in, logits out, with the cache between."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from orion_ane.ane.layout import unpack
from orion_ane.errors import BackendError, ConfigError, DataError
from orion_ane.generate.adapters import BARE, Worn
from orion_ane.generate.bucket import Bucket
from orion_ane.generate.chained import NO_LOGITS, Chained
from orion_ane.generate.head import Head
from orion_ane.generate.kv_cache import MIN_CACHED, KVCache, capacities
from orion_ane.generate.programs import MAX_LANES, Kernel, Programs
from orion_ane.generate.watch import Watch
from orion_ane.runtime.chain import Chains
from orion_ane.types import Array

__all__ = ["MIN_CACHED", "Session"]

MAX_EXPECTED = 512  # room taken ahead of need; past it the cache doubles as it fills


class Session:
    """A growing sequence; each `append` runs its tokens and returns logits.

    Attributes:
        evaluations: programs run so far.
        weight_bytes: bytes of weights those runs read.
        cache_bytes: bytes of keys and values of earlier runs that they read.
    """

    def __init__(
        self,
        programs: Programs,
        *,
        expect: int = 0,
        watch: Watch | None = None,
        worn: Worn = BARE,
    ) -> None:
        """Start an empty sequence that will grow to about `expect` tokens.

        `watch` is shown every run; `worn` is the adapter that all of it is computed with.
        """
        config = programs.decoder.config
        self._programs, self._expect, self._watch = programs, expect, watch
        self._worn = worn
        self._cache = KVCache(
            config.layers,
            programs.decoder.kv_channels,
            programs.precision.compute,
            by_position=programs.min_lanes == 1 and programs.chains is None,
        )
        self._bucket: Bucket | None = None
        self._chains: dict[bool, Chained] = {}  # of the bucket, by whether all lanes have logits
        self._last_head: Head | None = None
        self.evaluations = 0
        self.weight_bytes = 0
        self.cache_bytes = 0

    @property
    def length(self) -> int:
        """Tokens so far."""
        return self._cache.length

    def prepare(self, *counts: int) -> None:
        """Compile and load what runs of these many tokens will need, so that they do not wait."""
        programs = self._programs
        self._reserve(max(counts))
        wanted = [self._sizes(min(count, MAX_LANES)) for count in counts]
        wanted += [  # what follows a first run
            (programs.lanes_for(min(count - MAX_LANES, MAX_LANES)), self._cache.capacity)
            for count in counts
            if count > MAX_LANES
        ]
        # A single token's first: where kernels have to be compiled, it asks for those of a prompt
        # too, so that all are one batch.
        for lanes, cached in sorted(set(wanted)):
            for layers in programs.slices:
                programs.loaded(programs.body(layers, lanes, cached, rank=self._worn.rank))
        programs.loaded(self._head(programs.lanes_for(1)))

    def append(self, ids: Sequence[int], *, all_logits: bool = False) -> Array:
        """Run tokens after those so far.

        Returns:
            The logits after the last token, [V], or after each, [S, V]; fp32.

        Raises:
            ConfigError: the sequence would outgrow the model's context.
            DataError: no token, or an id outside the vocabulary.
            BackendError: a logit is not a number, or is infinite, while an adapter is worn.
        """
        config = self._programs.decoder.config
        if not ids:
            raise DataError("tokens", "nothing to run", got="no ids")
        if min(ids) < 0 or max(ids) >= config.vocab:
            bad = next(i for i in ids if not 0 <= i < config.vocab)
            raise DataError("tokens", "no such id", got=bad, want=f"0 to {config.vocab - 1}")
        if self.length + len(ids) > config.context:
            raise ConfigError(
                "context",
                "sequence too long",
                got=f"{self.length + len(ids)} tokens",
                want=f"at most {config.context}",
                hint="shorten the prompt or ask for fewer tokens",
            )
        rows: list[Array] = []
        for start in range(0, len(ids), MAX_LANES):
            chunk = ids[start : start + MAX_LANES]
            last = start + len(chunk) == len(ids)
            if all_logits or last:
                rows.append(self._run(chunk, heads=len(chunk) if all_logits else 1))
            else:
                self._run(chunk, heads=0)
        logits = np.concatenate(rows)
        if self._worn.called:
            self._want_numbers(logits)
        return logits if all_logits else logits[-1]

    def _want_numbers(self, logits: Array) -> None:
        """Name the adapter where numbers left the device's range, as its weight may make them."""
        if np.isnan(logits).any() or np.isposinf(logits).any():
            raise BackendError(
                "logits",
                f"not finite with adapter {self._worn.called}",
                got=logits[~np.isfinite(logits)][0],
                hint="where the model alone has finite ones, what is added leaves the device's "
                "range: take a smaller weight, or device cpu; else its own weights are not finite",
            )

    def _run(self, ids: Sequence[int], *, heads: int) -> Array:
        """Run new tokens; the logits of the last so many, [S, V], and the cache grows."""
        programs, count = self._programs, len(ids)
        self._reserve(count)
        lanes, cached = self._sizes(count)
        bucket = self._bucket
        if bucket is None or (bucket.lanes, bucket.cached) != (lanes, cached):
            bucket = self._bucket = Bucket(programs, self._cache, lanes, cached, self._worn)
            for chained in self._chains.values():
                chained.close()
            self._chains.clear()
        bucket.fill(ids, self.length)
        self.cache_bytes += self._cache.nbytes
        device = programs.chains
        if device is not None:
            found = self._chained(device, bucket, count, heads)
            if found is not None:
                return found
        for layers in programs.slices:
            kernel = programs.body(layers, lanes, cached, rank=self._worn.rank)
            self._count(kernel)
            loaded = programs.loaded(kernel)
            if self._watch is not None:
                self._watch.see(_label(layers), loaded, bucket.inputs(layers))
            bucket.run(layers, loaded)
        self._cache.append(bucket.new, count)
        return self._run_head(bucket.hidden(count)[count - heads :]) if heads else NO_LOGITS

    def _chained(self, device: Chains, bucket: Bucket, count: int, heads: int) -> Array | None:
        """The same in one message; None where the device has no room for all programs at once."""
        programs, rank = self._programs, self._worn.rank
        all_lanes = heads > 1
        lanes = bucket.lanes if all_lanes else programs.lanes_for(1)
        bodies = [programs.body(s, bucket.lanes, bucket.cached, rank=rank) for s in bucket.slices]
        kernels = [*bodies, self._head(lanes)]
        loaded = programs.all_loaded(kernels)
        if loaded is None:
            return None
        for kernel in kernels if heads else bodies:
            self._count(kernel)
        chained = self._chains.get(all_lanes)
        if chained is None:
            chained = self._chains[all_lanes] = Chained(device, bucket, loaded, all_lanes=all_lanes)
        found = chained.run(loaded, self.length, count, head=heads > 0)
        self._cache.append(bucket.new, count)
        return found

    def _sizes(self, count: int) -> tuple[int, int]:
        """The lanes of a run of so many tokens, and the earlier positions that it sees.

        The first run sees none; a single token has the program of all that follow.
        """
        lanes = self._programs.lanes_for(count)
        is_first = self.length == 0 and lanes > self._programs.min_lanes
        return lanes, 0 if is_first else self._cache.capacity

    def _run_head(self, hidden: Array) -> Array:
        """Logits [S, V] of hidden vectors [S, C]."""
        programs, count = self._programs, len(hidden)
        lanes = programs.lanes_for(count)
        kernel = self._head(lanes)
        self._count(kernel)
        loaded = programs.loaded(kernel)
        head = self._last_head
        if head is None or head.loaded is not loaded:
            head = Head(programs.decoder, loaded, lanes, self._worn.heads)
        if lanes == programs.lanes_for(1):  # logits of many tokens are too large to be kept
            self._last_head = head
        head.fill(hidden)
        if self._watch is not None:
            self._watch.see("head", loaded, head.feed)
        found = head.run()
        rows = found.reshape(1, -1) if lanes == 1 else unpack(found, count)
        return rows.astype(np.float32, copy=False)

    def _head(self, lanes: int) -> Kernel:
        file = None if self._worn.head is None else self._worn.head.file
        return self._programs.head(lanes, rank=self._worn.head_rank, file=file)

    def _count(self, kernel: Kernel) -> None:
        """Note an evaluation."""
        self.evaluations += 1
        self.weight_bytes += kernel.weight_bytes

    def _reserve(self, count: int) -> None:
        """Room in the cache for what this run must see, and for what is expected."""
        config = self._programs.decoder.config
        need = max(self.length + count, min(self._expect, MAX_EXPECTED, config.context))
        if need <= self._cache.capacity:
            return
        self._cache.reserve(next(room for room in capacities(config.context) if room >= need))


def _label(layers: range) -> str:
    """What a user calls the program of some layers."""
    return f"layers {layers.start} to {layers.stop - 1}"
