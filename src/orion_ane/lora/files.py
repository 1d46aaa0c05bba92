"""Adapters in files: PEFT's folders in and out, and mlx-lm's in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path, PurePath

import numpy as np

from orion_ane.artefacts.atomic import folder_beside, write_file
from orion_ane.artefacts.written import mark, own_names
from orion_ane.errors import CheckpointError
from orion_ane.lora.adapter import Adapter, LowRank, selected
from orion_ane.lora.config import AdapterConfig, made_for, read_config, written
from orion_ane.lora.mlx import is_mlx, read_mlx
from orion_ane.lora.modules import HEAD, Module, modules_of, table_path
from orion_ane.lora.numbers import numbers_of
from orion_ane.models.config import GPT2Config, ModelConfig
from orion_ane.models.weights.documents import read_json
from orion_ane.models.weights.fields import listed
from orion_ane.models.weights.safetensors import open_safetensors
from orion_ane.models.weights.tensors import Stored
from orion_ane.types import Array

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
PICKLE = "adapter_model.bin"
BEFORE = "base_model.model."
KEY = re.compile(r"(?P<path>.+)\.lora_(?P<side>[AB])(\.[^.]+)?\.weight")
WHOLE = re.compile(r"(?P<path>.+?)(\.base_layer|\.modules_to_save(\.[^.]+)?)?\.weight")
"""Names with that of the adapter, which PEFT has in memory, are read too, and without `BEFORE`."""
NOT_OURS = {
    "lora_embedding_": "low-rank token vectors",
    "lora_magnitude_vector": "DoRA's magnitudes",
    ".bias": "biases",
}


def load_adapter(path: str | Path, model: ModelConfig) -> Adapter:
    """The adapter in a folder, made for a model of this shape.

    Raises:
        CheckpointError: files or matrices that are missing, left over, damaged or do not fit.
        ConfigError: it asks for something that cannot be honoured.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise CheckpointError(str(folder), "no such folder", want="an adapter's, as PEFT has it")
    if not (folder / CONFIG).is_file():
        want = f"a folder with {CONFIG} and {WEIGHTS}"
        raise CheckpointError(str(folder), f"{CONFIG} is missing", want=want)
    document = read_json(folder / CONFIG)
    if is_mlx(document):
        return read_mlx(folder, document, model)
    config, notes = read_config(folder / CONFIG, document)
    file = folder / WEIGHTS
    if not file.is_file():
        if (folder / PICKLE).is_file():
            raise CheckpointError(
                str(folder),
                "only pickled weights, and a pickle can run any code when it is opened",
                got=PICKLE,
                want=WEIGHTS,
            )
        raise CheckpointError(str(folder), f"{WEIGHTS} is missing")
    modules = modules_of(model)
    pairs, whole = _sorted(
        file, open_safetensors(file, doubles=True).tensors, modules, model, config.base
    )
    if document.get("ensure_weight_tying") and model.tied and config.saved and whole:
        config = replace(config, saved=(table_path(model).rpartition(".")[2], HEAD))
        one = next(iter(whole.values()))
        whole = {table_path(model): one, HEAD: one} | whole
    tables = _tables(file, whole, model, config, beside=HEAD in pairs)
    if not pairs and not tables:
        raise _nothing_fits(file, [], modules, config.base)
    where = f"{folder / CONFIG}: target_modules"
    named = set(selected(modules, config, where=where)) if pairs else set[str]()
    _want_all(file, pairs, named, modules, config.base)
    matrices = {}
    for name, sides in pairs.items():
        a, b = (numbers_of(file, name, sides[side]) for side in "AB")
        _want_shapes(file, modules[name], a, b, config.rank_of(name))
        matrices[name] = LowRank(a, b, config.scale_of(name, a.shape[0]))
    return Adapter(config, model, matrices, tables, str(folder), tuple(notes))


def base_of(path: Path) -> str:
    """The model that an adapter's config names; empty where it names none."""
    document = read_json(path / CONFIG) if (path / CONFIG).is_file() else {}
    return str(document.get("model" if is_mlx(document) else "base_model_name_or_path") or "")


def another_base(path: Path, model: str, origin: str) -> list[str]:
    """A note where an adapter's config names another model than the one that wears it.

    A file or a folder is called as its owner likes, so only a name of the hub, or one that this
    package gives, tells of another model.  Sizes were compared when the adapter was read.

    Args:
        path: the adapter's folder.
        model: what the user calls the model.
        origin: where it lies, in whose path a name of the hub may stand.
    """
    base = base_of(path)
    hub = [p.rpartition("--")[2] for p in PurePath(origin).parts if p.startswith("models--")]
    if not base or (not hub and Path(model).expanduser().exists()):
        return []
    names = [name.casefold() for name in (PurePath(model).name, PurePath(origin).name, *hub)]
    wanted = PurePath(base).name.casefold()
    if any(re.fullmatch(rf"{re.escape(wanted)}([.-]gguf|\..*)?", name) for name in names):
        return []
    return [f"the adapter's config says that it was made for {base}, and {model} wears it"]


def save_adapter(folder: str | Path, adapter: Adapter, *, replace: bool = False) -> None:
    """Write an adapter as PEFT reads it; it is on the disk, whole, when this returns.

    Args:
        folder: where.
        adapter: which.
        replace: whether an adapter that this function wrote there before may go.

    Raises:
        ConfigError: something is there already.
    """
    from safetensors.numpy import save  # not for those who read

    is_conv1d = isinstance(adapter.model, GPT2Config)
    tensors = tensors_of(adapter)
    document = written(adapter.config, is_conv1d=is_conv1d)
    with folder_beside(Path(folder), replace=replace, is_ours=is_adapter) as made:
        write_file(made / CONFIG, (json.dumps(document, indent=2) + "\n").encode())
        write_file(made / WEIGHTS, save(tensors, metadata={"format": "pt"}))
        mark(made)


def is_adapter(folder: Path) -> bool:
    """Whether a folder has an adapter that `save_adapter` wrote, and nothing else."""
    return CONFIG in own_names(folder)


def tensors_of(adapter: Adapter) -> dict[str, Array]:
    """The tensors of an adapter's file, by PEFT's names."""
    found: dict[str, Array] = {}
    for path, one in adapter.matrices.items():
        found[f"{BEFORE}{path}.lora_A.weight"] = np.ascontiguousarray(one.a)
        found[f"{BEFORE}{path}.lora_B.weight"] = np.ascontiguousarray(one.b)
    for name, table in adapter.tables.items():
        path = HEAD if name == HEAD else table_path(adapter.model)
        path += ".base_layer" if path in adapter.matrices else ""
        found[f"{BEFORE}{path}.weight"] = np.ascontiguousarray(table)
    return found


def renamed(adapter: Adapter, base: str) -> Adapter:
    """The adapter with the name of the model that it was made for."""
    return replace(adapter, config=replace(adapter.config, base=base))


def _sorted(
    path: Path,
    stored: Mapping[str, Stored],
    modules: Mapping[str, Module],
    model: ModelConfig,
    base: str,
) -> tuple[dict[str, dict[str, Stored]], dict[str, Stored]]:
    """The matrices by linear and side, and the tables that come whole."""
    pairs: dict[str, dict[str, Stored]] = {}
    whole: dict[str, Stored] = {}
    left = []
    for full, tensor in stored.items():
        name = full.removeprefix(BEFORE)
        if kind := next((kind for mark, kind in NOT_OURS.items() if mark in name), None):
            raise CheckpointError(str(path), f"{kind} cannot be honoured", got=full)
        if (found := KEY.fullmatch(name)) and found["path"] in modules:
            _once(path, full, pairs.setdefault(found["path"], {}), found["side"], tensor)
        elif (found := WHOLE.fullmatch(name)) and found["path"] in (HEAD, table_path(model)):
            _once(path, full, whole, found["path"], tensor)
        else:
            left.append(full)
    if left and not pairs:
        raise _nothing_fits(path, left, modules, base)
    _want_fit(path, pairs, modules, base)
    if left:
        raise CheckpointError(
            str(path),
            "tensors that fit no linear of this model",
            got=listed(left),
            want=_examples(modules),
            hint=made_for(base),
        )
    if half := [name for name, sides in pairs.items() if len(sides) < 2]:
        raise CheckpointError(str(path), "A or B alone", got=listed(half))
    return pairs, whole


def _once(path: Path, full: str, to: dict[str, Stored], name: str, tensor: Stored) -> None:
    if name in to:
        raise CheckpointError(str(path), "a matrix stands twice, under two names", got=full)
    to[name] = tensor


def _want_fit(
    path: Path,
    pairs: Mapping[str, Mapping[str, Stored]],
    modules: Mapping[str, Module],
    base: str,
) -> None:
    """What matrices read and write is what linears of this model do, whatever their rank."""
    for name, sides in pairs.items():
        for side, tensor in sides.items():
            axis, size = (1, modules[name].columns) if side == "A" else (0, modules[name].rows)
            if len(tensor.shape) == 2 and tensor.shape[axis] != size:
                want = [tensor.shape[0], size] if axis else [size, tensor.shape[1]]
                raise CheckpointError(
                    str(path),
                    "made for a model of another shape",
                    got=f"{name}.lora_{side} {list(tensor.shape)}",
                    want=want,
                    hint=made_for(base),
                )


def _nothing_fits(
    path: Path, left: Iterable[str], modules: Mapping[str, Module], base: str
) -> CheckpointError:
    return CheckpointError(
        str(path),
        "no matrix of it fits this model",
        got=listed(list(left)) or "no tensor",
        want=_examples(modules),
        hint=made_for(base),
    )


def _examples(modules: Mapping[str, Module]) -> str:
    names = [f"{BEFORE}{path}.lora_A.weight" for path in list(modules)[:3]]
    return "names such as " + ", ".join(names)


def _want_all(
    path: Path,
    pairs: Mapping[str, object],
    want: set[str],
    modules: Mapping[str, Module],
    base: str,
) -> None:
    """The linears in the file are those that the config names."""
    if missing := [name for name in modules if name in want and name not in pairs]:
        raise CheckpointError(
            str(path), "matrices are missing", want=listed(missing), hint=made_for(base)
        )
    if extra := [name for name in pairs if name not in want]:
        raise CheckpointError(str(path), f"matrices that {CONFIG} does not name", got=listed(extra))


def _want_shapes(path: Path, module: Module, a: Array, b: Array, rank: int) -> None:
    want = (rank, module.columns), (module.rows, rank)
    if (a.shape, b.shape) != want:
        raise CheckpointError(
            str(path),
            f"{module.path} has another shape",
            got=f"A {list(a.shape)}, B {list(b.shape)}",
            want=f"A {list(want[0])}, B {list(want[1])}",
        )


def _tables(
    path: Path,
    whole: Mapping[str, Stored],
    model: ModelConfig,
    config: AdapterConfig,
    *,
    beside: bool,
) -> dict[str, Array]:
    """The tables that come whole: `lm_head` and `embed`.

    PEFT keeps the head that a low-rank one stands beside, unasked.
    """
    names = {HEAD: HEAD, table_path(model): "embed"}
    asked: dict[str, str] = {}
    for one in config.saved:
        found = next((n for n in names if n == one or n.endswith(f".{one}")), None)
        if found is None:
            want = "the head or the token vectors"
            raise CheckpointError(
                str(path),
                "modules_to_save cannot be honoured",
                got=one,
                want=f"{want}: {', '.join(names)}",
            )
        asked[found] = names[found]
    if beside and HEAD in whole:
        asked[HEAD] = HEAD
    if missing := [name for name in asked if name not in whole]:
        raise CheckpointError(str(path), "modules_to_save are missing", want=listed(missing))
    if extra := [name for name in whole if name not in asked]:
        raise CheckpointError(
            str(path), "tables that modules_to_save does not name", got=listed(extra)
        )
    tables = {}
    for name, table in asked.items():
        array = numbers_of(path, name, whole[name])
        if array.shape != (model.vocab, model.dim):
            want = f"[{model.vocab}, {model.dim}]"
            raise CheckpointError(
                str(path),
                f"{name} has another shape",
                got=list(array.shape),
                want=want,
                hint=made_for(config.base),
            )
        tables[table] = array
    return tables
