"""What a model's shape is, as frozen data; reading it from files is `models.weights`'s."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from orion_ane.errors import ConfigError
from orion_ane.host.rope import Rope

__all__ = ["GPT2Config", "LlamaConfig", "ModelConfig", "Rope"]

MAX_LAYERS = 4096  # far above any model: keeps what a hostile file can ask for in bounds
MAX_SIZE = 1 << 31


@dataclass(frozen=True)
class GPT2Config:
    """GPT-2 of any size: learned positions, layer norms, tanh GELU, the head tied to `wte` or not.

    Raises:
        ConfigError: sizes that no model can have.
    """

    vocab: int
    context: int
    dim: int
    layers: int
    heads: int
    hidden: int
    norm_eps: float = 1e-5
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    tied: bool = True

    family: Literal["gpt2"] = field(default="gpt2", init=False)

    def __post_init__(self) -> None:
        _check_sizes(self, "vocab", "context", "dim", "layers", "heads", "hidden")
        if self.dim % self.heads:
            raise ConfigError("gpt2", "heads do not divide dim", got=f"{self.heads} of {self.dim}")

    @property
    def head_dim(self) -> int:
        """Channels of one head."""
        return self.dim // self.heads


@dataclass(frozen=True)
class LlamaConfig:
    """The Llama family: rotary positions, RMS norms, grouped heads, SwiGLU.

    Query and key rows are in the half-split order (pairs i and i + head_dim/2), whatever order
    the file had: the loader converts (cases R01, R03).

    Raises:
        ConfigError: sizes that no model can have.
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
    rope: Rope = field(default_factory=Rope)
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()

    family: Literal["llama"] = field(default="llama", init=False)

    def __post_init__(self) -> None:
        _check_sizes(
            self, "vocab", "context", "dim", "layers", "heads", "kv_heads", "head_dim", "hidden"
        )
        if self.heads % self.kv_heads:
            raise ConfigError(
                "llama", "key heads do not divide heads", got=f"{self.kv_heads} of {self.heads}"
            )
        if self.head_dim % 2:
            raise ConfigError("llama", "head_dim is odd", got=self.head_dim, want="pairs to turn")


ModelConfig: TypeAlias = GPT2Config | LlamaConfig


def _check_sizes(config: ModelConfig, *names: str) -> None:
    """Sizes are counted from 1 and stay within reason; so does the norm's epsilon."""
    for name in names:
        most = MAX_LAYERS if name == "layers" else MAX_SIZE
        if not 1 <= getattr(config, name) <= most:
            raise ConfigError(
                config.family, f"no such {name}", got=getattr(config, name), want=f"1 to {most}"
            )
    if not 0 <= config.norm_eps < 1:
        raise ConfigError(config.family, "no such norm_eps", got=config.norm_eps, want="0 to 1")
