"""The backends by name, those of other packages included."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points
from inspect import signature
from typing import Any, TypeAlias

from orion_ane.errors import BackendError, ConfigError
from orion_ane.runtime.backend import Backend
from orion_ane.runtime.backends.cpu import Cpu
from orion_ane.runtime.backends.emulator import Emulator

Factory: TypeAlias = Callable[..., Backend]

GROUP = "orion_ane.backends"
"""Where other packages enter theirs: an entry point names a factory, called with the options."""

BACKENDS: dict[str, Factory] = {"emulator": Emulator, "cpu": Cpu}


def backend(name: str, **options: Any) -> Backend:
    """The device called `name`; `auto` takes the best there is, whose own name then tells.

    Args:
        name: a key of `BACKENDS`, an entry point of the group `orion_ane.backends`, or `auto`.
        options: what the device takes, as `threads`.

    Raises:
        BackendError: there is no such device here; the message names the others.
        ConfigError: an option that the device does not honour.
    """
    found = "cpu" if name == "auto" else name
    if found in BACKENDS:
        _want_known(found, options)
        return BACKENDS[found](**options)
    outside = _outside()
    if found in outside:
        factory: Factory = outside[found].load()
        return factory(**options)
    raise BackendError(
        f"device {name}",
        "not available here",
        want=_listed("auto", *BACKENDS, *sorted(outside)),
        hint="this version does not drive the device itself" if name == "ane" else None,
    )


def _want_known(device: str, options: Iterable[str]) -> None:
    """Refuse an option that one of our own devices does not take."""
    known = list(signature(BACKENDS[device]).parameters)
    for name in options:
        if name not in known:
            others = [other for other, of in BACKENDS.items() if name in signature(of).parameters]
            hint = f"device {_listed(*others)} takes it" if others else None
            want = _listed(*known)
            raise ConfigError(name, f"no such option of device {device}", want=want, hint=hint)


def _outside() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _listed(*names: str) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
