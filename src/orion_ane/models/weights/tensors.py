"""Named tensors, strictly: what a model needs, what a file has, and the way from one to the other.

Matrices are [out, in] everywhere.  Sizes: V vocabulary, T context, C channels, F hidden,
H heads, K key heads, D head size.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from orion_ane.errors import CheckpointError
from orion_ane.host.pages import forget
from orion_ane.models.config import GPT2Config, LlamaConfig, ModelConfig
from orion_ane.models.weights.deferred import Deferred
from orion_ane.models.weights.fields import listed
from orion_ane.models.weights.quantised import Quantised
from orion_ane.types import Array

Shape = tuple[int, ...]


def shapes(config: ModelConfig) -> dict[str, Shape]:
    """The canonical names of a model's tensors and their shapes."""
    wide, vector = (config.vocab, config.dim), (config.dim,)
    outer: dict[str, Shape]
    match config:
        case GPT2Config():
            outer = {"wte": wide, "wpe": (config.context, config.dim)}
            outer |= {"lnf_g": vector, "lnf_b": vector} | ({} if config.tied else {"head": wide})
            layer = _gpt2_layer(config)
        case LlamaConfig():
            outer = {"embed": wide, "norm": vector} | ({} if config.tied else {"head": wide})
            layer = _llama_layer(config)
    stacked = {f"layers.{i}.{k}": shape for i in range(config.layers) for k, shape in layer.items()}
    return outer | stacked


def _gpt2_layer(c: GPT2Config) -> dict[str, Shape]:
    square, vector = (c.dim, c.dim), (c.dim,)
    norms = {f"ln{i}_{part}": vector for i in (1, 2) for part in "gb"}
    attention = {f"w{part}": square for part in "qkvo"} | {f"b{part}": vector for part in "qkvo"}
    inner: dict[str, Shape] = {"w1": (c.hidden, c.dim), "b1": (c.hidden,)}
    return norms | attention | inner | {"w2": (c.dim, c.hidden), "b2": vector}


def _llama_layer(c: LlamaConfig) -> dict[str, Shape]:
    wide, narrow = c.heads * c.head_dim, c.kv_heads * c.head_dim
    return {
        "attn_norm": (c.dim,),
        "wq": (wide, c.dim),
        "wk": (narrow, c.dim),
        "wv": (narrow, c.dim),
        "wo": (c.dim, wide),
        "ffn_norm": (c.dim,),
        "w1": (c.hidden, c.dim),
        "w2": (c.dim, c.hidden),
        "w3": (c.hidden, c.dim),
    }


def to_half_split(rows: Array, heads: int) -> Array:
    """Rows [H·D, …] of neighbouring pairs (0,1), (2,3), … as pairs of halves (i, i + D/2).

    llama2.c and GGUF's llama store query and key rows the first way, Hugging Face the second
    (case R01); scores agree when both sides keep to one.
    """
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])  # [H, D/2, 2, …]
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)


def to_interleaved(rows: Array, heads: int) -> Array:
    """Rows [H·D, …] of halves as neighbouring pairs: what undoes `to_half_split`."""
    halves = rows.reshape(heads, 2, -1, *rows.shape[1:])  # [H, 2, D/2, …]
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(rows.shape)


@dataclass(frozen=True)
class Stored:
    """A tensor of a file: its shape and type are known, its numbers are read when asked for.

    Attributes:
        shape: sizes as the file has them, the last axis contiguous.
        kind: the stored element type, in lower case: `fp32`, `bf16`, `q4_1`, `i64`, …
        read: gives an fp32 or fp16 array; None where the type is not one that we read.
        blocks: gives the codes of a matrix that is stored so.
    """

    shape: Shape
    kind: str
    read: Callable[[], Array] | None
    blocks: Callable[[], Quantised] | None = None

    @property
    def elements(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape, dtype=object))


def as_is(array: Array) -> Sequence[Array]:
    """The array as it is stored."""
    return (array,)


@dataclass(frozen=True)
class Entry:
    """A tensor that a file must have, and the canonical ones that it becomes.

    Attributes:
        name: in the file, without any prefix.
        shape: in the file.
        gives: canonical names, in the order of what `convert` returns.
        convert: the stored array as canonical ones.
    """

    name: str
    shape: Shape
    gives: tuple[str, ...]
    convert: Callable[[Array], Sequence[Array]] = as_is


@dataclass(frozen=True)
class Way:
    """How a format keeps a canonical tensor, where that is not as it is.

    Attributes:
        shape: in the file.
        convert: the stored array as canonical ones.
        gives: the canonical names in a layer; its own where empty.
    """

    shape: Shape
    convert: Callable[[Array], Sequence[Array]] = as_is
    gives: tuple[str, ...] = ()


def entries(
    config: ModelConfig, names: Mapping[str, str], *, layer: str, ways: Mapping[str, Way]
) -> list[Entry]:
    """What a file of some format must hold.

    Args:
        config: the model.
        names: the format's names by canonical ones, within a layer and outside; a canonical tensor
            without one comes out of another's `Way`.
        layer: what the format puts before names of a layer, `{}` for its number.
        ways: how it keeps what is not kept as it is.
    """
    found = []
    for canonical, shape in shapes(config).items():
        at, _, short = canonical.rpartition(".")
        if short not in names:
            continue
        before = layer.format(at.removeprefix("layers.")) if at else ""
        way = ways.get(short, Way(shape))
        gives = tuple(f"{at}.{one}" for one in way.gives) or (canonical,)
        found.append(Entry(before + names[short], way.shape, gives, way.convert))
    return found


def collect(
    where: str,
    entries: Iterable[Entry],
    stored: Mapping[str, Stored],
    *,
    unused: Collection[str] = (),
) -> Mapping[str, Array]:
    """The canonical tensors, C-contiguous and read-only, after all names and shapes were checked.

    Their numbers are read when they are first asked for: who has them elsewhere need not wait.

    Args:
        where: the file or folder, as messages name it.
        entries: what must be there.
        stored: what is there.
        unused: names that nothing needs and nobody misses.

    Raises:
        CheckpointError: a tensor is missing, left over, of another shape or of an unread type; all
            of the first of these are named.
    """
    wanted = {entry.name: entry for entry in entries}
    left = [name for name in stored if name not in wanted and name not in unused]
    if missing := [name for name in wanted if name not in stored]:
        hint = f"nothing uses {listed(left)}" if left else None
        raise CheckpointError(where, "tensors are missing", want=listed(missing), hint=hint)
    if left:
        raise CheckpointError(where, "tensors that nothing uses", got=listed(left))
    wrong = [
        f"{name} {_shape(stored[name].shape)} (not {_shape(entry.shape)})"
        for name, entry in wanted.items()
        if stored[name].shape != entry.shape
    ]
    if wrong:
        raise CheckpointError(where, "tensors of another shape", got=listed(wrong))
    if unread := [f"{n} {stored[n].kind}" for n in wanted if stored[n].read is None]:
        raise CheckpointError(where, "element types that are not read", got=listed(unread))
    return Deferred({entry.gives: partial(_read, stored[n], entry) for n, entry in wanted.items()})


def collect_blocks(
    entries: Iterable[Entry], stored: Mapping[str, Stored]
) -> Mapping[str, Quantised]:
    """The canonical tensors that a file has as codes; see `collect`, which has checked them."""
    found = [entry for entry in entries if stored[entry.name].blocks is not None]
    return Deferred({e.gives: partial(_read_blocks, stored[e.name], e) for e in found})


def _read_blocks(stored: Stored, entry: Entry) -> tuple[Quantised, ...]:
    assert stored.blocks is not None
    whole = stored.blocks()
    pairs = zip(entry.convert(whole.codes), entry.convert(whole.scale), strict=True)
    return tuple(Quantised(codes, scale) for codes, scale in pairs)


def _read(stored: Stored, entry: Entry) -> tuple[Array, ...]:
    assert stored.read is not None
    whole = stored.read()
    found = tuple(frozen(array) for array in entry.convert(whole))
    if not any(np.may_share_memory(array, whole) for array in found):
        forget(whole)
    return found


def view(raw: Array, dtype: str, shape: Shape) -> Array:
    """Bytes of a mapped file as numbers, without a copy where they are aligned."""
    aligned = raw.copy() if raw.ctypes.data % np.dtype(dtype).itemsize else raw
    return aligned.view(dtype).reshape(shape)


def widen_bf16(words: Array) -> Array:
    """bf16 words in uint16 as fp32, exactly: a bf16 is the upper half of an fp32 (case W07)."""
    wide = words.astype(np.uint32)
    wide <<= 16
    return wide.view(np.float32)


def frozen(array: Array) -> Array:
    """The array, C-contiguous, and read-only as a loaded model's arrays are."""
    fixed = np.ascontiguousarray(array)
    fixed.flags.writeable = False
    return fixed


def main_kind(stored: Iterable[Stored]) -> str:
    """The element type that holds most of the numbers: what a file is called after."""
    counts: dict[str, int] = {}
    for tensor in stored:
        counts[tensor.kind] = counts.get(tensor.kind, 0) + tensor.elements
    return max(counts, key=lambda kind: counts[kind])


def is_same(first: Stored, second: Stored) -> bool:
    """Whether two stored tensors hold the same numbers, bit for bit."""
    if first.shape != second.shape or first.read is None or second.read is None:
        return False
    if first.blocks is not None and second.blocks is not None:
        one, two = first.blocks(), second.blocks()
        return np.array_equal(one.codes, two.codes) and np.array_equal(
            one.scale.view(np.uint16), two.scale.view(np.uint16)
        )
    a, b = first.read(), second.read()
    return a is b or (a.dtype == b.dtype and np.array_equal(_bits(a), _bits(b)))


def _bits(array: Array) -> Array:
    """A float array as whole numbers, so that NaN equals itself."""
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


def _shape(shape: Shape) -> str:
    return f"[{','.join(map(str, shape))}]"
