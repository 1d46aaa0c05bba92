"""orion run: one compiled program on a device, arrays in and out as .npy files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np

from orion_ane.ane.targets import target as find_target
from orion_ane.artefacts.atomic import folder_beside, naming, want_room
from orion_ane.artefacts.folder import read_folder
from orion_ane.artefacts.written import mark, own_names, want_apart
from orion_ane.cli.common import say, show, threads_option, want_target
from orion_ane.errors import ConfigError, DataError
from orion_ane.mil.program import Program
from orion_ane.runtime.backend import numerics_of
from orion_ane.runtime.registry import backend as make_backend
from orion_ane.runtime.registry import meant, takes
from orion_ane.types import Array

EXAMPLE = """Example:

  orion run compiled/ --program main --input x=x.npy --out results/
"""
ZIP = b"PK"
"""How an .npz begins, which numpy opens too."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")


@click.command(epilog=EXAMPLE)
@click.argument(
    "folder", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="FOLDER"
)
@click.option("--program", "name", metavar="NAME", help="Which program, where there are several.")
@click.option(
    "--input", "inputs", multiple=True, metavar="NAME=FILE.npy", help="One a port; repeatable."
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The folder to make.")
@click.option(
    "--device",
    type=click.Choice(["auto", "ane", "emulator", "cpu"]),
    default="auto",
    show_default=True,
    help="Where to run; auto says what it chose: the emulator where --target is given, ane "
    "where a probe has passed, else cpu.",
)
@click.option(
    "--target",
    metavar="NAME|FILE",
    help="The device that the emulator is.  [default: the one compiled for]",
)
@click.option(
    "--numerics",
    type=click.Choice(["exact", "fp16", "fp32", "bf16"]),
    help="How the device computes.  [default: exact, the target's own; on cpu fp32]",
)
@threads_option()
@click.option("--replace", is_flag=True, help="Put the results in the place of older ones.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show an error's trace.")
def run(
    *,
    folder: Path,
    name: str | None,
    inputs: tuple[str, ...],
    out: Path,
    device: str,
    target: str | None,
    numerics: str | None,
    threads: int | None,
    replace: bool,
    as_json: bool,
) -> int:
    """Run one program of a compiled FOLDER.

    Inputs are fed by the names that the program was built with, in the types that they had then;
    each output becomes OUT/NAME.npy.
    """
    programs = read_folder(folder)
    chosen = _chosen(folder, list(programs), name)
    program = programs[chosen]
    options: dict[str, Any] = {"threads": threads}
    if numerics is not None:
        options["numerics"] = numerics
    want_target(target, device)
    device_meant = meant(device, target)
    if device_meant != "auto" and takes(device_meant, "target"):
        wanted = target or programs.manifest.target
        options["target"] = None if wanted is None else find_target(wanted)
    files = _files(program, inputs)
    want_apart("--out", out, (folder, *files.values()))
    want_room(out, _is_results, replace=replace)
    fed = {port: read_array(file) for port, file in files.items()}
    made = make_backend(device, **options)
    if device == "auto":
        by = "(auto)" if target is None else f"({target}), which --target asks for"
        say(f"device: {made.name} {by}")
    loaded = made.compile(program)
    try:
        found = loaded.run(fed)
    finally:
        loaded.close()
    outputs = _written(found, out, replace=replace)
    if as_json:
        document: dict[str, Any] = {
            "program": chosen,
            "outputs": outputs,
            "out": str(out),
            "device": made.name,
        }
        document["target"] = None if made.target is None else made.target.name
        document["numerics"] = numerics_of(made)
        show(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        for port, record in outputs.items():
            show(f"{port}  {record['dtype']}{record['shape']}  {record['file']}")
    return 0


def _chosen(folder: Path, names: list[str], name: str | None) -> str:
    if name is None and len(names) == 1:
        return names[0]
    if name not in names:
        shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
        what = "which program" if name is None else "no such program"
        raise ConfigError(str(folder), what, got=name, want=f"--program, one of {shown}")
    return name


def _files(program: Program, words: Iterable[str]) -> dict[str, Path]:
    """The arrays' files by port.

    Raises:
        ConfigError: a word is no NAME=FILE, or a port is given twice, not given or not there.
    """
    known = [port.name for port in program.inputs]
    found: dict[str, Path] = {}
    for word in words:
        # A name may have an = of its own, and so may a file: the longest known name wins.
        name = max((n for n in known if word.startswith(f"{n}=")), key=len, default=None)
        if name is None:
            got, want = word.partition("=")[0], ", ".join(known) or "none"
            raise ConfigError("--input", "no such port", got=got, want=f"NAME=FILE of {want}")
        if name in found:
            raise ConfigError("--input", "port is given twice", got=name)
        found[name] = Path(word[len(name) + 1 :])
    if missing := [name for name in known if name not in found]:
        raise ConfigError("--input", "not every port is given", want=", ".join(missing))
    return found


def read_array(path: Path) -> Array:
    """The array of a .npy file, without pickles.

    Raises:
        DataError: it cannot be read, or is none.
    """
    try:
        with path.open("rb") as file:
            if not file.peek(len(ZIP)).startswith((np.lib.format.MAGIC_PREFIX, ZIP)):
                raise DataError(str(path), "not a .npy file", want="what numpy.save writes")
            array = np.load(file, allow_pickle=False)
    except OSError as error:
        raise DataError(str(path), "cannot be read", got=error.strerror or error) from error
    except (ValueError, EOFError, MemoryError, OverflowError, RecursionError) as error:
        raise DataError(str(path), "not a .npy file", got=str(error)[:200]) from error
    if not isinstance(array, np.ndarray):
        raise DataError(str(path), "not one array", want="a .npy file, no .npz")
    return array


def _is_results(folder: Path) -> bool:
    """Whether a folder has arrays that this command wrote, and nothing else."""
    names = own_names(folder)
    return bool(names) and all(name.endswith(".npy") for name in names)


def _written(
    outputs: Mapping[str, Array], out: Path, *, replace: bool
) -> dict[str, dict[str, Any]]:
    """Each output in a file of its own, all of them or none."""
    found: dict[str, dict[str, Any]] = {}
    taken: set[str] = set()
    with folder_beside(out, replace=replace, is_ours=_is_results) as made:
        for name, array in outputs.items():
            root = stem = _UNSAFE.sub("_", name)[:100].lstrip(".") or "output"
            count = 0
            while stem.lower() in taken:
                count += 1
                stem = f"{root}_{count}"
            taken.add(stem.lower())
            target = made / f"{stem}.npy"
            with naming(target), target.open("xb") as file:
                np.save(file, array, allow_pickle=False)
            found[name] = {
                "shape": list(array.shape),
                "dtype": str(array.dtype),
                "file": str(out / f"{stem}.npy"),
            }
        mark(made)
    return found
