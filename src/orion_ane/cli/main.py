"""The command `orion`: maps our errors to one message and an exit code.

0 done, 1 ran and found something wrong, 2 bad use or bad input, 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


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
    from orion_ane.errors import OrionError

    try:
        code = orion.main(args=words, prog_name="orion", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        sys.stderr.write(f"{error.format_message()}\n")
        return 2
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "orion"
        return _refuse(f"{error.format_message()}\n  hint: {command} --help")
    except click.ClickException as error:
        return _refuse(error.format_message())
    except click.Abort:
        return 130
    except (OrionError, OSError) as error:
        if "--debug" in words:
            traceback.print_exc()
        return _refuse(str(error) if isinstance(error, OrionError) else _worded(error))
    return code if isinstance(code, int) else 0


def _worded(error: OSError) -> str:
    """What the system would not do, and with which file, where it is one."""
    why = error.strerror or str(error)
    return why if error.filename is None else f"{error.filename}: cannot be used: got {why}"


def _refuse(message: str) -> int:
    """Say one message on stderr; the exit code of bad use."""
    sys.stderr.write(f"orion: {message}\n")
    return 2
