"""Workloads whose results on real devices were published, and what computes them here.

Each is restated as a function of its sizes, and measured as its authors did: the
Frobenius norm of the error relative to a reference of higher precision.  How they generalise:

- `gemm`: x [M,K], then W [N,K], from generator 0, each N(0,1) as fp32, over √K.  NumPy ≥ 2 makes
  the quotient fp64 (fp32 array / fp64 scalar); the reference is the fp64 product of those.
- `square_gemm`, the saturation size N: the same, with M = K = N, an fp32 √N, so that the quotient
  stays fp32, and an error over the first 256 rows alone.
- `conv_stack`: x [1,Cin,H,W], then all weights, from generator 1; each is N(0,1) as fp32 times
  √(2/(C·k²)), which makes it fp64; zero padding k // 2; relu after each layer.  A layer's fp16
  output is the next one's input.  In the reference a layer's input is fp32 and its sums fp64.
- `saturated_conv`: one layer without relu, x [B,C,64,64], from generator 1, and an error over the
  first image alone.
- `stencil`: u [1,1,H,W] from generator 3; each step is the 3×3 kernel 1 + Δ/10 in fp32, rounded to
  fp16 on the device; the reference is fp32 and adds taps in order by fused multiply-adds.
- `dft`: the real and the imaginary part as two products of one row, from generator 2; the mean of
  both errors.
- `jacobi`: M [n,n], then b [n], from generator 8; A = M Mᵀ / n + n·1 in fp32.  A's own rounding
  decides the last digits.  M5's host sums M Mᵀ in order, by fused multiply-adds; how the others'
  did is not known, and rounding the exact sum once comes near.
- `attention`: from generator 5, W [D,D] four times as N(0,1) in fp32 over √D, then four biases as
  N(0,1)/100, then x [S,D]; all products have a bias, scores are scaled by 1/√(D/H).  The reference
  is fp64.
- `layer_norm`, `rms_norm` of [S,D] and `group_norm` of [1,C,H,W] in 32 groups: x, then a gain
  1 + N(0,1)/10, then an offset N(0,1)/10, from generator 7; ε is 1e-5.  The reference is fp32.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Protocol

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

import orion_ane.ops as o
from orion_ane.ane.numerics import NUMERICS, ConvForm
from orion_ane.ane.rounding import multiply, subtract
from orion_ane.ane.targets import TARGETS
from orion_ane.compiler import compile as compile_graph
from orion_ane.engine.macs.conv import conv, conv_weight
from orion_ane.engine.macs.products import product_sum, rows
from orion_ane.ir import Graph, Node
from orion_ane.ops.foreign.conv import Conv, convolution
from orion_ane.ops.foreign.layer_norm import LayerNorm
from orion_ane.ops.foreign.linear import Linear
from orion_ane.runtime.backends.emulator import Emulator
from orion_ane.types import Array, DType, TensorType

EPS = 1e-5
GROUPS = 32


class Device(Protocol):
    """What computes; operands are rounded to fp16 first."""

    target: str

    def linear(self, x: Array, w: Array) -> Array:
        """y [M,N] of x [M,K] and a constant w [N,K]."""
        ...

    def layer(self, x: Array, w: Array) -> Array:
        """A convolution of stride 1 that keeps the size, of x [N,C,H,W]."""
        ...

    def relaxed(self, a: Array, b: Array, inverse: Array, steps: int) -> Array:
        """The last x [n] of x <- (b - a x) · inverse, from 0 on."""
        ...


class Rule:
    """The engine's functions, called by hand."""

    def __init__(self, target: str) -> None:
        self.target, self._numerics = target, NUMERICS[target]
        self._overflow = self._numerics.overflow.value

    def linear(self, x: Array, w: Array) -> Array:
        half = np.ascontiguousarray(x.astype(np.float16).T)
        return product_sum(w.astype(np.float16), half, overflow=self._overflow).T

    def layer(self, x: Array, w: Array) -> Array:
        size = w.shape[-1]
        form: ConvForm = self._numerics.conv_3x3.value if size == 3 else "direct"
        known, pad = conv_weight(w.astype(np.float16), form), (size // 2,) * 4
        return conv(x, known, overflow=self._overflow, pad=pad)

    def relaxed(self, a: Array, b: Array, inverse: Array, steps: int) -> Array:
        w = rows(a.astype(np.float16))
        b, inverse = (v.astype(np.float16)[:, None] for v in (b, inverse))
        x = np.zeros_like(b)
        for _ in range(steps):
            x = multiply(subtract(b, product_sum(w, x, overflow=self._overflow)), inverse)
        return x


@cache
def emulator(name: str) -> Emulator:
    """A device with a target's numbers and no limits: what is measured here is no legal program."""
    return Emulator(target=replace(TARGETS[name], name=f"numbers of {name}", limits=frozenset()))


class Emulated:
    """The emulator, which reads a text and its weights."""

    def __init__(self, target: str) -> None:
        self.target = target

    def run(self, y: Node, feed: dict[str, Array], weights: dict[str, Array]) -> Array:
        """The value of y, of inputs and weights by label."""
        graph = Graph({name: _leaf(y, name) for name in feed}, {"y": y})
        halves = {name: array.astype(np.float16) for name, array in weights.items()}
        program = compile_graph(graph, halves, target=None)
        loaded = emulator(self.target).compile(program)
        try:
            return loaded.run({name: array.astype(np.float16) for name, array in feed.items()})["y"]
        finally:
            loaded.close()

    def linear(self, x: Array, w: Array) -> Array:
        y = linear(_input("x", x), _weight("w", w), np.zeros(len(w)))
        return self.run(y, {"x": x}, {"w": w})

    def layer(self, x: Array, w: Array) -> Array:
        walk = Conv((1, 1), (w.shape[-1] // 2,) * 4, (1, 1))
        return self.run(convolution(walk, _input("x", x), _weight("w", w)), {"x": x}, {"w": w})

    def relaxed(self, a: Array, b: Array, inverse: Array, steps: int) -> Array:
        feed = {"b": b[None], "inverse": inverse[None], "x": np.zeros_like(b)[None]}
        x, line, scale = (_input(name, feed[name]) for name in ("x", "b", "inverse"))
        w = _weight("w", a)
        for _ in range(steps):
            x = (line - linear(x, w, np.zeros(len(a)))) * scale
        return self.run(x, feed, {"w": a})

    def attention(self, x: Array, ws: list[Array], bs: list[Array], heads: int) -> Array:
        """Self-attention of x [S,D]: products with a bias, heads, and a softmax of scores."""
        (s, d), node = x.shape, _input("x", x)

        def projected(node: Node, i: int) -> Node:
            return linear(node, _weight(f"w{i}", ws[i]), bs[i])

        def split(node: Node) -> Node:
            return o.transpose(o.reshape(node, (s, heads, d // heads)), (1, 0, 2))

        q, k, v = (split(projected(node, i)) for i in range(3))
        scores = o.matmul(q, k, ty=True) * o.const(1 / np.sqrt(d // heads), DType.FP16)
        mixed = o.matmul(o.softmax(scores, -1), v)
        joined = o.reshape(o.transpose(mixed, (1, 0, 2)), (s, d))
        return self.run(projected(joined, 3), {"x": x}, {f"w{i}": w for i, w in enumerate(ws)})

    def layer_norm(self, x: Array, gain: Array, offset: Array) -> Array:
        """As one op."""
        vectors = (o.const(v.astype(np.float16), DType.FP16) for v in (gain, offset))
        op = LayerNorm((-1,), float(np.float32(EPS)), has_gamma=True, has_beta=True)
        return self.run(Node(op, (_input("x", x), *vectors)), {"x": x}, {})

    def rms_norm(self, x: Array, gain: Array) -> Array:
        """Op by op."""
        node = _input("x", x)
        scale = o.rsqrt(o.reduce_mean(node * node, (-1,)), EPS)
        return self.run(node * scale * o.const(gain, DType.FP16), {"x": x}, {})

    def group_norm(self, x: Array, gain: Array, offset: Array) -> Array:
        """A layer norm of the groups, a product and a sum."""
        node = o.reshape(_input("x", x), (1, GROUPS, x.size // GROUPS))
        op = LayerNorm((-1,), float(np.float32(EPS)))
        normal = o.reshape(Node(op, (node,)), x.shape)
        by, to = (o.const(v.reshape(1, -1, 1, 1), DType.FP16) for v in (gain, offset))
        return self.run(normal * by + to, {"x": x}, {})


def linear(x: Node, w: Node, bias: Array) -> Node:
    return Node(Linear(), (x, w, o.const(bias, DType.FP16)))


def _input(name: str, like: Array) -> Node:
    return o.input_(name, TensorType(DType.FP16, like.shape))


def _weight(name: str, like: Array) -> Node:
    return o.weight(name, TensorType(DType.FP16, like.shape))


def _leaf(y: Node, name: str) -> Node:
    """The input of that name below y."""
    stack, seen = [y], set()
    while stack:
        node = stack.pop()
        if node.op.name == "input" and node.op.label == name:
            return node
        if id(node) not in seen:
            seen.add(id(node))
            stack.extend(node.args)
    raise AssertionError(name)


def error(y: Array, reference: Array) -> float:
    want = np.asarray(reference, np.float64).ravel()
    return float(np.linalg.norm(np.asarray(y, np.float64).ravel() - want) / np.linalg.norm(want))


def gemm(m: int, k: int, n: int, on: Device) -> float:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((m, k)).astype(np.float32) / np.sqrt(k)
    w = rng.standard_normal((n, k)).astype(np.float32) / np.sqrt(k)
    return error(on.linear(x, w), x.astype(np.float64) @ w.astype(np.float64).T)


def square_gemm(n: int, on: Device) -> float:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, n)).astype(np.float32) / np.float32(np.sqrt(n))
    w = rng.standard_normal((n, n)).astype(np.float32) / np.float32(np.sqrt(n))
    x = x[:256]  # the other rows are not looked at
    return error(on.linear(x, w), x.astype(np.float64) @ w.astype(np.float64).T)


def taps(x: Array, size: int) -> Array:
    """The windows of one fp32 image, as columns [C·k·k, H·W]."""
    pad = size // 2
    padded = np.pad(x.astype(np.float32), ((0, 0), (pad, pad), (pad, pad)))
    windows = sliding_window_view(padded, (size, size), axis=(1, 2))  # [C,H,W,k,k]
    return windows.transpose(0, 3, 4, 1, 2).reshape(-1, x.shape[1] * x.shape[2])


def sums_in_fp64(x: Array, w: Array) -> Array:
    """The reference of a layer whose weights are fp64, of one image [C,H,W]."""
    out = w.reshape(w.shape[0], -1).astype(np.float64) @ taps(x, w.shape[-1]).astype(np.float64)
    return out.reshape(w.shape[0], *x.shape[1:])


def he_normal(rng: np.random.Generator, c_out: int, c_in: int, k: int) -> Array:
    return rng.standard_normal((c_out, c_in, k, k)).astype(np.float32) * np.sqrt(
        2.0 / (c_in * k * k)
    )


def conv_stack(c_in: int, c: int, size: int, k: int, depth: int, on: Device) -> float:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((1, c_in, size, size)).astype(np.float32)
    ws = [he_normal(rng, c, c_in if i == 0 else c, k) for i in range(depth)]
    y, reference = x.astype(np.float16), x[0]
    for w in ws:
        y = np.maximum(on.layer(y, w), np.float16(0))
        reference = np.maximum(sums_in_fp64(reference, w), 0)
    return error(y, reference)


def saturated_conv(c: int, b: int, on: Device) -> float:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((b, c, 64, 64)).astype(np.float32)[:1]  # the others are not looked at
    w = he_normal(rng, c, c, 3)
    return error(on.layer(x.astype(np.float16), w), sums_in_fp64(x[0], w))


def fused(total: Array, w: Array | np.float32, x: Array) -> Array:
    """total + w·x in fp32, rounded once: in fp64 the product is exact."""
    wide = np.multiply(w, x, dtype=np.float64) + total.astype(np.float64)
    return wide.astype(np.float32)


def stencil(high: int, wide: int, steps: int, on: Device) -> float:
    rng = np.random.default_rng(3)
    u = rng.standard_normal((1, 1, high, wide)).astype(np.float32)
    w = np.zeros((1, 1, 3, 3), np.float32)
    w[0, 0] = 0.1 * np.array([[0, 1, 0], [1, -4, 1], [0, 1, 0]], np.float32)
    w[0, 0, 1, 1] += 1.0
    y, reference = u.astype(np.float16), u[0]
    for _ in range(steps):
        y = on.layer(y, w)
        total = np.zeros(high * wide, np.float32)
        for weight, line in zip(w.ravel(), taps(reference, 3), strict=True):
            total = fused(total, weight, line)
        reference = total.reshape(1, high, wide)
    return error(y, reference)


def dft(n: int, on: Device) -> float:
    x = np.random.default_rng(2).standard_normal(n)
    angle = -2 * np.pi * np.outer(np.arange(n), np.arange(n)) / n
    parts = [np.cos(angle), np.sin(angle)]
    return sum(error(on.linear(x[None], part), part @ x) for part in parts) / 2


def gram_in_order(m: Array) -> Array:
    total = np.zeros((len(m), len(m)), np.float32)
    for column in m.T:
        total = fused(total, column[:, None], column[None])
    return total


def gram_rounded_once(m: Array) -> Array:
    wide = m.astype(np.float64)
    return (wide @ wide.T).astype(np.float32)


def jacobi(n: int, iterations: int, on: Device) -> float:
    rng = np.random.default_rng(8)
    m = rng.standard_normal((n, n)).astype(np.float32)
    gram = gram_in_order(m) if on.target == "m5" else gram_rounded_once(m)
    a = gram / n + n * np.eye(n, dtype=np.float32)
    b = rng.standard_normal(n).astype(np.float32)
    diagonal = np.diag(a).copy()
    np.fill_diagonal(a, 0.0)
    reference = np.zeros(n)
    for _ in range(iterations):
        rest = b.astype(np.float64) - a.astype(np.float64) @ reference
        reference = rest / diagonal.astype(np.float64)
    inverse = (1.0 / diagonal).astype(np.float32)
    return error(on.relaxed(a, b, inverse, iterations), reference)


def attention(s: int, d: int, heads: int, on: Emulated) -> float:
    rng = np.random.default_rng(5)
    ws = [rng.standard_normal((d, d)).astype(np.float32) * (1.0 / np.sqrt(d)) for _ in range(4)]
    bs = [rng.standard_normal(d).astype(np.float32) * 0.01 for _ in range(4)]
    x = rng.standard_normal((s, d)).astype(np.float32)

    def projected(x: Array, i: int) -> Array:
        return x @ ws[i].astype(np.float64).T + bs[i].astype(np.float64)

    wide = x.astype(np.float64)
    q, k, v = (projected(wide, i).reshape(s, heads, -1).transpose(1, 0, 2) for i in range(3))
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(d // heads)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = (e / e.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(s, d)
    return error(on.attention(x, ws, bs, heads), projected(mixed, 3))


def _normed(shape: tuple[int, ...], count: int) -> tuple[Array, Array, Array]:
    """x, and a gain and an offset of so many elements."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal(shape).astype(np.float32)
    gain = rng.standard_normal(count).astype(np.float32) * np.float32(0.1) + np.float32(1)
    return x, gain, rng.standard_normal(count).astype(np.float32) * np.float32(0.1)


def layer_norm(s: int, d: int, on: Emulated) -> float:
    x, gain, offset = _normed((s, d), d)
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    return error(on.layer_norm(x, gain, offset), centred / np.sqrt(variance + EPS) * gain + offset)


def rms_norm(s: int, d: int, on: Emulated) -> float:
    x, gain, _ = _normed((s, d), d)
    size = np.sqrt((x**2).mean(-1, keepdims=True) + EPS)
    return error(on.rms_norm(x, gain), x / size * gain)


def group_norm(c: int, high: int, wide: int, on: Emulated) -> float:
    shape = (1, c, high, wide)
    x, gain, offset = _normed(shape, c)
    groups = x.reshape(GROUPS, -1)
    variance = groups.var(1, keepdims=True)
    normal = ((groups - groups.mean(1, keepdims=True)) / np.sqrt(variance + EPS)).reshape(shape)
    by, to = gain.reshape(1, -1, 1, 1), offset.reshape(1, -1, 1, 1)
    return error(on.group_norm(x, gain, offset), normal * by + to)
