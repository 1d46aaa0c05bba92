"""The paper's kernels over the vocabulary: fp16 in, fp32 out."""

from __future__ import annotations

from functools import reduce

from orion_ane.ir import Graph, Node
from orion_ane.models.config import ModelConfig
from orion_ane.models.decoder import logits, vocabulary
from orion_ane.models.paper.builder import packed
from orion_ane.nn.blocks import Precision
from orion_ane.ops import exp, maximum, reduce_max, reduce_sum, softmax

LANES = 256


def classifier_fwd(config: ModelConfig, precision: Precision, *, lanes: int = LANES) -> Graph:
    """Logits of a hidden state that has been normed already: no norm in the kernel."""
    x = packed("x", config.dim, lanes, precision)
    table = "wte" if config.family == "gpt2" else "embed"
    label = table if config.tied else "head"
    return Graph({"x": x}, logits(x, label, config.vocab, precision, port="output"))


def vocab_softmax(config: ModelConfig, precision: Precision, *, lanes: int = LANES) -> Graph:
    """Probabilities of each lane's tokens, over the channels.

    A vocabulary that is longer than an axis may be enters and leaves by several ports, and all
    share the largest score and the sum.
    """
    parts = {
        end: packed(f"x{end}", len(rows), lanes, precision)
        for end, rows in vocabulary(config.vocab).items()
    }
    inputs = {f"x{end}": x for end, x in parts.items()}
    if len(parts) == 1:
        return Graph(inputs, {"output": softmax(inputs["x"], 1)})
    top = reduce(maximum, (reduce_max(x, (1,)) for x in inputs.values()))
    shares = {end: exp(x - top) for end, x in parts.items()}
    total = reduce(Node.__add__, (reduce_sum(share, (1,)) for share in shares.values()))
    return Graph(inputs, {f"output{end}": share / total for end, share in shares.items()})
