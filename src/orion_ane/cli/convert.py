"""orion convert: between formats of models, and between Core ML's `.mlpackage` and programs."""

from __future__ import annotations

import json
from pathlib import Path

import click

from orion_ane.artefacts.folder import write_folder
from orion_ane.artefacts.source import read_program, sources
from orion_ane.artefacts.written import want_apart
from orion_ane.cli.common import counted, say, show
from orion_ane.errors import ConfigError
from orion_ane.interop.coreml import read_package, write_package
from orion_ane.mil.program import Program
from orion_ane.models.registry import find
from orion_ane.models.weights import load_checkpoint
from orion_ane.models.weights.export import export

SUFFIX = ".mlpackage"
EXAMPLE = """Examples:

  orion convert model.mlpackage programs/

  orion compile programs/main/model.mil --target m1 --out compiled/

  orion convert compiled/ model.mlpackage --program main

  orion convert smollm2-135m smollm2/
"""


@click.command(epilog=EXAMPLE)
@click.argument("source", metavar="SOURCE")
@click.argument("out", type=click.Path(path_type=Path), metavar="OUT")
@click.option("--program", "name", metavar="NAME", help="Which program, where there are several.")
@click.option("--replace", is_flag=True, help="Put the result in the place of an older one.")
@click.option("--download", is_flag=True, help="Fetch a model that is not on this machine.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show an error's trace.")
def convert(
    *, source: str, out: Path, name: str | None, replace: bool, download: bool, as_json: bool
) -> int:
    """Convert a model to another format, or from or to an .mlpackage.

    SOURCE is a model (a Hugging Face folder, a GGUF or a llama2.c file, or a name, as --model of
    other commands takes it), and OUT a folder for Hugging Face's format, or *.bin for llama2.c's;
    the numbers are written in fp32.

    Or SOURCE is an .mlpackage, whose functions become programs in the folder OUT as they are, for
    no device: compile them for one next.  Or it is a MIL text, or a compiled folder, and OUT an
    .mlpackage.  Needs the extra `coreml`.
    """
    path = Path(source)
    if SUFFIX not in (path.suffix, out.suffix):
        if name is not None:
            raise ConfigError("--program", "not with a model", got=path.name, want=f"an *{SUFFIX}")
        found_at = find(source, download=download)
        want_apart("OUT", out, (found_at,))
        return _model(source, found_at, out, replace=replace, as_json=as_json)
    if download:
        raise ConfigError("--download", f"not with an *{SUFFIX}", want="a model by its name")
    if not path.exists():
        want = f"an *{SUFFIX}, a MIL text or a compiled folder; orion compile makes one of a model"
        raise ConfigError(source, "no such file or folder", want=want)
    if path.suffix == out.suffix:
        got = f"{path.name} to {out.name}"
        raise ConfigError("convert", "nothing to do", got=got, want=f"one of them *{SUFFIX}")
    want_apart("OUT", out, (path,))
    if path.suffix == SUFFIX:
        package = read_package(path)
        wanted = [name] if name is not None else list(package.module.functions)
        programs = [(function, package.program(function)) for function in wanted]
        write_folder(out, programs, replace=replace)
        found = [function for function, _ in programs]
    else:
        chosen, program = _program(path, name)
        write_package(program, out, replace=replace)
        found = [chosen]
    if as_json:
        show(json.dumps({"out": str(out), "programs": found}, indent=2, ensure_ascii=False))
    say(f"{counted(len(found), 'program')} written to {out}")
    return 0


def _model(source: str, path: Path, out: Path, *, replace: bool, as_json: bool) -> int:
    """A model in another format."""
    model = load_checkpoint(path)
    notes = export(out, model.config, model.tensors, model.tokenizer, replace=replace)
    for note in notes:
        say(f"note: {note}")
    if as_json:
        found = {
            "model": source,
            "out": str(out),
            "family": model.config.family,
            "tensors": len(model.tensors),
        }
        show(json.dumps({**found, "notes": notes}, indent=2, ensure_ascii=False))
    say(f"{counted(len(model.tensors), 'tensor')} written to {out}")
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
