"""What a model's shape is, as frozen data; reading it from files is `models.weights`'s."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias


@dataclass(frozen=True)
class Rope:
    """How positions become angles.

    Attributes:
        theta: the base of the geometric series of frequencies.
        kind: `default`, or the scaling that the config names.
        parameters: that scaling's numbers, by their names in the config.
    """

    theta: float = 10000.0
    kind: Literal["default", "linear", "llama3", "yarn"] = "default"
    parameters: tuple[tuple[str, float | int | bool], ...] = ()


@dataclass(frozen=True)
class GPT2Config:
    """GPT-2 of any size: learned positions, layer norms, tanh GELU, a head tied to `wte`."""

    vocab: int
    context: int
    dim: int
    layers: int
    heads: int
    hidden: int
    norm_eps: float = 1e-5
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()

    family: Literal["gpt2"] = field(default="gpt2", init=False)

    @property
    def head_dim(self) -> int:
        """Channels of one head."""
        return self.dim // self.heads


@dataclass(frozen=True)
class LlamaConfig:
    """The Llama family: rotary positions, RMS norms, grouped heads, SwiGLU.

    Query and key rows are in the half-split order (pairs i and i + head_dim/2), whatever order
    the file had: the loader converts (cases R01, R03).
    """

    vocab: int
    context: int
    dim: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    tied: bool
    norm_eps: float = 1e-5
    rope: Rope = Rope()
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()

    family: Literal["llama"] = field(default="llama", init=False)


ModelConfig: TypeAlias = GPT2Config | LlamaConfig
