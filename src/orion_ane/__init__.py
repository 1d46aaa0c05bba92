"""Orion: language models on Apple's Neural Engine, and the very same programs anywhere."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orion_ane.compiler import compile as compile
    from orion_ane.generate.model import Model as Model
    from orion_ane.generate.model import load as load
    from orion_ane.generate.options import Options as Options
    from orion_ane.generate.result import Generation as Generation
    from orion_ane.generate.result import Piece as Piece
    from orion_ane.runtime.registry import backend as backend
    from orion_ane.train.config import TrainConfig as TrainConfig
    from orion_ane.train.run import Trainer as Trainer

__version__: str

# Public names and where they live.  They are fetched when first asked for, so that whoever wants
# the compiler alone does not wait for tokenizers.
_HOMES = {
    "Generation": "orion_ane.generate.result",
    "Model": "orion_ane.generate.model",
    "Options": "orion_ane.generate.options",
    "Piece": "orion_ane.generate.result",
    "TrainConfig": "orion_ane.train.config",
    "Trainer": "orion_ane.train.run",
    "backend": "orion_ane.runtime.registry",
    "compile": "orion_ane.compiler",
    "load": "orion_ane.generate.model",
}
__all__ = sorted(_HOMES)  # noqa: PLE0605 (static enough)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("orion-ane")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, "__version__"})
