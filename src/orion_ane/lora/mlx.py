"""Adapters of mlx-lm: `adapters.safetensors` with A [I, r] and B [r, O], and a scale as it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from orion_ane.errors import CheckpointError, ConfigError
from orion_ane.lora.adapter import Adapter, LowRank, of_matrices
from orion_ane.lora.config import made_for
from orion_ane.lora.modules import modules_of
from orion_ane.lora.numbers import numbers_of
from orion_ane.models.config import ModelConfig
from orion_ane.models.weights.fields import Fields, listed
from orion_ane.models.weights.safetensors import open_safetensors
from orion_ane.models.weights.tensors import Stored
from orion_ane.types import Array

FILE = "adapters.safetensors"
SCALE = 20.0
"""Where the config has none: the default of its writer."""
KEY = re.compile(r"(?P<path>.+)\.lora_(?P<side>[ab])")


def is_mlx(document: Mapping[str, object]) -> bool:
    """Whether an adapter_config.json is one of mlx-lm's."""
    return "peft_type" not in document and not {"lora_parameters", "fine_tune_type"}.isdisjoint(
        document
    )


def read_mlx(folder: Path, document: Mapping[str, object], model: ModelConfig) -> Adapter:
    """The adapter in a folder of mlx-lm's.

    Raises:
        CheckpointError: files or matrices that are missing, damaged or do not fit.
        ConfigError: not low-rank matrices.
    """
    where = str(folder / "adapter_config.json")
    kind = document.get("fine_tune_type", "lora")
    if kind != "lora":
        raise ConfigError(where, "fine_tune_type cannot be honoured", got=kind, want="lora")
    parameters = document.get("lora_parameters") or {}
    if not isinstance(parameters, dict):
        raise ConfigError(where, "no such lora_parameters", got=parameters, want="an object")
    scale = Fields(where, parameters).number("scale", SCALE)
    path = folder / FILE
    if not path.is_file():
        raise CheckpointError(str(folder), f"{FILE} is missing")
    modules, hint = modules_of(model), made_for(str(document.get("model") or ""))
    pairs: dict[str, dict[str, Array]] = {}
    left = []
    for name, stored in open_safetensors(path, doubles=True).tensors.items():
        found = KEY.fullmatch(name)
        if found is None or found["path"] not in modules:
            left.append(name)
            continue
        pairs.setdefault(found["path"], {})[found["side"]] = _turned(path, name, stored)
    if left or not pairs:
        names = ", ".join(f"{name}.lora_a" for name in list(modules)[:3])
        raise CheckpointError(
            str(path),
            "tensors that fit no linear of this model",
            got=listed(left) or "none",
            want=f"names such as {names}",
            hint=hint,
        )
    matrices = {}
    for name, sides in pairs.items():
        module = modules[name]
        a, b = sides.get("a"), sides.get("b")
        if (
            a is None
            or b is None
            or a.shape[1] != module.columns
            or b.shape
            != (
                module.rows,
                a.shape[0],
            )
        ):
            got = {side: list(array.shape) for side, array in sides.items()}
            want = f"a [{module.columns}, r], b [r, {module.rows}]"
            raise CheckpointError(str(path), f"{name} does not fit", got=got, want=want, hint=hint)
        matrices[name] = LowRank(a, b, scale)
    made = of_matrices(model, matrices)
    return Adapter(made.config, model, matrices, {}, str(folder), ("an adapter of mlx-lm",))


def _turned(path: Path, name: str, stored: Stored) -> Array:
    if len(stored.shape) != 2:
        got = f"{len(stored.shape)} axes"
        raise CheckpointError(str(path), f"{name} is not a matrix", got=got)
    return numbers_of(path, name, stored).T
