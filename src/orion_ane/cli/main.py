"""The command `orion`: maps our errors to one message and an exit code.

0 done, 1 ran and found something wrong, 2 bad use or bad input, 130 interrupted.  The message goes
to standard error; with --json standard output gets a document of it too, in place of the result.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import click

    from orion_ane.cli.common import Asked
    from orion_ane.errors import OrionError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code.

    Args:
        arguments: the words after `orion`; None takes the process's own.
    """
    try:
        return _run(sys.argv[1:] if arguments is None else list(arguments))
    except KeyboardInterrupt:
        return 130


def _run(words: list[str]) -> int:
    # Imported here, so that Ctrl-C while they load ends as quietly as later.
    import traceback

    import click

    from orion_ane.cli.commands import orion
    from orion_ane.cli.common import Asked
    from orion_ane.errors import OrionError

    asked = Asked()
    try:
        code = orion.main(args=words, prog_name="orion", standalone_mode=False, obj=asked)
    except click.exceptions.NoArgsIsHelpError as error:
        sys.stderr.write(f"{error.format_message()}\n")
        return 2
    except click.ClickException as error:
        # Words that could not be read say no better what was asked for.
        return _refuse(*_of_use(error), as_json=asked.json or "--json" in words)
    except click.Abort:
        return 130
    except OSError as error:
        if "--debug" in words:
            traceback.print_exc()
        is_lost = sys.stdout is None or error.filename == "standard output"
        return _refuse(*_of_system(error), as_json=asked.json and not is_lost)
    except OrionError as error:
        if "--debug" in words:
            traceback.print_exc()
        return _refuse(*_of_ours(error, asked), as_json=asked.json)
    return code if isinstance(code, int) else 0


def _of_ours(error: OrionError, asked: Asked) -> tuple[str, dict[str, Any]]:
    """One of our errors: the message, and as a document has it.

    What Python calls by an argument's name is the option that was typed: `--max-tokens`.  Hints
    have such names between backticks.
    """
    from dataclasses import asdict

    from orion_ane.errors import ConfigError, DataError, LimitError

    is_of_use = isinstance(error, ConfigError | DataError)
    where = asked.spelled(error.where) if is_of_use else error.where
    broken = error.diagnostics if isinstance(error, LimitError) else ()
    got = None if error.got is None else str(error.got)
    want, hint = (None if v is None else asked.in_words(str(v)) for v in (error.want, error.hint))
    return where + asked.in_words(str(error).removeprefix(error.where)), {
        "kind": type(error).__name__,
        "where": where,
        "what": error.what,
        "got": got,
        "want": want,
        "hint": hint,
    } | ({"violations": [asdict(one) for one in broken]} if broken else {})


def _of_use(error: click.ClickException) -> tuple[str, dict[str, Any]]:
    """Words that mean nothing: the message, and as a document has it."""
    import click

    what, where, hint = error.format_message(), "orion", None
    if isinstance(error, click.UsageError):
        where = error.ctx.command_path if error.ctx else where
        hint = f"{where} --help"
        options = error.ctx.command.params if error.ctx else ()
        if "extra argument" in what and any("--prompt" in one.opts for one in options):
            hint = f'a prompt is an option: {where} --prompt "TEXT"'
    message = what if hint is None else f"{what}\n  hint: {hint}"
    return message, {
        "kind": "UsageError", "where": where, "what": what, "got": None, "want": None, "hint": hint,
    }  # fmt: skip


def _of_system(error: OSError) -> tuple[str, dict[str, Any]]:
    """What the system would not do, and with which file, where it is one."""
    why, where = error.strerror or str(error), error.filename
    message = why if where is None else f"{where}: cannot be used: got {why}"
    return message, {
        "kind": "OSError", "where": None if where is None else str(where),
        "what": "cannot be used", "got": why, "want": None, "hint": None,
    }  # fmt: skip


def _refuse(message: str, document: dict[str, Any], *, as_json: bool) -> int:
    """Say one message on stderr, and on stdout as JSON if asked for; the exit code of bad use."""
    sys.stderr.write(f"orion: {message}\n")
    if as_json:
        import json

        from click.exceptions import Exit

        from orion_ane.cli.common import show

        try:
            show(json.dumps({"error": document}))
        except (Exit, OSError):  # the reader is gone, or has no room: the message was said
            return 2
    return 2
