"""The commands under `orion`."""

from __future__ import annotations

import click

from orion_ane.cli.bench import bench
from orion_ane.cli.check import check
from orion_ane.cli.common import Asked
from orion_ane.cli.compile import compile_
from orion_ane.cli.config import add_config
from orion_ane.cli.convert import convert
from orion_ane.cli.diff import diff
from orion_ane.cli.doctor import doctor
from orion_ane.cli.generate import generate
from orion_ane.cli.lora import lora
from orion_ane.cli.opt import opt
from orion_ane.cli.probe import probe
from orion_ane.cli.rules import rules
from orion_ane.cli.run import run
from orion_ane.cli.train import train


def _tell(command: click.Command) -> None:
    """Have a command, or all below it, say that it runs, and whether JSON was asked for."""

    def note(context: click.Context, _: click.Parameter, value: bool) -> bool:
        if isinstance(context.obj, Asked):
            context.obj.json, context.obj.context = value, context
        return value

    below = command.commands.values() if isinstance(command, click.Group) else ()
    for one in below:
        _tell(one)
    for parameter in command.params:
        if parameter.name == "as_json":
            parameter.is_eager, parameter.callback = True, note


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Each command explains itself: orion generate --help.  An error has exit status 2, and "
    "with --json it is a document on standard output too.",
)
@click.version_option(package_name="orion-ane", message="%(package)s %(version)s")
def orion() -> None:
    """Language models on Apple's Neural Engine, and the very same programs anywhere."""


for command in (
    generate,
    train,
    lora,
    rules,
    check,
    opt,
    diff,
    compile_,
    run,
    convert,
    bench,
    doctor,
    probe,
):
    add_config(command)
    _tell(command)
    orion.add_command(command)
