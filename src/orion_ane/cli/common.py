"""Options that several commands share, and how they speak to people."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, TypeVar

import click

from orion_ane.engine.threads import processors
from orion_ane.errors import ConfigError, DataError, LimitError
from orion_ane.generate.model import Model
from orion_ane.runtime.backend import described
from orion_ane.runtime.registry import takes

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass
class Asked:
    """What a command line asks for that errors have to know, told as it is read.

    Attributes:
        json: results as JSON, so an error too.
        context: the command that was asked for, and its options; None until one is known.
        piped: the argument that came by standard input; None where none did.
    """

    json: bool = False
    context: click.Context | None = None
    piped: str | None = None

    def spelled(self, name: str) -> str:
        """An argument's name as the command's option, unless there is none or a pipe gave it."""
        word = f"--{name.replace('_', '-')}"
        options = () if self.context is None else self.context.command.params
        is_option = any(word in one.opts for one in options)
        return word if is_option and name != self.piped else name

    def in_words(self, text: str) -> str:
        """A message whose arguments of Python's, each `like_this`, are the command's options."""

        def spelled(found: re.Match[str]) -> str:
            name = self.spelled(found[1])
            return found[0] if name == found[1] else name

        return re.sub(r"`([a-z_]+)`", spelled, text)


def model_options(command: Command) -> Command:
    """Add the options that choose a model, its weights and a device."""
    weights = click.option(
        "--weights",
        type=click.Choice(["auto", "fp32", "fp16", "int8", "q8_0"]),
        default="auto",
        show_default=True,
        help="How matrices are stored: auto keeps the file's precision (GGUF quants as fp16); int8 "
        "(a scale a row) and q8_0 (a scale for 32) read half of fp16's bytes and move logits of "
        "SmolLM2 by up to 1.9 and 0.93, on cpu.",
    )
    return device_options(command, weights)


def threads_option() -> Callable[[Command], Command]:
    """The option of how many threads a run has; more than there are processors is said."""

    def told(_: click.Context, __: click.Parameter, count: int | None) -> int | None:
        if count is not None and count > (here := processors()):
            have = f"{counted(here, 'processor')}: more threads than that hinder each other"
            say(f"note: {count} threads, as --threads asks, on {have}")
        return count

    return click.option(
        "--threads",
        type=click.IntRange(min=1),
        callback=told,
        help="Threads of a run.  [default: all]",
    )


def device_options(command: Command, *others: Callable[[Command], Command]) -> Command:
    """Add the options that choose a model and a device, others between them."""
    options: list[Callable[[Command], Command]] = [
        click.option(
            "--model",
            metavar="NAME|FOLDER|FILE",
            help="What to load: a Hugging Face folder, a GGUF or llama2.c file, or a name, as "
            "orion-stories, smollm2-135m, gpt2, stories15m or owner/name in the hub's cache.",
        ),
        click.option(
            "--device",
            type=click.Choice(["auto", "ane", "emulator", "cpu"]),
            default="auto",
            show_default=True,
            help="Where to run; auto says what it chose: the emulator where --target is given, ane "
            "where a probe has passed, else cpu.",
        ),
        *others,
        threads_option(),
        click.option(
            "--json",
            "as_json",
            is_flag=True,
            help="JSON on stdout: a document, or lines where it streams.",
        ),
        click.option("--debug", is_flag=True, expose_value=False, help="Show an error's trace."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def arithmetic_options(command: Command) -> Command:
    """Add the options that say which device is emulated, and how it computes."""
    target = click.option(
        "--target",
        metavar="NAME|FILE",
        help="The device that the emulator is: paper, strict, m1 to m5, or a target file.  "
        "[default: strict]",
    )
    numerics = click.option(
        "--numerics",
        type=click.Choice(["exact", "fp16", "fp32", "bf16"]),
        help="How the device computes: as the target itself, rounding after every op, in fp32, "
        "or on cpu with wide products in bf16, which needs torch.  "
        "[default: exact on the emulator, fp32 on cpu, which has no exact]",
    )
    return target(numerics(command))


def want_target(target: str | None, device: str) -> None:
    """Refuse a target that the device has no use for, before anything is read.

    Raises:
        ConfigError: it has none.
    """
    if target is not None and not takes(device, "target"):
        want = "--device emulator or ane"
        raise ConfigError("--target", f"not with device {device}", want=want)


def told_auto(model: Model, target: str | None) -> str:
    """The device that was taken where none was named, and why where a target was."""
    if target is None:
        return f"{model.device} (auto)"
    return f"{described(model.device, model.target, model.numerics)}, which --target asks for"


@contextmanager
def codes_told(weights: str) -> Iterator[None]:
    """Where a target has no weights of codes, say so in one message: each product breaks it alike.

    Raises:
        ConfigError: it has none; the message names the rules.
    """
    try:
        yield
    except LimitError as error:
        if weights not in ("int8", "q8_0"):
            raise
        rules = ", ".join(sorted({found.code for found in error.diagnostics if found.code}))
        way = "--device cpu" + (", or --target m1 to m5" if weights == "q8_0" else "")
        hint = f"take {way}, or other weights; `orion rules` explains {rules}"
        what = f"the programs of {weights} break rules of {error.where}"
        raise ConfigError("--weights", what, got=rules, hint=hint) from error


def counted(count: int, noun: str) -> str:
    """A number of things, as `1 program` or `2 programs`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def leave_json() -> None:
    """Have an error stay out of standard output: another process speaks there."""
    context = click.get_current_context(silent=True)
    if context is not None and isinstance(context.obj, Asked):
        context.obj.json = False


def say(message: str) -> None:
    """A line for people, on stderr."""
    click.echo(message, err=True)


def show(text: str, *, end: str = "\n") -> None:
    """Text on stdout, at once; the command ends quietly where the reader left, as `| head` does."""
    if sys.stdout is None:
        raise OSError("standard output is closed")
    try:
        click.echo(text, nl=False)
        click.echo(end, nl=False)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # also for the last flush
        raise click.exceptions.Exit(0) from None
    except OSError as error:
        raise OSError(error.errno, error.strerror, "standard output") from error


@contextmanager
def graceful_interrupt(
    *, patient: bool = False, heeds_term: bool = False
) -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets, to keep work in hand; the second ends at once.

    Args:
        patient: later ones change nothing: a launcher of several processes passes Ctrl-C on to
            each of them, so that it comes twice.
        heeds_term: SIGTERM asks likewise, however often it comes: `timeout` sends it to a command
            and then to its group, and whoever cannot wait has SIGKILL.
    """
    event = threading.Event()

    def ask_to_stop(name: int, _frame: FrameType | None) -> None:
        event.set()
        if name == signal.SIGINT and not patient:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    heard = (signal.SIGINT, signal.SIGTERM) if heeds_term else (signal.SIGINT,)
    before = {name: signal.signal(name, ask_to_stop) for name in heard}
    try:
        yield event
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def read_stdin(what: str) -> str:
    """All of standard input.

    Raises:
        UsageError: it has nothing, or is a terminal, where nobody has typed anything yet.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise click.UsageError(f"no {what}: give --{what} TEXT, or pipe it in")
    data = sys.stdin.buffer.read()
    context = click.get_current_context(silent=True)
    if context is not None and isinstance(context.obj, Asked):
        context.obj.piped = what
    if not data:
        way = f'give --{what} TEXT, or --{what} "" to start from the model\'s first token'
        raise click.UsageError(f"the {what} is empty: standard input has nothing; {way}")
    return as_unicode(data)


def as_unicode(data: bytes) -> str:
    """Text of the command line or a pipe, which is UTF-8 whatever the locale says.

    Raises:
        DataError: it is not.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        got = f"byte {data[error.start]:#04x} at {error.start}"
        raise DataError("prompt", "not UTF-8", got=got) from error
