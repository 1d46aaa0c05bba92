"""The paper's kernels over the vocabulary: fp16 in, fp32 out."""

from __future__ import annotations

from orion_ane.ir import Graph
from orion_ane.models.config import ModelConfig
from orion_ane.models.decoder import logits
from orion_ane.models.paper.builder import packed
from orion_ane.nn.blocks import Precision
from orion_ane.ops import softmax

LANES = 256


def classifier_fwd(config: ModelConfig, precision: Precision, *, lanes: int = LANES) -> Graph:
    """Logits of a hidden state that has been normed already: no norm in the kernel."""
    x = packed("x", config.dim, lanes, precision)
    own = "embed" if config.family == "llama" and config.tied else "head"
    label = "wte" if config.family == "gpt2" else own
    return Graph({"x": x}, logits(x, label, config.vocab, precision, port="output"))


def vocab_softmax(config: ModelConfig, precision: Precision, *, lanes: int = LANES) -> Graph:
    """Probabilities of each lane's tokens, over the channels."""
    x = packed("x", config.vocab, lanes, precision)
    return Graph({"x": x}, {"output": softmax(x, 1)})
