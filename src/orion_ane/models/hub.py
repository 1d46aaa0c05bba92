"""The Hugging Face cache on this machine, and the hub itself where a download is asked for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from orion_ane.errors import CheckpointError, ConfigError
from orion_ane.models.weights.documents import read_json
from orion_ane.models.weights.hf import INDEX, WEIGHTS
from orion_ane.models.weights.hf_config import FAMILIES

REPO = re.compile(r"(?!.*(--|\.\.))[\w.-]+(/[\w.-]+)?")
TRUE = {"1", "ON", "YES", "TRUE"}
# What a model is read from, at the top of its repository: no pickles, no other frameworks.
WANTED = ("*.json", "model*.safetensors", "tokenizer.model", "merges.txt", "*.jinja")


def cache_folder() -> Path:
    """Where downloaded models lie: HF_HUB_CACHE, else `hub` in HF_HOME or in the user's cache."""
    env = os.environ
    if chosen := env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE"):
        return Path(os.path.expandvars(chosen)).expanduser()
    user = Path(env.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(os.path.expandvars(env.get("HF_HOME") or user)).expanduser() / "hub"


def is_offline() -> bool:
    """Whether HF_HUB_OFFLINE forbids the network."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in TRUE


def is_repo(name: str) -> bool:
    """Whether this could be a model's name on the hub: `gpt2` or `owner/name`."""
    return REPO.fullmatch(name) is not None


def snapshots(repo: str) -> list[Path]:
    """The cached revisions of a repository: first the one that `main` names, then the latest."""
    folder = cache_folder() / f"models--{repo.replace('/', '--')}"
    main = folder / "refs" / "main"
    commit = main.read_text(encoding="ascii", errors="replace").strip() if main.is_file() else ""
    found = [path for path in (folder / "snapshots").glob("*") if path.is_dir()]
    return sorted(found, key=lambda path: (path.name != commit, -path.stat().st_mtime))


def cached(repo: str, file: str | None = None) -> Path | None:
    """The cached model of a repository, or one file of it; None where it is not, or in part."""
    for folder in snapshots(repo):
        if file is not None and (folder / file).is_file():
            return folder / file
        if file is None and is_whole(folder):
            return folder
    return None


def is_whole(folder: Path) -> bool:
    """Whether a folder has a config and weights; which shards are there is the loader's to see."""
    has_weights = (folder / WEIGHTS).is_file() or (folder / INDEX).is_file()
    return has_weights and (folder / "config.json").is_file()


def cached_models() -> Iterator[tuple[str, Path]]:
    """The cached models of our families, by repository."""
    for folder in sorted(cache_folder().glob("models--*")):
        repo = folder.name.removeprefix("models--").replace("--", "/", 1)
        path = cached(repo) if is_repo(repo) else None
        if path is not None and _is_ours(path):
            yield repo, path


def download(repo: str, file: str | None = None) -> Path:
    """Fetch a model into the cache: safetensors, config and tokenizer, nothing that runs code.

    Args:
        repo: its repository.
        file: the one file in there that is the model, with llama2.c's tokenizer beside it.

    Raises:
        ConfigError: HF_HUB_OFFLINE is set, or the hub does not give it.
    """
    if is_offline():
        raise ConfigError(
            repo, "cannot be fetched", got="HF_HUB_OFFLINE is set", want=f"it in {cache_folder()}"
        )
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    # The root of what the transport raises; which package that is has changed over the versions.
    transport: type[BaseException] = HfHubHTTPError.__bases__[0]
    try:
        folder = snapshot_download(
            repo,
            cache_dir=cache_folder(),
            allow_patterns=list(WANTED) if file is None else [file, _beside(file)],
            ignore_patterns=["*/*"] if file is None else None,
        )
    except (OSError, ValueError, transport) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(repo, f"cannot be fetched ({first})") from error
    if file is None:
        return Path(folder)
    if not (Path(folder) / file).is_file():
        raise ConfigError(repo, "has no such file", want=file)
    return Path(folder) / file


def _beside(file: str) -> str:
    """What llama2.c's tokenizers are called in the folder of a file."""
    folder, slash, _ = file.rpartition("/")
    return f"{folder}{slash}tok*.bin"


def _is_ours(folder: Path) -> bool:
    try:
        return read_json(folder / "config.json").get("model_type") in FAMILIES
    except CheckpointError:
        return False  # a damaged stranger; asked for by name, it gives its error
