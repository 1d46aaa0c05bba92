"""Adapters as inputs: another adapter is another value, not another program.

A is [1,I,1,r] and B [1,O,1,r].  Rows of B beside wq, and of A beside wo, follow the order of
heads in the programs' own matrices, [group, key head]: see `Llama.weights`.
"""

from __future__ import annotations

from orion_ane.ir import Graph, Node
from orion_ane.models.config import GPT2Config, LlamaConfig, ModelConfig
from orion_ane.models.gpt2 import GPT2
from orion_ane.models.llama import Llama
from orion_ane.models.paper.builder import causal, packed
from orion_ane.models.paper.training import LANES, attention_outputs, rotary
from orion_ane.nn.blocks import Precision
from orion_ane.ops import const, matmul, reshape


def low_rank(x: Node, a: Node, b: Node, scale: float) -> Node:
    """scale · B Aᵀx for each lane: x [1,I,1,S], a [1,I,1,r], b [1,O,1,r] -> [1,O,1,S]."""
    (_, i, _, r), o, s = a.type.shape, b.type.shape[1], x.type.shape[3]
    inner = matmul(reshape(a, (1, 1, i, r)), reshape(x, (1, 1, i, s)), tx=True)  # [1,1,r,S]
    inner = inner * const(scale, x.type.dtype)
    return reshape(matmul(reshape(b, (1, 1, o, r)), inner), (1, o, 1, s))


def lora_linear(
    config: ModelConfig,
    precision: Precision,
    *,
    layer: int,
    target: str = "q",
    rank: int = 16,
    alpha: float = 16.0,
    lanes: int = LANES,
) -> Graph:
    """One projection of a layer with an adapter beside it: y = Wx + α/r · B Aᵀx."""
    model = GPT2(config) if isinstance(config, GPT2Config) else Llama(config)
    rows, columns = _sides(config, target)
    x = packed("x", columns, lanes, precision)
    a = packed("lora_A", columns, rank, precision)
    b = packed("lora_B", rows, rank, precision)
    y = model.product(layer, f"w{target}", x, precision) + low_rank(x, a, b, alpha / rank)
    return Graph({"x": x, "lora_A": a, "lora_B": b}, {"y": y})


def lora_attn(
    config: LlamaConfig,
    precision: Precision,
    *,
    layer: int,
    targets: str = "qv",
    rank: int = 16,
    alpha: float = 16.0,
    lanes: int = LANES,
) -> Graph:
    """`fwd_attn` with adapters beside some of its projections."""
    x = packed("x", config.dim, lanes, precision)
    tables, model = rotary(config, lanes, precision), Llama(config)
    inputs = {"x": x, "cos": tables[0], "sin": tables[1]}
    for target in "qkvo":
        if target in targets:
            rows, columns = _sides(config, target)
            for label, channels in ((f"lora_{target}_A", columns), (f"lora_{target}_B", rows)):
                inputs[label] = packed(label, channels, rank, precision)

    def product(which: str, x: Node) -> Node:
        y = model.product(layer, which, x, precision)
        if which[1] not in targets:
            return y
        a, b = (inputs[f"lora_{which[1]}_{part}"] for part in "AB")
        return y + low_rank(x, a, b, alpha / rank)

    mask = causal(lanes, precision)
    return Graph(
        inputs, attention_outputs(model.attn(layer, x, tables, mask, None, precision, product))
    )


def _sides(config: ModelConfig, target: str) -> tuple[int, int]:
    """Outputs and inputs of a projection."""
    wide = config.heads * config.head_dim
    kv = wide if isinstance(config, GPT2Config) else config.kv_heads * config.head_dim
    rows = {"q": wide, "k": kv, "v": kv, "o": config.dim}[target]
    return rows, wide if target == "o" else config.dim
