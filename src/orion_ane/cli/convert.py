"""orion convert: between formats of models, and between Core ML's `.mlpackage` and programs."""

from __future__ import annotations

import json
from pathlib import Path

import click

from orion_ane.artefacts.folder import write_folder
from orion_ane.artefacts.source import read_program, sources
from orion_ane.cli.common import counted, say, show
from orion_ane.errors import ConfigError
from orion_ane.interop.coreml import read_package, write_package
from orion_ane.mil.program import Program
from orion_ane.models.weights import load_checkpoint
from orion_ane.models.weights.export import export

SUFFIX = ".mlpackage"
EXAMPLE = """Examples:

  orion convert model.mlpackage programs/

  orion compile programs/main/model.mil --target m1 --out compiled/

  orion convert compiled/ model.mlpackage --program main

  orion convert stories15M.bin stories15m/
"""


@click.command(epilog=EXAMPLE)
@click.argument("source", type=click.Path(exists=True, path_type=Path), metavar="SOURCE")
@click.argument("out", type=click.Path(path_type=Path), metavar="OUT")
@click.option("--program", "name", metavar="NAME", help="Which program, where there are several.")
@click.option("--replace", is_flag=True, help="Put the result in another folder's place.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show an error's trace.")
def convert(*, source: Path, out: Path, name: str | None, replace: bool, as_json: bool) -> int:
    """Convert a model to another format, or from or to an .mlpackage.

    SOURCE is a model (a Hugging Face folder, a GGUF or a llama2.c file), and OUT a folder for
    Hugging Face's format, or *.bin for llama2.c's; the numbers are written in fp32.

    Or SOURCE is an .mlpackage, whose functions become programs in the folder OUT as they are, for
    no device: compile them for one next.  Or it is a MIL text, or a compiled folder, and OUT an
    .mlpackage.  Needs the extra `coreml`.
    """
    if SUFFIX not in (source.suffix, out.suffix):
        return _model(source, out, name, replace=replace, as_json=as_json)
    if source.suffix == out.suffix:
        got = f"{source.name} to {out.name}"
        raise ConfigError("convert", "nothing to do", got=got, want=f"one of them *{SUFFIX}")
    if source.suffix == SUFFIX:
        package = read_package(source)
        wanted = [name] if name is not None else list(package.module.functions)
        programs = [(function, package.program(function)) for function in wanted]
        write_folder(out, programs, replace=replace)
        found = [function for function, _ in programs]
    else:
        chosen, program = _program(source, name)
        write_package(program, out, replace=replace)
        found = [chosen]
    if as_json:
        show(json.dumps({"out": str(out), "programs": found}, indent=2, ensure_ascii=False))
    say(counted(len(found), "program"))
    return 0


def _model(source: Path, out: Path, name: str | None, *, replace: bool, as_json: bool) -> int:
    """A model in another format."""
    for option, value in (("--program", name), ("--replace", replace)):
        if value:
            raise ConfigError(option, "not with a model", got=source.name, want=f"an *{SUFFIX}")
    model = load_checkpoint(source)
    notes = export(out, model.config, model.tensors, model.tokenizer)
    for note in notes:
        say(f"note: {note}")
    if as_json:
        found = {"out": str(out), "family": model.config.family, "tensors": len(model.tensors)}
        show(json.dumps({**found, "notes": notes}, indent=2, ensure_ascii=False))
    say(counted(len(model.tensors), "tensor"))
    return 0


def _program(source: Path, name: str | None) -> tuple[str, Program]:
    """The program that was asked for, or the only one, and its name.

    Raises:
        ConfigError: there is none of this name, or there are several.
    """
    if source.is_file():
        found: dict[str, Program] = {source.stem: read_program(source)}
    else:
        programs = ((path.parent.name, program) for path, program in sources(source))
        found = {label: p for label, p in programs if isinstance(p, Program)}
    if name is not None and name not in found:
        raise ConfigError("--program", "no such program", got=name, want=", ".join(found))
    if name is None and len(found) > 1:
        raise ConfigError("--program", "there are several", want=", ".join(found))
    name = name if name is not None else next(iter(found))
    return name, found[name]
