"""The command `orion`: maps our errors to one message and an exit code.

0 done, 1 ran and found something wrong, 2 bad use or bad input, 130 interrupted.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

import click

from orion_ane.cli.check import check
from orion_ane.cli.generate import generate
from orion_ane.cli.rules import rules
from orion_ane.errors import OrionError


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Each command explains itself: orion generate --help",
)
@click.version_option(package_name="orion-ane", message="%(package)s %(version)s")
def orion() -> None:
    """Language models on Apple's Neural Engine, and the very same programs anywhere."""


orion.add_command(generate)
orion.add_command(rules)
orion.add_command(check)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code.

    Args:
        arguments: the words after `orion`; None takes the process's own.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        code = orion.main(args=words, prog_name="orion", standalone_mode=False)
    except click.ClickException as error:
        return refuse(f"{error.format_message()}\n  hint: orion --help")
    except OrionError as error:
        if "--debug" in words:
            traceback.print_exc()
        return refuse(str(error))
    except (KeyboardInterrupt, click.Abort):
        return 130
    return code if isinstance(code, int) else 0


def refuse(message: str) -> int:
    """Say one message on stderr; the exit code of bad use."""
    sys.stderr.write(f"orion: {message}\n")
    return 2
