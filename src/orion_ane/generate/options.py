"""What one request asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from enum import Enum
from typing import Any, Self, TypedDict

from orion_ane.errors import ConfigError
from orion_ane.generate.adapters import Chosen
from orion_ane.host.sampling import Sampling


class Current(Enum):
    """What the model has been told to wear."""

    ADAPTER = "current"


class Request(TypedDict, total=False):
    """The keywords of `Model.generate` and `Model.stream`; see `Options` for each."""

    max_tokens: int
    temperature: float
    top_k: int | None
    top_p: float
    seed: int
    stop: str | tuple[str, ...] | list[str]
    verify: bool
    cancelled: Callable[[], bool]
    adapter: Chosen


def never() -> bool:
    """A request that nobody cancels."""
    return False


@dataclass(frozen=True)
class Options:
    """A request's settings, checked.

    Attributes:
        max_tokens: the most new tokens; the context may allow fewer.
        temperature: divides the logits; 0 takes the largest.
        top_k: keep the k most probable tokens; None or 0 keeps all.
        top_p: keep the fewest tokens that together reach this probability.
        seed: of this request's own generator.
        stop: texts that end the continuation, which does not hold them.
        verify: also run fp32 on `cpu` and compare every logit.
        cancelled: asked after each token; True ends the run with what there is.
        adapter: what this request alone wears: a name, weights by name, or None for the model
            alone; by default what `Model.set_adapter` said last.

    Raises:
        ConfigError: a value that means nothing.
    """

    max_tokens: int = 128
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int = 0
    stop: str | tuple[str, ...] | list[str] = ()
    verify: bool = False
    cancelled: Callable[[], bool] = never
    adapter: Chosen | Current = Current.ADAPTER

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> Self:
        """A request's settings.

        Raises:
            ConfigError: a keyword that there is not, or a value that means nothing.
        """
        known = [field.name for field in fields(cls)]
        if unknown := [name for name in request if name not in known]:
            near = get_close_matches(unknown[0], known, n=1)
            hint = f"did you mean {near[0]}?" if near else None
            raise ConfigError(unknown[0], "no such option", want=", ".join(known), hint=hint)
        return cls(**request)

    def __post_init__(self) -> None:
        _want_whole("max_tokens", self.max_tokens, 1)
        _want_whole("seed", self.seed, 0)
        if not all(isinstance(text, str) for text in self.stops):
            raise ConfigError("stop", "not a text", got=self.stop, want="a text, or several")
        if any(not text for text in self.stops):
            raise ConfigError("stop", "empty text", want="at least one character")
        _ = self.sampling

    @property
    def sampling(self) -> Sampling:
        """How each token is drawn."""
        return Sampling(self.temperature, self.top_k, self.top_p)

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop texts as a tuple."""
        return tuple(self.stop) if isinstance(self.stop, tuple | list) else (self.stop,)


def _want_whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        want = f"a whole number, at least {least}"
        raise ConfigError(name, "out of range", got=value, want=want)
