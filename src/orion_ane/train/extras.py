"""Packages that not everybody needs."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from orion_ane.errors import ConfigError


def extra(module: str, *, option: str, name: str) -> Any:
    """A module of a package that an extra brings.

    Args:
        module: as it is imported.
        option: what asks for it.
        name: of the extra.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        hint = f'pip install "orion-ane[{name}]"'
        raise ConfigError(option, f"needs the package {package}", got=error, hint=hint) from error
