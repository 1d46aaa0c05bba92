"""PyTorch as one would write it: a Llama or a GPT-2, with a cache; and single products."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _protocol import NotToBeHadError, Rates

LEAST_S = 0.05
UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes that a system counts peak memory in."""


def prepare(work: dict[str, Any], dtype_name: str) -> tuple[str, Callable[[], Rates]]:
    """A run of the model, or of the products."""
    import torch

    torch.set_num_threads(work["threads"])
    torch.manual_seed(0)
    dtype = getattr(torch, dtype_name)
    what = f"torch {torch.__version__} eager, {dtype}"
    if work["what"] == "products":
        return what, _products(torch, work["products"], dtype)
    if work["config"]["family"] not in ("llama", "gpt2"):
        raise NotToBeHadError("it has a Llama and a GPT-2 only")
    if work["what"] == "training":
        if work["config"]["family"] != "llama":
            raise NotToBeHadError("it trains a Llama only")
        return _training(torch, work, dtype, what)
    return what, _inference(torch, work, dtype)


def _products(torch: Any, sizes: dict[str, list[int]], dtype: Any) -> Callable[[], Rates]:
    """Those rows whose element type this is; rates as in ours: GB/s of weights, or G products/s."""
    prefix = {torch.float32: "fp32", torch.float16: "fp16"}.get(dtype)
    made = {
        row: (torch.randn(o, k).to(dtype), torch.randn(s, k).to(dtype), s)
        for row, (o, k, s) in sizes.items()
        if row.split()[0] == prefix
    }
    if not made:
        raise NotToBeHadError(f"no product is in {dtype}")
    linear = torch.nn.functional.linear

    @torch.inference_mode()
    def once() -> Rates:
        found = {}
        for row, (w, x, s) in made.items():
            linear(x, w)
            times, start = 0, time.perf_counter()
            while (taken := time.perf_counter() - start) < LEAST_S:
                linear(x, w)
                times += 1
            amount = w.nbytes if s == 1 else w.numel() * s
            found[row] = amount * times / taken / 1e9
        return found

    return once


def _inference(torch: Any, work: dict[str, Any], dtype: Any) -> Callable[[], Rates]:
    made = _Llama if work["config"]["family"] == "llama" else _GPT2
    model = made(torch, work["config"], dtype)
    ids = torch.tensor(work["ids"])

    @torch.inference_mode()
    def once() -> Rates:
        room = len(ids) + work["new"]
        start = time.perf_counter()
        cache = model.cache(room)
        logits = model.run(ids, 0, cache)
        middle = time.perf_counter()
        for i in range(work["new"]):
            logits = model.run(logits.argmax().reshape(1), len(ids) + i, cache)
        end = time.perf_counter()
        return {"prefill": len(ids) / (middle - start), "decode": work["new"] / (end - middle)}

    return once


def _training(
    torch: Any, work: dict[str, Any], dtype: Any, what: str
) -> tuple[str, Callable[[], Rates]]:
    """Forward and backward of a microbatch, timed; then a step of AdamW, which is not.

    Weights are fp32; in bf16 the products are autocast, as training in torch does.
    """
    if dtype == torch.float16:
        raise NotToBeHadError("nobody trains in fp16 on a processor: its products are slow there")
    model = _Llama(torch, work["config"], torch.float32)
    weights = [model.embed, model.norm, *(w for layer in model.layers for w in layer.values())]
    if model.head is not model.embed:
        weights.append(model.head)
    for w in weights:
        w.requires_grad_()
    rule = torch.optim.AdamW(weights, lr=1e-4, fused=True)
    ids = torch.tensor(work["ids"])
    cast = torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16)

    def once() -> Rates:
        rule.zero_grad(set_to_none=True)
        start = time.perf_counter()
        with cast:
            logits = model.run(ids[:-1], 0, None)
            loss = torch.nn.functional.cross_entropy(logits.float(), ids[1:])
        middle = time.perf_counter()
        loss.backward()
        end = time.perf_counter()
        rule.step()
        return {
            "training": (len(ids) - 1) / (end - start),
            "forward": (len(ids) - 1) / (middle - start),
            "backward": (len(ids) - 1) / (end - middle),
            "peak memory": _peak(),
        }

    return f"{what}, AdamW fused", once


def _peak() -> float:
    """The most memory that this process ever had, in GB."""
    status = Path("/proc/self/status")
    if status.is_file():  # Linux's ru_maxrss begins with the parent's, which is no use here
        (line,) = (t for t in status.read_text().splitlines() if t.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024 / 1e9
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT / 1e9


class _Llama:
    def __init__(self, torch: Any, shape: dict[str, Any], dtype: Any) -> None:
        self.torch, self.shape, self.dtype = torch, shape, dtype
        c, f, d = shape["dim"], shape["hidden"], shape["head_dim"]
        q, kv = shape["heads"] * d, shape["kv_heads"] * d

        def draw(*size: int) -> Any:
            return (torch.randn(*size) * 0.02).to(dtype)

        self.embed = draw(shape["vocab"], c)
        self.head = self.embed if shape["tied"] else draw(shape["vocab"], c)
        self.layers = [
            {
                "wq": draw(q, c), "wk": draw(kv, c), "wv": draw(kv, c), "wo": draw(c, q),
                "w1": draw(f, c), "w3": draw(f, c), "w2": draw(c, f),
                "g1": torch.ones(c, dtype=dtype), "g2": torch.ones(c, dtype=dtype),
            }
            for _ in range(shape["layers"])
        ]  # fmt: skip
        self.norm = torch.ones(c, dtype=dtype)
        angles = torch.outer(
            torch.arange(shape["context"]), 10000.0 ** (-torch.arange(0, d, 2) / d)
        )
        self.cos = torch.cat([angles.cos()] * 2, -1).to(dtype)
        self.sin = torch.cat([angles.sin()] * 2, -1).to(dtype)

    def cache(self, room: int) -> list[tuple[Any, Any]]:
        """Keys and values of each layer, room for that many positions."""
        size = (self.shape["kv_heads"], room, self.shape["head_dim"])
        new = self.torch.zeros
        return [(new(size, dtype=self.dtype), new(size, dtype=self.dtype)) for _ in self.layers]

    def run(self, ids: Any, at: int, cache: list[tuple[Any, Any]] | None) -> Any:
        """The logits after the last of the ids, which stand at position `at` and on.

        Without a cache, as in training, those after every id.
        """
        functional, shape = self.torch.nn.functional, self.shape
        linear, c, n = functional.linear, (shape["dim"],), len(ids)
        cos, sin = self.cos[at : at + n], self.sin[at : at + n]
        x = self.embed[ids]
        for w, kept in zip(self.layers, cache or [None] * len(self.layers), strict=True):
            h = functional.rms_norm(x, c, w["g1"], 1e-5)
            q, k, v = (self._heads(linear(h, w[name])) for name in ("wq", "wk", "wv"))
            q, k = q * cos + self._turned(q) * sin, k * cos + self._turned(k) * sin
            seen = [k[None], v[None]]
            if kept is not None:
                kept[0][:, at : at + n], kept[1][:, at : at + n] = k, v
                seen = [t[None, :, : at + n] for t in kept]
            y = functional.scaled_dot_product_attention(
                q[None], *seen, is_causal=n > 1, enable_gqa=True
            )
            x = x + linear(y[0].transpose(0, 1).reshape(n, -1), w["wo"])
            h = functional.rms_norm(x, c, w["g2"], 1e-5)
            x = x + linear(functional.silu(linear(h, w["w1"])) * linear(h, w["w3"]), w["w2"])
        last = x if cache is None else x[-1:]
        return linear(functional.rms_norm(last, c, self.norm, 1e-5), self.head)

    def _heads(self, x: Any) -> Any:
        return x.view(x.shape[0], -1, self.shape["head_dim"]).transpose(0, 1)

    def _turned(self, x: Any) -> Any:
        half = x.shape[-1] // 2
        return self.torch.cat((-x[..., half:], x[..., :half]), -1)


class _GPT2:
    def __init__(self, torch: Any, shape: dict[str, Any], dtype: Any) -> None:
        self.torch, self.shape, self.dtype = torch, shape, dtype
        c, f = shape["dim"], shape["hidden"]

        def draw(*size: int) -> Any:
            return (torch.randn(*size) * 0.02).to(dtype)

        self.words, self.places = draw(shape["vocab"], c), draw(shape["context"], c)
        self.layers = [
            {
                "g1": draw(c), "b1": draw(c), "wqkv": draw(3 * c, c), "bqkv": draw(3 * c),
                "wo": draw(c, c), "bo": draw(c), "g2": draw(c), "b2": draw(c),
                "w1": draw(f, c), "bf": draw(f), "w2": draw(c, f), "bp": draw(c),
            }
            for _ in range(shape["layers"])
        ]  # fmt: skip
        self.g, self.b = draw(c), draw(c)

    def cache(self, room: int) -> list[tuple[Any, Any]]:
        """Keys and values of each layer, room for that many positions."""
        heads = self.shape["heads"]
        size, new = (heads, room, self.shape["dim"] // heads), self.torch.zeros
        return [(new(size, dtype=self.dtype), new(size, dtype=self.dtype)) for _ in self.layers]

    def run(self, ids: Any, at: int, cache: list[tuple[Any, Any]]) -> Any:
        """The logits after the last of the ids, which stand at position `at` and on."""
        functional, n, c = self.torch.nn.functional, len(ids), (self.shape["dim"],)
        linear, norm = functional.linear, functional.layer_norm
        x = self.words[ids] + self.places[at : at + n]
        for w, (keys, values) in zip(self.layers, cache, strict=True):
            h = linear(norm(x, c, w["g1"], w["b1"]), w["wqkv"], w["bqkv"])
            q, k, v = h.view(n, 3, self.shape["heads"], -1).permute(1, 2, 0, 3)
            keys[:, at : at + n], values[:, at : at + n] = k, v
            y = functional.scaled_dot_product_attention(
                q[None], keys[None, :, : at + n], values[None, :, : at + n], is_causal=n > 1
            )
            x = x + linear(y[0].transpose(0, 1).reshape(n, -1), w["wo"], w["bo"])
            h = linear(norm(x, c, w["g2"], w["b2"]), w["w1"], w["bf"])
            x = x + linear(functional.gelu(h, approximate="tanh"), w["w2"], w["bp"])
        return linear(norm(x[-1:], c, self.g, self.b), self.words)
