"""load(path) -> Model: a checkpoint, its tokenizer and a device, ready to generate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    Self,
    TypeAlias,
    TypeGuard,
    Unpack,
    get_args,
    overload,
)

import numpy as np

from orion_ane.ane.targets import Target
from orion_ane.engine.compiling import clock, counted, seconds
from orion_ane.errors import BackendError, ConfigError, DataError
from orion_ane.generate.adapters import Chosen, Wardrobe
from orion_ane.generate.kept import Kept
from orion_ane.generate.loop import Checker, NoText, Outcome, Streamer, run_loop
from orion_ane.generate.options import Current, Options, Request
from orion_ane.generate.packing import Packed, packed
from orion_ane.generate.programs import Programs
from orion_ane.generate.quantising import quantised
from orion_ane.generate.result import Generation, Piece, Verification
from orion_ane.generate.session import Session
from orion_ane.generate.watch import Watch
from orion_ane.host.sampling import log_softmax
from orion_ane.lora.adapter import Adapter, merged, scaled
from orion_ane.lora.files import load_adapter
from orion_ane.lora.inject import RANKS
from orion_ane.models.build import decoder_of, tokenizer_of
from orion_ane.models.registry import DEFAULT, find
from orion_ane.models.weights import Checkpoint, Report, Rounded, load_checkpoint
from orion_ane.models.weights.quantised import BLOCK
from orion_ane.nn.blocks import Precision
from orion_ane.runtime.backend import Backend, numerics_of
from orion_ane.runtime.disk_cache import DiskCache, default_cache
from orion_ane.runtime.portable import NumericsName
from orion_ane.runtime.registry import backend as make_backend
from orion_ane.runtime.registry import takes
from orion_ane.types import Array, DType

if TYPE_CHECKING:
    from orion_ane.text import Tokenizer

Stored: TypeAlias = Literal["auto", "fp32", "fp16", "int8", "q8_0"]

ROW_LANES = 32  # 64-byte rows of fp16: the fewest positions a device with rows computes (limit 4)
FP32 = Precision(DType.FP32, DType.FP32)


def load(
    path: str = DEFAULT,
    *,
    device: str = "auto",
    weights: Stored = "auto",
    target: str | Path | Target | None = None,
    numerics: NumericsName | None = None,
    threads: int | None = None,
    download: bool = False,
    adapters: int = 0,
) -> Model:
    """A model from a name, folder or file.

    Args:
        path: `gpt2`, `owner/name`, `smollm2-135m`, a Hugging Face folder, a GGUF or llama2.c file;
            by default the small model that the package carries.
        device: `cpu`, `emulator`, `ane`, or `auto`, which says in `Model.device` what it took: the
            emulator where there is a target, else `ane` where a probe has passed, else `cpu`.
        weights: how matrices are stored: `auto` keeps the file's own precision on `cpu` (bf16 as
            fp32, GGUF quants as fp16); the emulator computes in fp16 whatever the file has.
            `int8` makes codes of a byte with a scale a row, `q8_0` with one for each 32, which is
            what a GGUF file of Q8_0 holds already; `docs/numerics.md` says what that changes.
        target: the device that the emulator is, or whose limits are kept on `ane`; by default
            `strict`.
        numerics: how it computes: `exact` is the emulated target's own arithmetic, and the default
            there; `fp16` rounds after every op; `fp32` is the default of `cpu`.
        threads: how many threads a run uses; None is all.
        download: whether a name that is not on this machine may be fetched from the hub.
        adapters: the rank that programs have room for from the start; 0 is none, until the first
            adapter is loaded.

    Raises:
        ConfigError: no such model or option, or a config that cannot be honoured.
        CheckpointError: weights missing, left over, damaged or of the wrong shape.
        DataError: a tokenizer that cannot be read.
        BackendError: no such device here.
    """
    options: dict[str, Any] = {"threads": threads}
    if target is not None and not takes(device, "target"):
        raise ConfigError("target", f"not with device {device}", want="device emulator or ane")
    if target is not None:
        options["target"] = target
    if numerics is not None:
        options["numerics"] = numerics
    backend = make_backend(device, **options)  # first: to read weights in vain takes long
    precision_of(backend, weights, "fp32")
    # The place is kept for later, from wherever the process may go.
    checkpoint = load_checkpoint(find(path, download=download).absolute())
    return Model(
        checkpoint,
        backend=backend,
        weights=weights,
        threads=threads,
        disk=default_cache(),
        adapters=adapters,
    )


def precision_of(device: Backend, weights: Stored, stored: str) -> Precision:
    """The element types of a model's programs on a device, for weights stored so in the file."""
    if weights not in get_args(Stored):
        want = ", ".join(get_args(Stored))
        raise ConfigError("weights", "no such precision", got=weights, want=want)
    is_cpu, rounds = device.name == "cpu", numerics_of(device) == "fp16"
    if weights in ("int8", "q8_0"):
        if rounds:
            what = "numerics fp16 rounds weights to fp16, which codes are not"
            raise ConfigError("weights", what, got=weights, hint="take numerics fp32")
        compute = DType.FP32 if is_cpu else DType.FP16
        return Precision(compute, DType.INT8, None if weights == "int8" else BLOCK)
    if not is_cpu or rounds:
        if weights == "fp32":
            hint = "take numerics fp32" if is_cpu else "take device cpu"
            raise ConfigError(
                "weights", f"the {device.name} computes in fp16", got="fp32", hint=hint
            )
        return Precision(DType.FP16, DType.FP16)
    wide = weights == "fp32" or (weights == "auto" and stored in ("fp32", "bf16"))
    return FP32 if wide else Precision(DType.FP32, DType.FP16)


class Model:
    """A model on a device.

    Attributes:
        config: the model's shape.
        device: the backend that runs it, never `auto`.
        target: the name of the device whose limits its programs keep; None where it has none.
        numerics: how the device computes: `exact`, which is as itself, `fp16` or `fp32`.
        origin: where the weights came from.
        notes: what a user should know of the loading (weights that left fp16's range).
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        backend: Backend,
        weights: Stored = "auto",
        threads: int | None = None,
        disk: DiskCache | None = None,
        adapters: int = 0,
    ) -> None:
        """Put a checkpoint on a device; see `load`.  `disk` keeps things for other processes."""
        self.config, self.origin = checkpoint.config, checkpoint.origin
        _want_rank(adapters)
        self._tokenizer = tokenizer_of(checkpoint)
        self._backend, self._closed = backend, False
        self.device = backend.name
        self.target = None if backend.target is None else backend.target.name
        self.numerics = numerics_of(backend)
        precision = precision_of(backend, weights, checkpoint.stored)
        self._threads = threads
        lanes = 1 if backend.target is None else ROW_LANES
        decoder = decoder_of(self.config)

        def made() -> tuple[Packed, tuple[str, ...]]:
            if precision.matrices is DType.INT8:
                return quantised(decoder, checkpoint, precision), ()
            if precision.matrices != DType.FP16:
                return packed(decoder, checkpoint.tensors, precision), ()
            rounded = Rounded(checkpoint.tensors)
            return packed(decoder, rounded, precision), _notes(rounded.report)

        kept = None if disk is None else Kept(disk, repr((decoder, precision)))
        found, self.notes = (
            made()
            if kept is None
            else kept.weights(checkpoint, made, is_plain=precision.matrices is DType.INT8)
        )
        self._programs = Programs(
            decoder, found, self._backend, precision=precision, min_lanes=lanes, kept=kept
        )
        self._reference: Programs | None = None
        self._reference_wears: Chosen = None
        self._wardrobe = Wardrobe(
            decoder, precision, self._programs.slices, self._programs.head_file, rank=adapters
        )
        self._adapter: Chosen = None

    @property
    def adapters(self) -> tuple[str, ...]:
        """The adapters in memory, by name."""
        return self._wardrobe.names

    @property
    def adapter(self) -> Chosen:
        """What requests wear that name no adapter: a name, weights by name, or None."""
        return self._adapter

    def load_adapter(self, path: str | Path, *, name: str | None = None) -> str:
        """Take an adapter into memory; it is worn where `set_adapter` or a request says so.

        The first one gives the model's programs ports for adapters, and one of a larger rank than
        any before gives them larger ones; `notes` says so, and they compile when next used.

        Args:
            path: a folder of PEFT's or of mlx-lm's.
            name: what to call it; None is the folder's name.

        Returns:
            Its name.

        Raises:
            CheckpointError: it is damaged, or not of this model.
            ConfigError: it asks for what cannot be honoured, or the name is taken.
        """
        found = load_adapter(Path(path), self.config)
        called = Path(path).resolve().name if name is None else name
        return self.add_adapter(found, name=called)

    def add_adapter(self, adapter: Adapter, *, name: str) -> str:
        """As `load_adapter`, of one that is in memory.

        Raises:
            ConfigError: it is another model's, or the name is taken.
        """
        if adapter.model != self.config:
            raise ConfigError(f"adapter {name}", "made for a model of another shape")
        self.notes = (*self.notes, *self._wardrobe.add(name, adapter))
        return name

    def set_adapter(self, adapter: Chosen) -> None:
        """Choose what requests wear from now on: compiles and loads nothing.

        Args:
            adapter: a name, a weighted sum as `{"a": 0.5, "b": 1.0}`, or None for the model alone.

        Raises:
            ConfigError: no such adapter, or a weight that is no number.
        """
        self._wardrobe.wear(adapter)
        self._adapter = dict(adapter) if isinstance(adapter, Mapping) else adapter

    def unload_adapter(self, name: str) -> None:
        """Forget an adapter.

        Raises:
            ConfigError: there is none of that name, or it is worn.
        """
        worn = self._adapter
        if worn == name or (isinstance(worn, Mapping) and name in worn):
            raise ConfigError(f"adapter {name}", "is worn", hint="set another one, or None, first")
        self._wardrobe.remove(name)

    @property
    def eos_ids(self) -> frozenset[int]:
        """Tokens that end a text: the config's, and those the tokenizer ends a turn with."""
        ends = () if self._tokenizer is None else self._tokenizer.eos_ids
        return frozenset({*self.config.eos_ids, *ends})

    @property
    def tokenizer(self) -> Tokenizer:
        """Text to ids and back.

        Raises:
            DataError: the checkpoint has none: prompts must be ids.
        """
        if self._tokenizer is None:
            name = "llama2.c's tokenizer.bin" if self.origin.endswith(".bin") else "its files"
            hint = f"put {name} beside them, or give ids from Python"
            raise DataError(self.origin, "no tokenizer beside the weights", hint=hint)
        return self._tokenizer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        c = self.config
        shape = f"{c.layers} layers of {c.dim} channels, context {c.context}"
        return f"<Model {c.family}, {shape}, on {self.device}, from {self.origin}>"

    def close(self) -> None:
        """Unload every program; the model cannot run any more."""
        self._closed = True
        self._programs.close()
        if self._reference is not None:
            self._reference.close()

    @overload
    def generate(self, prompt: str | list[int], **options: Unpack[Request]) -> Generation: ...
    @overload
    def generate(
        self, prompt: list[str] | list[list[int]], **options: Unpack[Request]
    ) -> list[Generation]: ...

    def generate(
        self, prompt: str | list[int] | list[str] | list[list[int]], **options: Unpack[Request]
    ) -> Generation | list[Generation]:
        """The continuation of a prompt, or of each of several; `orion_ane.Options` lists options.

        Prompts of unequal length need no padding: each is a sequence of its own, with its own
        generator from the same seed, so it gives what it gives alone.

        Raises:
            ConfigError: an option means nothing, or a prompt does not fit the context.
            DataError: no ids, or an id outside the vocabulary.
            BackendError: the model is closed.
        """
        if isinstance(prompt, list | tuple) and prompt and not is_ids(prompt):
            Options.of(options)
            for part in prompt:  # all are refused before one runs
                self._ids(part)
            return [self._finish(part, options) for part in prompt]
        return self._finish(prompt, options)

    def stream(self, prompt: str | list[int], **options: Unpack[Request]) -> Iterator[Piece]:
        """The continuation piece by piece, each of whole characters; the last has the result.

        Args:
            prompt: text, which gets the model's BOS, or ids, which are taken as they are.
            **options: see `orion_ane.Options`.

        Raises:
            ConfigError: an option means nothing, or the prompt does not fit the context.
            DataError: no ids, or an id outside the vocabulary.
        """
        request = Options.of(options)
        chosen = self._chosen(request.adapter)
        self._wardrobe.wear(chosen)
        return self._stream(self._ids(prompt), replace(request, adapter=chosen))

    def logits(
        self, prompt: str | list[int], *, adapter: Chosen | Current = Current.ADAPTER
    ) -> Array:
        """The logits after each token, [S, V] in fp32: all at once, nothing generated.

        They are what the device computed, NaN and infinities included, which `generate` refuses.

        Raises:
            ConfigError: no such adapter, or the prompt does not fit the context.
            DataError: no ids, or an id outside the vocabulary.
            BackendError: the model is closed, or a logit is NaN or infinite with an adapter worn.
        """
        return self.session(adapter=adapter).append(self._ids(prompt), all_logits=True)

    def session(self, *, expect: int = 0, adapter: Chosen | Current = Current.ADAPTER) -> Session:
        """A new empty sequence on this model, to be fed ids by hand; see `Session.append`.

        It wears one adapter from its first token to its last, whatever is set meanwhile.
        """
        worn = self._wardrobe.wear(self._chosen(adapter))
        return Session(self._programs, expect=expect, worn=worn)

    def _chosen(self, asked: Chosen | Current) -> Chosen:
        return self._adapter if isinstance(asked, Current) else asked

    def loss(self, text: str | list[int]) -> float:
        """The mean negative log-probability of each token after the first, in nats.

        NaN where a row of logits has NaN or +inf; inf where a token cannot come.

        Raises:
            ConfigError: the text does not fit the context.
            DataError: fewer than two tokens, or an id outside the vocabulary.
            BackendError: the model is closed, or a logit is NaN or infinite with an adapter worn.
        """
        ids = self._ids(text)
        if len(ids) < 2:
            raise DataError("loss", "too short", got=f"{len(ids)} tokens", want="at least 2")
        logs = log_softmax(self.logits(ids)[:-1])
        return float(-logs[np.arange(len(ids) - 1), ids[1:]].mean())

    def _ids(self, prompt: object) -> list[int]:
        """A prompt as ids that can be run, refused before any compute where it cannot be (G01).

        Raises:
            BackendError: the model is closed.
            ConfigError: longer than the context.
            DataError: neither text nor ids, no ids, or an id outside the vocabulary.
        """
        if self._closed:
            raise BackendError("model", "closed", hint="load it again")
        if isinstance(prompt, str):
            ids = self.tokenizer.prompt_ids(prompt)
        elif is_ids(prompt):
            ids = [int(i) for i in prompt]
        else:
            got = f"{type(prompt).__name__} {prompt!r:.40}"
            raise DataError(
                "prompt", "neither text nor ids", got=got, want="a text or a list of ids"
            )
        self._check(ids)
        return ids

    def _check(self, ids: list[int]) -> None:
        if not ids:
            raise DataError("prompt", "no ids", hint="give at least the BOS token")
        if len(ids) > self.config.context:
            raise ConfigError(
                "prompt",
                "longer than the model's context",
                got=f"{len(ids)} tokens",
                want=f"at most {self.config.context}",
                hint="shorten it",
            )
        bad = next((i for i in ids if not 0 <= i < self.config.vocab), None)
        if bad is not None:
            raise DataError("prompt", "no such id", got=bad, want=f"0 to {self.config.vocab - 1}")

    def _finish(self, prompt: Any, options: Request) -> Generation:
        *_, last = self.stream(prompt, **options)
        assert last.result is not None  # the last piece carries it
        return last.result

    def _stream(self, prompt: list[int], request: Options) -> Iterator[Piece]:
        room = self.config.context - len(prompt) + 1  # the last new token is not run itself
        limit = min(request.max_tokens, room)
        watch = Watch() if request.verify else None
        chosen = self._chosen(request.adapter)
        worn = self._wardrobe.wear(chosen)
        session = Session(self._programs, expect=len(prompt) + limit, watch=watch, worn=worn)
        loops_s, started = seconds(), clock()
        session.prepare(len(prompt), 1)
        prepared = clock()
        checker = Checker(Session(self._reference_programs(chosen))) if request.verify else None
        reference_s = clock() - prepared
        compile_s = prepared - started + seconds() - loops_s
        pieces = run_loop(
            prompt,
            request,
            limit=limit,
            session=session,
            streamer=self._streamer(prompt),
            eos_ids=self.eos_ids,
            checker=checker,
            clock=clock if watch is None else watch.clock,
        )

        def verified() -> Verification | None:
            if checker is None or watch is None:
                return None
            return replace(
                checker.verification,
                seconds=reference_s + checker.seconds + watch.seconds,
                first_bad=watch.first_bad,
                nearest=watch.nearest,
            )

        for piece, spent in counted(pieces):
            compile_s += spent
            if isinstance(piece, Outcome):
                yield Piece("", result=self._result(prompt, request, piece, verified(), compile_s))
            else:
                yield piece

    def _streamer(self, prompt: list[int]) -> Streamer:
        """Ids to text after a prompt; without a tokenizer, ids are all there is."""
        return NoText() if self._tokenizer is None else self._tokenizer.stream(prefix_ids=prompt)

    def _result(
        self,
        prompt: list[int],
        request: Options,
        outcome: Outcome,
        verification: Verification | None,
        compile_s: float,
    ) -> Generation:
        return Generation(
            text=outcome.text,
            ids=tuple(outcome.ids),
            prompt_ids=tuple(prompt),
            finish_reason=outcome.reason,
            device=self.device,
            target=self.target,
            numerics=self.numerics,
            seed=request.seed,
            timings=outcome.timings,
            compile_s=compile_s,
            compiles=self._programs.compiled,
            programs=len(self._programs),
            evaluations_per_token=outcome.evaluations_per_token,
            weight_bytes_per_token=outcome.weight_bytes_per_token,
            verification=verification,
            adapter=self._chosen(request.adapter),
        )

    def _reference_programs(self, chosen: Chosen) -> Programs:
        """The same model in fp32 on `cpu`, read again, with weights as the file has them.

        An adapter is in the weights there, so that what its ports do is compared too.
        """
        if self._reference is None or self._reference_wears != chosen:
            config, tensors = self.config, load_checkpoint(self.origin).tensors
            sums = {chosen: 1.0} if isinstance(chosen, str) else chosen or {}
            for name, weight in sums.items():
                adapter = replace(self._wardrobe.adapter(name), model=config)
                config, tensors = merged(scaled(adapter, weight), tensors)
            backend = make_backend("cpu", threads=self._threads)
            if self._reference is not None:
                self._reference.close()
            self._reference = Programs(decoder_of(config), tensors, backend, precision=FP32)
            self._reference_wears = chosen
        return self._reference


def is_ids(prompt: object) -> TypeGuard[Iterable[int]]:
    """Whether this is a sequence of ids; numpy's whole numbers count, bytes do not."""
    if isinstance(prompt, np.ndarray):
        return prompt.ndim == 1 and prompt.dtype.kind in "iu"
    if not isinstance(prompt, list | tuple | range):
        return False
    return all(isinstance(i, int | np.integer) and not isinstance(i, bool) for i in prompt)


def _want_rank(adapters: int) -> None:
    """Refuse a rank that no program has room for.

    Raises:
        ConfigError: it is none.
    """
    is_whole = isinstance(adapters, int) and not isinstance(adapters, bool)
    if not (is_whole and 0 <= adapters <= RANKS[-1]):
        want = f"0 to {RANKS[-1]}, whole"
        raise ConfigError("adapters", "no such rank", got=repr(adapters), want=want)


def _notes(report: Report) -> tuple[str, ...]:
    """What fp16 did to weights: every tensor that is damaged by name, and what became 0 in sum."""
    damaged = [str(loss) for loss in report.losses if loss.overflowed or loss.non_finite]
    lost = sum(loss.underflowed for loss in report.losses)
    if lost:
        tensors = sum(loss.underflowed > 0 for loss in report.losses)
        damaged.append(f"{lost} weights in {tensors} tensors are too small for fp16 and become 0")
    return tuple(damaged)
