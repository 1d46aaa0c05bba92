"""Every kernel by name: the paper's thirteen and its two with adapters, and our three.

    KERNELS["fwd_attn"](config, layer=0, lanes=256)   # a Graph

docs/kernels.md lists their ports.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from orion_ane.errors import ConfigError
from orion_ane.models.paper import gpt2, lora, training, vocabulary, whole
from orion_ane.models.paper.builder import KernelBuilder
from orion_ane.models.paper.weights import for_kernel
from orion_ane.types import DType

__all__ = ["KERNELS", "KernelBuilder", "for_kernel"]

_GPT2, _LLAMA, _BOTH = ("gpt2",), ("llama",), ("gpt2", "llama")
_WIDE = DType.FP32

_ROWS = (
    KernelBuilder("gpt2_prefill_attn", _GPT2, gpt2.prefill_attn, _WIDE, _WIDE),
    KernelBuilder("gpt2_prefill_ffn", _GPT2, gpt2.ffn, _WIDE, _WIDE),
    KernelBuilder("gpt2_final_ln", _GPT2, gpt2.final_ln, _WIDE, _WIDE),
    KernelBuilder("gpt2_decode_proj", _GPT2, gpt2.decode_proj, _WIDE, _WIDE),
    KernelBuilder("gpt2_decode_ffn", _GPT2, gpt2.decode_ffn, _WIDE, _WIDE),
    KernelBuilder("fwd_attn", _LLAMA, training.fwd_attn),
    KernelBuilder("fwd_ffn", _LLAMA, training.fwd_ffn),
    KernelBuilder("ffn_bwd", _LLAMA, training.ffn_bwd),
    KernelBuilder("sdpa_bwd1", _LLAMA, training.sdpa_bwd1),
    KernelBuilder("sdpa_bwd2", _LLAMA, training.sdpa_bwd2),
    KernelBuilder("qkv_bwd", _LLAMA, training.qkv_bwd),
    KernelBuilder("classifier_fwd", _BOTH, vocabulary.classifier_fwd, gives=_WIDE),
    KernelBuilder("vocab_softmax", _BOTH, vocabulary.vocab_softmax, gives=_WIDE),
    KernelBuilder("lora_linear", _BOTH, lora.lora_linear),
    KernelBuilder("lora_attn", _LLAMA, lora.lora_attn),
    KernelBuilder("body_prefill", _BOTH, whole.body_prefill),
    KernelBuilder("body_decode", _BOTH, whole.body_decode),
    KernelBuilder("head", _BOTH, whole.head),
)


class _Table(dict[str, KernelBuilder]):
    def __missing__(self, name: str) -> KernelBuilder:
        raise ConfigError("kernel", "no such kernel", got=name, want=", ".join(self))


KERNELS: Mapping[str, KernelBuilder] = MappingProxyType(_Table({row.name: row for row in _ROWS}))
"""The builders by name; another name is a `ConfigError`."""
