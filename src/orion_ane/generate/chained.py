"""A run of tokens as one message: a bucket's body programs, and the head behind them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from orion_ane.ane.layout import unpack
from orion_ane.generate.bucket import Bucket
from orion_ane.models.decoder import vocabulary
from orion_ane.runtime.backend import Executable
from orion_ane.runtime.chain import Call, Chains, Lanes, Link
from orion_ane.types import Array

NO_LOGITS = np.zeros((0, 0), np.float32)
"""Of a run whose head nobody asked for."""


class Chained:
    """A bucket's programs on a device that runs them one after another.

    What flows from one to the next stays on the device, and so do the new keys and values, which
    are laid into its caches there as well as taken out.

    Args:
        device: keeps the chain.
        bucket: whose arrays are read and written.
        loaded: the body programs, in order, and the head's.
        all_lanes: whether the head has every lane of the bucket, or one that is chosen.
    """

    def __init__(
        self, device: Chains, bucket: Bucket, loaded: Sequence[Executable], *, all_lanes: bool
    ) -> None:
        self._bucket, self._all_lanes = bucket, all_lanes
        self._ports = bucket.inputs(bucket.slices[0]).keys() - {"x"}
        self._given = {_value(bucket, layers, name): array
                       for layers in reversed(bucket.slices)
                       for name, array in bucket.inputs(layers).items()}  # fmt: skip
        self._logits = [f"logits{end}" for end in vocabulary(bucket.decoder.config.vocab)]
        links = [link for layers in bucket.slices for link in self._body(layers)]
        self._body_links, self._fills = len(links), -1
        heads = bucket.worn.heads
        reads = {"hidden": "heads", **{name: f"head {name}" for name in heads}}
        self._given |= {f"head {name}": array for name, array in heads.items()}
        last = f"hidden {len(bucket.slices)}"
        if all_lanes:
            reads["hidden"] = last
        else:
            links.append(Lanes(last, "heads", count="one", first="last", at="zero"))
        links.append(Call(len(bucket.slices), reads, {name: name for name in self._logits}))
        for number in range(1, len(bucket.slices)):
            del self._given[f"hidden {number}"]
        programs = [each.program for each in loaded]
        self._chain = device.chain(programs, links, [*bucket.news, *self._logits])

    def _body(self, layers: range) -> Iterator[Link]:
        """A program of some layers, and its keys and values into the caches."""
        bucket, number = self._bucket, self._bucket.slices.index(layers)
        reads = {name: _value(bucket, layers, name) for name in bucket.inputs(layers)}
        news = [f"{kind}_{i:02d}" for i in layers for kind in "kv"]
        writes = {"hidden": f"hidden {number + 1}", **{name: name for name in news}}
        yield Call(number, reads, writes)
        for name in news if bucket.cached else ():
            kind, layer = name.split("_")
            yield Lanes(name, f"{kind}_cache_{layer}", count="count", first="zero", at="start")

    def run(self, loaded: Sequence[Executable], start: int, count: int, *, head: bool) -> Array:
        """Run what the bucket was filled with; its new keys and values are set.

        Args:
            loaded: the programs as they are now.
            start: the tokens before.
            count: the bucket's tokens.
            head: whether logits are wanted; else none come.

        Returns:
            The logits, [S, V] in fp32, of every token or of the last.
        """
        bucket = self._bucket
        # What lies on the device is that of the run before, where that was this one's.
        is_next = bucket.fills == self._fills + 1
        changed = {"hidden 0", *(bucket.changed & self._ports)} if is_next else None
        numbers = {"count": count, "start": start, "last": count - 1, "one": 1, "zero": 0}
        found = self._chain.run(
            loaded,
            self._given,
            changed=changed,
            numbers=numbers,
            links=None if head else (0, self._body_links),
        )
        self._fills = bucket.fills
        bucket.take(found)
        if not head:
            return NO_LOGITS
        parts = [found[name] for name in self._logits]
        logits = np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
        return unpack(logits, count if self._all_lanes else 1).astype(np.float32, copy=False)

    def close(self) -> None:
        """Give it up."""
        self._chain.close()


def _value(bucket: Bucket, layers: range, port: str) -> str:
    """The value at a body program's input port: most are the same for all layers."""
    if port == "x":
        return f"hidden {bucket.slices.index(layers)}"
    return f"{layers.start} {port}" if port in bucket.worn.body(layers) else port
