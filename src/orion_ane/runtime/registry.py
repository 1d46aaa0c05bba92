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
from orion_ane.runtime.backends.neural_engine.backend import NeuralEngine
from orion_ane.runtime.backends.neural_engine.machine import probed

Factory: TypeAlias = Callable[..., Backend]

GROUP = "orion_ane.backends"
"""Where other packages enter theirs: an entry point names a factory, called with the options."""

BACKENDS: dict[str, Factory] = {"emulator": Emulator, "cpu": Cpu, "ane": NeuralEngine}


def backend(name: str, **options: Any) -> Backend:
    """The device called `name`; `auto` takes the best there is, whose own name then tells.

    That is `emulator` where a target is given, which is the device that it emulates; `ane` where a
    probe has passed on this machine with this version of its system, and as what the probe found
    it to be; else `cpu`.

    Args:
        name: a key of `BACKENDS`, an entry point of the group `orion_ane.backends`, or `auto`.
        options: what the device takes, as `threads`; None leaves it to the device.

    Raises:
        BackendError: there is no such device here; the message names the others.
        ConfigError: an option that the device does not honour.
    """
    given = {key: value for key, value in options.items() if value is not None or key == "target"}
    found = meant(name, options.get("target"))
    if found == "auto":
        target = probed()
        found = "cpu" if target is None else "ane"
        given |= {} if target is None else {"target": target}
    if found in BACKENDS:
        _want_known(found, given)
        return BACKENDS[found](**given)
    outside = _outside()
    if found in outside:
        factory: Factory = outside[found].load()
        return factory(**given)
    want = _listed("auto", *BACKENDS, *sorted(outside))
    raise BackendError(f"device {found}", "not available here", want=want)


def meant(device: str, target: object) -> str:
    """The device that is asked for: a target alone names the emulator, which is it then."""
    return "emulator" if device == "auto" and target is not None else device


def takes(device: str, option: str) -> bool:
    """Whether one of our own devices has that option.

    `auto` has what every device may have, and a target, by which it is the emulator.
    """
    if device == "auto":
        return option in ("threads", "target")
    return device in BACKENDS and option in signature(BACKENDS[device]).parameters


def _want_known(device: str, options: Iterable[str]) -> None:
    """Refuse an option that one of our own devices does not take."""
    known = list(signature(BACKENDS[device]).parameters)
    for name in options:
        if name not in known:
            others = [other for other in BACKENDS if takes(other, name)]
            hint = f"device {_listed(*others)} takes it" if others else None
            want = _listed(*known)
            raise ConfigError(name, f"no such option of device {device}", want=want, hint=hint)


def _outside() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _listed(*names: str) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
