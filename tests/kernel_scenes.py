"""Each kernel's inputs and outputs, from torch in float64: what a layer computes, by name.

A scene is everything that a layer and its gradient hold, each value as the programs have it; a
kernel's ports are names of the scene, several where one port packs several.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from oracles import oracle

from orion_ane.bench.shapes import SHAPES
from orion_ane.models.config import GPT2Config, LlamaConfig
from orion_ane.models.llama import Llama
from orion_ane.models.paper import KERNELS, for_kernel
from orion_ane.models.weights import shapes
from orion_ane.nn.blocks import MASKED, Precision
from orion_ane.types import DType

FP16 = Precision(DType.FP16, DType.FP16)
FP32 = Precision(DType.FP32, DType.FP32)

GROUPED = LlamaConfig(
    vocab=48, context=64, dim=24, layers=2, heads=4, kv_heads=2, head_dim=6, hidden=40, tied=True
)
PLAIN = replace(GROUPED, kv_heads=4, tied=False)
SMALL = GPT2Config(vocab=48, context=64, dim=24, layers=2, heads=4, hidden=64)
TOYS = {"grouped": GROUPED, "plain": PLAIN, "gpt2": SMALL}
STORIES = SHAPES["llama-110m"]
FULL = {"stories110m": STORIES, "gpt2": SHAPES["gpt2-124m"]}

LAYER, LANES, CACHED, RANK = 1, 8, 16, 4
HIDDEN = 3  # the last cached positions, which no lane may see

BODY_IN = {"x": "x", "mask": "mask", "mask_cache": "mask_cache"}
FORWARD = {
    "wo_out": "wo_out",
    "q_out": "q",
    "k_out": "k",
    "v_out": "v",
    "attn_out": "mixed",
    "rms1_out": "h1_norm",
}
GPT2_FFN = ({"x": "x"}, {"hidden": "ffn_hidden"})
TABLES = {"cos": "cos", "sin": "sin"}
PORTS = {
    "gpt2_prefill_attn": (
        {"x": "x"},
        {"hidden": "attn_hidden", "k_cache": "k", "v_cache": "v"},
    ),
    "gpt2_prefill_ffn": GPT2_FFN,
    "gpt2_final_ln": ({"x": "x"}, {"hidden": "final"}),
    "gpt2_decode_proj": ({"x": "x"}, {"q32": "q", "k32": "k", "v32": "v"}),
    "gpt2_decode_ffn": GPT2_FFN,
    "fwd_attn": ({"x": "x", **TABLES}, FORWARD),
    "fwd_ffn": (
        {"x": "x"},
        {
            "w2_out": "w2_out",
            "w1_out": "h1",
            "w3_out": "h3",
            "gate": "gate",
            "rms2_out": "h2_norm",
        },
    ),
    "ffn_bwd": ({"inp": "dffn h1 h3"}, {"dx": "dh2_norm", "dh1": "dh1", "dh3": "dh3"}),
    "sdpa_bwd1": ({"inp": "q k v dx2"}, {"dvf": "dv", "pf": "p", "dpf": "dp"}),
    "sdpa_bwd2": ({"inp": "p dp q k", **TABLES}, {"dqf": "dq", "dkf": "dk"}),
    "qkv_bwd": ({"inp": "dq dk dv"}, {"dx": "dh1_norm"}),
    "classifier_fwd": ({"x": "x"}, {"output": "classes"}),
    "vocab_softmax": ({"x": "classes"}, {"output": "chances"}),
    "lora_linear": (
        {"x": "x", "lora_A": "lora_q_A", "lora_B": "lora_q_B"},
        {"y": "y_q"},
    ),
    "lora_attn": (
        {
            "x": "x",
            **TABLES,
            **{f"lora_{t}_{part}": f"lora_{t}_{part}" for t in "qv" for part in "AB"},
        },
        {port: f"lora_{name}" for port, name in FORWARD.items()},
    ),
    "head": ({"hidden": "x"}, {"logits": "logits"}),
}


@dataclass(frozen=True)
class Case:
    """A kernel for a model, at some sizes."""

    name: str
    model: str
    config: LlamaConfig | GPT2Config
    lanes: int
    cached: int
    rank: int

    def __str__(self) -> str:
        return f"{self.name}-{self.model}"

    @property
    def sizes(self) -> dict[str, object]:
        known = {
            "layer": LAYER,
            "lanes": self.lanes,
            "cached": self.cached,
            "rank": self.rank,
            "alpha": 2.0 * self.rank,
        }
        return {key: value for key, value in known.items() if key in KERNELS[self.name].sizes}

    def graph(self, precision: Precision = FP16, **options):
        return KERNELS[self.name](self.config, precision=precision, **self.sizes, **options)

    def weights(self, graph, tensors, precision: Precision = FP16):
        return for_kernel(graph, self.config, tensors, precision)

    @property
    def ports(self) -> tuple[dict[str, str], dict[str, str]]:
        """Port to the names of the scene that it holds."""
        if self.name in PORTS:
            return PORTS[self.name]
        inputs, outputs = dict(BODY_IN), {"hidden": "hidden"}
        inputs |= TABLES if self.config.family == "llama" else {}
        for i in range(self.config.layers):
            inputs |= {f"{kind}_cache_{i:02d}": f"{kind}_cache_{i:02d}" for kind in "kv"}
            outputs |= {f"{kind}_{i:02d}": f"{kind}_{i:02d}" for kind in "kv"}
        return inputs, outputs


def cases(models, *, lanes: int = LANES, cached: int = CACHED, rank: int = RANK) -> list[Case]:
    """Every kernel for every model that it can be built for."""
    return [
        Case(name, model, config, lanes, cached, rank)
        for name, kernel in KERNELS.items()
        for model, config in models.items()
        if config.family in kernel.families
    ]


def random_tensors(config, rng):
    """Canonical tensors that keep activations near 1."""
    return {
        name: (
            1 + 0.1 * rng.standard_normal(shape, np.float32)
            if name.endswith(("norm", "_g"))
            else rng.standard_normal(shape, np.float32) / np.float32(sqrt(shape[-1]))
        )
        for name, shape in shapes(config).items()
    }


def packed(value):
    """[S, C] as [1, C, 1, S]."""
    return value.detach().numpy().T[None, :, None, :]


class Scene:
    """What a model computes; values by name, float64, as the programs have them."""

    def __init__(self, config, tensors, rng, *, lanes, cached, rank, turned=True, whole=True):
        self.torch = oracle("torch")
        self.torch.set_num_threads(1)
        self.config, self.lanes, self.cached, self.rank = config, lanes, cached, rank
        self.is_llama = config.family == "llama"
        self.kv_heads = config.kv_heads if self.is_llama else config.heads
        self.order = np.arange(config.heads).reshape(self.kv_heads, -1).T.ravel()
        self.tensors, self.rng = tensors, rng
        self.values: dict[str, np.ndarray] = {}
        self._rotary(turned)
        x = self.drawn("x", config.dim)
        self.mask = self.torch.triu(self.torch.full((lanes, lanes), -1e9), 1).double()
        self.values["mask"] = np.where(self.mask.numpy() < 0, MASKED[DType.FP16], 0)[None, None]
        if self.is_llama:
            self._llama_layer(x)
        else:
            self._gpt2_layer(x)
        self._vocabulary(x)
        if whole:
            self._whole(x)

    def __getitem__(self, names: str):
        """The value of a port: the named ones, one after the other in its channels."""
        return np.concatenate([self.values[name] for name in names.split()], axis=1)

    def fed(self, case: Case, dtype=None):
        """The inputs of a kernel."""
        return {
            port: self[names].astype(dtype or np.float64) for port, names in case.ports[0].items()
        }

    def t(self, name):
        return self.torch.from_numpy(self.tensors[name]).double()

    def drawn(self, name, channels, lanes=None, scale=1.0):
        """A random value [S, C]."""
        rows = self.rng.standard_normal((lanes or self.lanes, channels)) * scale
        value = self.torch.from_numpy(rows)
        self.values[name] = packed(value)
        return value

    def heads(self, name, value, order=None):
        """[S, H, D] under a name, heads in the programs' order."""
        ordered = value if order is None else value[:, order]
        self.values[name] = packed(ordered.reshape(value.shape[0], -1))

    def squares(self, name, value):
        """[H, S, S] as channels."""
        self.values[name] = value.detach().numpy()[self.order].reshape(1, -1, 1, self.lanes)

    def _rotary(self, turned):
        c = self.config
        self.tables = None
        if not self.is_llama:
            return
        if turned:
            found = Llama(c).tables(np.arange(self.lanes) + 5)
        else:
            one = np.ones((1, 1, c.head_dim, self.lanes))
            found = {"cos": one, "sin": 0 * one}
        self.values |= found
        self.tables = [self.torch.from_numpy(found[k][0, 0].T).double() for k in ("cos", "sin")]

    def rotated(self, x):
        cos, sin = (table[:, None, :] for table in self.tables)
        half = x.shape[-1] // 2
        return x * cos + self.torch.cat([-x[..., half:], x[..., :half]], -1) * sin

    def linear(self, at, which, x, adapters):
        y = x @ self.t(f"{at}{which}").T
        if not self.is_llama:
            y = y + self.t(f"{at}{which.replace('w', 'b')}")
        if which[1] in adapters:
            a, b = adapters[which[1]]
            y = y + 2 * (x @ a) @ b.T
        return y

    def attend(self, at, h, cache=None, adapters=()):
        """Attention of a normed value: everything between, each keeping its gradient."""
        c, s = self.config, h.shape[0]
        raw = [self.linear(at, f"w{part}", h, adapters) for part in "qkv"]
        split = [
            r.reshape(s, n, c.head_dim)
            for r, n in zip(raw, (c.heads, self.kv_heads, self.kv_heads), strict=True)
        ]
        q, k, v = split
        if self.is_llama:
            q, k = self.rotated(q), self.rotated(k)
        mask, all_k, all_v = self.mask, k, v
        if cache is not None:
            all_k, all_v = (self.torch.cat(pair) for pair in zip(cache[:2], (k, v), strict=True))
            mask = self.torch.cat([cache[2], mask], 1)
        repeats = c.heads // self.kv_heads
        wide_k, wide_v = (x.repeat_interleave(repeats, 1) for x in (all_k, all_v))
        p = (self.torch.einsum("shd,thd->hst", q, wide_k) / sqrt(c.head_dim) + mask).softmax(-1)
        mixed = self.torch.einsum("hst,thd->shd", p, wide_v)
        out = self.linear(at, "wo", mixed.reshape(s, -1), adapters)
        return {"raw": raw, "q": q, "k": k, "v": v, "p": p, "mixed": mixed, "out": out}

    def rms(self, x, gain):
        return x * (x.pow(2).mean(-1, keepdim=True) + self.config.norm_eps).rsqrt() * self.t(gain)

    def layer_norm(self, x, label):
        gain, bias = self.t(f"{label}_g"), self.t(f"{label}_b")
        of = (self.config.dim,)
        return self.torch.nn.functional.layer_norm(x, of, gain, bias, self.config.norm_eps)

    def forward(self, prefix, a, normed):
        """The outputs of `fwd_attn` and its like."""
        self.heads(f"{prefix}q", a["q"], self.order)
        self.heads(f"{prefix}k", a["k"])
        self.heads(f"{prefix}v", a["v"])
        self.heads(f"{prefix}mixed", a["mixed"], self.order)
        self.values |= {f"{prefix}wo_out": packed(a["out"]), f"{prefix}h1_norm": packed(normed)}

    def _llama_layer(self, x):
        at = f"layers.{LAYER}."
        h = self.rms(x, at + "attn_norm").requires_grad_()
        a = self.attend(at, h)
        for value in (*a["raw"], a["p"]):
            value.retain_grad()
        a["out"].backward(self.drawn("dx2", self.config.dim))
        self.forward("", a, h)
        self.squares("p", a["p"])
        self.squares("dp", a["p"].grad)
        d = self.config.head_dim
        dq, dk, dv = (raw.grad.reshape(self.lanes, -1, d) for raw in a["raw"])
        self.heads("dq", dq, self.order)
        self.heads("dk", dk)
        self.heads("dv", dv)
        self.values["dh1_norm"] = packed(h.grad)
        self._llama_ffn(at, x)
        adapters = self._adapters(at, x)
        with self.torch.no_grad():
            for prefix, beside in (("lora_", "qv"), ("lora_all_", "qkvo")):
                chosen = {t: adapters[t] for t in beside}
                self.forward(prefix, self.attend(at, h, adapters=chosen), h)

    def _llama_ffn(self, at, x):
        h = self.rms(x, at + "ffn_norm").requires_grad_()
        h1, h3 = (h @ self.t(at + w).T for w in ("w1", "w3"))
        gate = self.torch.nn.functional.silu(h1) * h3
        out = gate @ self.t(at + "w2").T
        for value in (h1, h3):
            value.retain_grad()
        out.backward(self.drawn("dffn", self.config.dim))
        named = {"h2_norm": h, "h1": h1, "h3": h3, "gate": gate, "w2_out": out}
        named |= {"dh2_norm": h.grad, "dh1": h1.grad, "dh3": h3.grad}
        self.values |= {name: packed(value) for name, value in named.items()}

    def _adapters(self, at, x):
        """A and B beside each projection, [I,r] and [O,r] in the model's own order of heads."""
        c = self.config
        wide, kv = c.heads * c.head_dim, self.kv_heads * c.head_dim
        mixed = self.torch.from_numpy(self.rng.standard_normal((self.lanes, wide)))
        sides = {"q": (c.dim, wide), "k": (c.dim, kv), "v": (c.dim, kv), "o": (wide, c.dim)}
        turn = (np.arange(wide).reshape(c.heads, -1)[self.order]).ravel()  # to the programs' order
        self.values["x_o"] = packed(mixed[:, turn])
        found = {}
        for t, (columns, rows) in sides.items():
            a = self.drawn(f"lora_{t}_A", self.rank, columns, 1 / sqrt(columns))
            b = self.drawn(f"lora_{t}_B", self.rank, rows, 0.25)
            found[t] = a, b
            y = self.linear(at, f"w{t}", mixed if t == "o" else x, {t: (a, b)})
            into, out = (turn if t == which else slice(None) for which in "oq")
            self.values[f"lora_{t}_A"] = a.numpy()[into][None, :, None, :]
            self.values[f"lora_{t}_B"] = b.numpy()[out][None, :, None, :]
            self.values[f"y_{t}"] = packed(y[:, out])
        return found

    def _gpt2_layer(self, x):
        at = f"layers.{LAYER}."
        a = self.attend(at, self.layer_norm(x, at + "ln1"))
        for name in "qkv":
            self.heads(name, a[name])
        self.values["attn_hidden"] = packed(x + a["out"])
        self.values["ffn_hidden"] = packed(self._gpt2_ffn(at, x))
        self.values["final"] = packed(self.layer_norm(x, "lnf"))
        self._adapters(at, x)

    def _gpt2_ffn(self, at, x):
        inner = self.linear(at, "w1", self.layer_norm(x, at + "ln2"), ())
        gelu = self.torch.nn.functional.gelu(inner, approximate="tanh")
        return x + self.linear(at, "w2", gelu, ())

    def _vocabulary(self, x):
        tied = "embed" if self.is_llama else "wte"
        table = self.t("head" if self.is_llama and not self.config.tied else tied)
        classes = x @ table.T
        final = self.rms(x, "norm") if self.is_llama else self.layer_norm(x, "lnf")
        self.values |= {"classes": packed(classes), "chances": packed(classes.softmax(-1))}
        self.values["logits"] = packed(final @ table.T)

    @property
    def seen(self):
        """What new positions add to the scores of cached ones."""
        mask = self.torch.zeros(self.lanes, self.cached).double()
        mask[:, -HIDDEN:] = -1e9
        return mask

    def _whole(self, x):
        c = self.config
        mask = self.seen
        self.values["mask_cache"] = np.where(mask.numpy() < 0, MASKED[DType.FP16], 0)[None, None]
        with self.torch.no_grad():
            for i in range(c.layers):
                at = f"layers.{i}."
                kv = self.kv_heads * c.head_dim
                old = [self.drawn(f"{kind}_cache_{i:02d}", kv, self.cached) for kind in "kv"]
                cache = [o.reshape(self.cached, -1, c.head_dim) for o in old] + [mask]
                norm = self.rms(x, at + "attn_norm") if self.is_llama else None
                h = self.layer_norm(x, at + "ln1") if norm is None else norm
                a = self.attend(at, h, cache)
                self.heads(f"k_{i:02d}", a["k"])
                self.heads(f"v_{i:02d}", a["v"])
                x = x + a["out"]
                x = self._gpt2_ffn(at, x) if norm is None else x + self._plain_ffn(at, x)
            self.values["hidden"] = packed(x)

    def _plain_ffn(self, at, x):
        h = self.rms(x, at + "ffn_norm")
        gate = self.torch.nn.functional.silu(h @ self.t(at + "w1").T) * (h @ self.t(at + "w3").T)
        return gate @ self.t(at + "w2").T
