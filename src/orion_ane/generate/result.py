"""What a generation gives back, and how its time is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from orion_ane.generate.adapters import Chosen
from orion_ane.generate.watch import Seen

FinishReason: TypeAlias = Literal["stop", "length", "interrupted"]


@dataclass(frozen=True)
class Timings:
    """Prompt and decode apart (case U03).

    Attributes:
        prompt_tokens: tokens read before the first new one.
        prefill_s: seconds until the first new token is known.
        decode_tokens: runs after that, each giving one more token.
        decode_s: their seconds.
    """

    prompt_tokens: int
    prefill_s: float
    decode_tokens: int
    decode_s: float

    @property
    def ttft_ms(self) -> float:
        """Time to the first token."""
        return self.prefill_s * 1e3

    @property
    def prefill_tokens_per_s(self) -> float:
        """Prompt tokens read per second."""
        return self.prompt_tokens / self.prefill_s if self.prefill_s else 0.0

    @property
    def decode_tokens_per_s(self) -> float:
        """Tokens per second once decoding; 0 where there was no decode run."""
        return self.decode_tokens / self.decode_s if self.decode_s else 0.0


@dataclass(frozen=True)
class Verification:
    """How a device's logits compare with fp32 on the same tokens, and what its values came to.

    Attributes:
        max_logit_error: the largest difference of a logit.
        argmax_agreement: the share of tokens after which the likeliest is the same.
        seconds: what it took beside the run: the reference's loading and runs, and measuring.
        first_bad: the first tensor whose values were not finite, though its operands' were.
        nearest: the sum of products that came nearest to 2^15; None where the device shows none.
    """

    max_logit_error: float
    argmax_agreement: float
    seconds: float = 0.0
    first_bad: Seen | None = None
    nearest: Seen | None = None

    @property
    def warning(self) -> Seen | None:
        """What a user should know of: the first bad tensor, or else one near its ceiling."""
        is_near = self.nearest is not None and self.nearest.range.is_near
        return self.first_bad or (self.nearest if is_near else None)


@dataclass(frozen=True)
class Generation:
    """A finished continuation.

    Attributes:
        text: the continuation alone.
        ids: the new tokens; the end token, if one came, is not among them.
        prompt_ids: what was read, BOS included.
        finish_reason: `stop` (end token or stop text), `length`, or `interrupted`.
        device: the backend that ran it.
        target: the name of the emulated device; None where there is none.
        numerics: how the device computes: `exact`, which is as itself, `fp16` or `fp32`.
        compile_s: seconds for programs that were not loaded yet, and for the engine's loops where
            this process had not compiled or read them yet; no part of `timings`.
        adapter: what it was made with: a name, weights by name, or None for the model alone.
    """

    text: str
    ids: tuple[int, ...]
    prompt_ids: tuple[int, ...]
    finish_reason: FinishReason
    device: str
    target: str | None
    numerics: str
    seed: int
    timings: Timings
    compile_s: float
    compiles: int
    programs: int
    evaluations_per_token: float
    weight_bytes_per_token: int
    verification: Verification | None = None
    adapter: Chosen = None


@dataclass(frozen=True)
class Piece:
    """A part of a continuation as it comes: text that is whole, and its token.

    The last piece has a `result` and no token.
    """

    text: str
    id: int | None = None
    result: Generation | None = None
