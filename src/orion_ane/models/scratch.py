"""A model that has learnt nothing yet: a shape, and numbers drawn by a seed."""

from __future__ import annotations

import math
import zlib
from pathlib import Path

import numpy as np

from orion_ane.errors import ConfigError
from orion_ane.models.config import ModelConfig
from orion_ane.models.registry import find
from orion_ane.models.weights import Checkpoint, TokenizerSource, load_checkpoint, shapes
from orion_ane.models.weights.documents import read_json
from orion_ane.models.weights.fields import Fields
from orion_ane.models.weights.hf import tokenizer_files
from orion_ane.models.weights.hf_config import from_hf
from orion_ane.types import Array

SPREAD = 0.02
"""The standard deviation of matrices and tables where a config has no `initializer_range`."""
INTO_SUM = ("wo", "w2")
"""What a layer adds to the stream: divided by √(2·layers), so that depth does not widen it."""


def from_scratch(name_or_path: str | Path, *, seed: int, download: bool = False) -> Checkpoint:
    """A model of a config.json, or of another model's shape, with numbers of its own.

    Its tokenizer is the one that lies beside the config, or the other model's.

    Args:
        name_or_path: a JSON file with the keys of Hugging Face's config.json, a folder that has
            one, or whatever names a model.
        seed: of the numbers.
        download: whether a model that is not here may be fetched, for its shape.

    Raises:
        ConfigError: there is none, it is of a family or size that cannot be, or a negative seed.
        CheckpointError: it cannot be read.
    """
    if seed < 0:
        raise ConfigError("seed", "negative", got=seed, want="0 up")
    path = find(name_or_path, download=download)
    file = path / "config.json" if path.is_dir() else path
    tokenizer: TokenizerSource | None
    if file.suffix == ".json" and file.is_file():
        document = read_json(file)
        config = from_hf(str(file), document, {})
        spread = Fields(str(file), document).number("initializer_range", SPREAD)
        tokenizer = tokenizer_files(file.parent)
    else:
        other = load_checkpoint(path)
        config, spread, tokenizer = other.config, SPREAD, other.tokenizer
    if not 0 < spread <= 1:
        raise ConfigError(str(file), "no such initializer_range", got=spread, want="above 0, to 1")
    drawn = draw(config, seed=seed, spread=spread)
    return Checkpoint(config, drawn, tokenizer, stored="fp32", origin=str(file))


def draw(config: ModelConfig, *, seed: int, spread: float = SPREAD) -> dict[str, Array]:
    """Its tensors in fp32: normal matrices and tables, gains of 1, biases of 0.

    Each tensor has a generator of its own, by its name, so that it is the same in whatever order,
    and beside however many layers.
    """
    found = {}
    for name, shape in shapes(config).items():
        short = name.rpartition(".")[2]
        if len(shape) == 1:
            is_gain = short.endswith(("norm", "_g"))
            found[name] = np.full(shape, float(is_gain), np.float32)
            continue
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        size = spread / math.sqrt(2 * config.layers) if short in INTO_SUM else spread
        found[name] = rng.standard_normal(shape, np.float32) * np.float32(size)
    return found
