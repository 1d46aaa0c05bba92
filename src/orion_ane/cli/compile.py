"""orion compile: every program of a model, or one MIL text, as a folder of compiled programs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import click

from orion_ane.ane.targets import Target
from orion_ane.ane.targets import target as find_target
from orion_ane.artefacts.folder import write_folder
from orion_ane.artefacts.manifest import Manifest
from orion_ane.artefacts.source import read_program, told_of
from orion_ane.artefacts.written import want_apart
from orion_ane.cli.common import say, show
from orion_ane.compiler import compile as compile_graph
from orion_ane.errors import ConfigError
from orion_ane.generate.kernels import Bucket, Kernels
from orion_ane.generate.model import ROW_LANES
from orion_ane.generate.packing import packed
from orion_ane.mil import Program
from orion_ane.mil.parse import parse_graph
from orion_ane.mil.stored import stored
from orion_ane.models.build import decoder_of
from orion_ane.models.registry import find
from orion_ane.models.weights import load_checkpoint, to_fp16
from orion_ane.nn.blocks import Precision
from orion_ane.ops import Weight
from orion_ane.types import DType

EXAMPLE = """Examples:

  orion compile --model smollm2-135m --bucket 32x512 --out compiled/

  orion compile model.mil --target m1 --out compiled/
"""
BUCKET = re.compile(r"([0-9]{1,6})x([0-9]{1,9})")


@click.command("compile", epilog=EXAMPLE)
@click.argument(
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=False,
    metavar="[FILE.mil]",
)
@click.option("--model", metavar="NAME|FOLDER|FILE", help="A model, in place of FILE.mil.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The folder to make.")
@click.option(
    "--target",
    "name",
    metavar="NAME|FILE",
    default="strict",
    show_default=True,
    help="Whose limits the programs keep: paper, strict, m1 to m5, or a target file.",
)
@click.option(
    "--layers-per-program",
    type=click.IntRange(min=1),
    help="Layers in one program.  [default: as many as a weight file holds]",
)
@click.option(
    "--bucket",
    "buckets",
    multiple=True,
    metavar="LANESxCACHED",
    help="Positions of a run and of its cache; repeatable.  [default: all that a model may need]",
)
@click.option("--download", is_flag=True, help="Fetch a model that is not on this machine.")
@click.option("--replace", is_flag=True, help="Put the folder in an older one's place.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show an error's trace.")
def compile_(
    *,
    file: Path | None,
    model: str | None,
    out: Path,
    name: str,
    layers_per_program: int | None,
    buckets: tuple[str, ...],
    download: bool,
    replace: bool,
    as_json: bool,
) -> int:
    """Compile a model or a MIL text.

    OUT becomes a folder of the model's programs, or of the one in FILE.mil.  Each program
    becomes OUT/NAME/model.mil with its weights beside it, and OUT/manifest.json lists them.  A
    weight file that programs share lies on the disk once, under several names.
    """
    if (file is None) == (model is None):
        raise ConfigError("compile", "what to compile", want="FILE.mil or --model, one of them")
    if file is not None and (layers_per_program or buckets or download):
        raise ConfigError(
            "compile", "--layers-per-program, --bucket and --download go with --model"
        )
    target = find_target(name)
    if file is not None:
        want_apart("--out", out, (file,))
        programs = iter([("main", compiled_text(file, target))])
    else:
        assert model is not None
        found_at = find(model, download=download)
        want_apart("--out", out, (found_at,))
        kernels = _kernels(found_at, target, layers_per_program)
        programs = kernels.named(_wanted(buckets, kernels))
    manifest = write_folder(out, _told(programs), target=target.name, replace=replace)
    _show(manifest, out, model, as_json=as_json)
    return 0


def compiled_text(file: Path, target: Target) -> Program:
    """The program of a MIL text, made to fit a target; its blob files lie beside it.

    Raises:
        MilError: the text cannot be read, or a blob file is missing or damaged.
        LimitError: it breaks limits that no legaliser can keep.
    """
    program = read_program(file)
    with told_of(file):
        graph = parse_graph(program.text)
        leaves = (node.op for node in graph.nodes if isinstance(node.op, Weight))
        arrays = {leaf.label: stored(leaf, program.weights) for leaf in leaves}
    return compile_graph(graph, arrays, target=target)


def _kernels(path: Path, target: Target, layers_per_program: int | None) -> Kernels:
    checkpoint = load_checkpoint(path)
    precision = Precision(DType.FP16, DType.FP16)
    tensors, report = to_fp16(checkpoint.tensors)
    for line in report.lines():
        say(f"note: {line}")
    decoder = decoder_of(checkpoint.config)
    weights = packed(decoder, tensors, precision, layers_per_program=layers_per_program)
    return Kernels(decoder, weights, precision=precision, target=target, min_lanes=ROW_LANES)


def _wanted(words: tuple[str, ...], kernels: Kernels) -> list[Bucket]:
    """The buckets that were asked for, or all.

    Raises:
        ConfigError: one is not of the form, or no run would ask for it.
    """
    known = list(kernels.buckets())
    found = []
    for word in dict.fromkeys(words):
        sizes = BUCKET.fullmatch(word)
        bucket = Bucket(*map(int, sizes.groups())) if sizes else None
        if bucket is None or bucket not in known:
            want = ", ".join(map(str, known))
            raise ConfigError("--bucket", "no such bucket of this model", got=word, want=want)
        found.append(bucket)
    return found or known


def _told(programs: Iterator[tuple[str, Program]]) -> Iterator[tuple[str, Program]]:
    for name, program in programs:
        say(f"{name}: {len(program.text)} characters")
        yield name, program


def _show(manifest: Manifest, out: Path, model: str | None, *, as_json: bool) -> None:
    entries = [entry.document() for entry in manifest.programs]
    if as_json:
        document: dict[str, object] = {"model": model, "target": manifest.target, "out": str(out)}
        document["programs"] = entries
        show(json.dumps(document, indent=2, ensure_ascii=False))
        return
    for entry in manifest.programs:
        show(f"{entry.name}  {entry.ops} ops  {entry.weight_bytes / 1e6:.1f} MB of weights")
