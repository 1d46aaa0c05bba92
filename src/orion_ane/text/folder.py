"""A model's folder: whichever tokenizer files it has, and what its config says beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from orion_ane.errors import DataError
from orion_ane.text.files import read_json, read_text
from orion_ane.text.gpt2 import from_gpt2_files
from orion_ane.text.spm import Prefix, from_sentencepiece
from orion_ane.text.template import ChatTemplate
from orion_ane.text.tokenizer import Tokenizer
from orion_ane.text.tokenizer_json import from_tokenizer_json

_CONFIG = "tokenizer_config.json"
_CONFIGS = ("special_tokens_map.json", _CONFIG)  # the later one has the last word
_ROLES = tuple(f"{role}_token" for role in ("bos", "eos", "unk", "pad", "sep", "cls", "mask"))


def from_folder(path: Path | str) -> Tokenizer:
    """The tokenizer in a folder as the Hugging Face hub keeps it.

    `tokenizer.json`, else `tokenizer.model`, else `vocab.json` with `merges.txt`. What is read
    beside them: `tokenizer_config.json` (special tokens, `add_bos_token`, `add_prefix_space` and
    `legacy` for SentencePiece, the chat template), `special_tokens_map.json`, `chat_template.jinja`
    and the `eos_token_id` of `generation_config.json`.

    Raises:
        DataError: no tokenizer, damaged files, or a config that names tokens that are not there.
    """
    folder = Path(path)
    config = _config(folder)
    names = _names(folder, config)
    tokenizer = _files(folder, config, names)
    _check_added(folder, tokenizer)
    return _finished(folder, tokenizer, config, names)


def _config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = {}
    for name in _CONFIGS:
        if (folder / name).is_file():
            config |= read_json(folder / name)
    return config


def _names(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Special tokens by role; the config writes them as texts or as objects."""
    names: dict[str, str] = {}
    for role in _ROLES:
        match config.get(role):
            case str(name) | {"content": str(name)}:
                names[role] = name
            case None:
                pass
            case other:
                raise DataError(str(folder / _CONFIG), role, got=other, want="a token")
    return names


def _files(folder: Path, config: Mapping[str, Any], names: Mapping[str, str]) -> Tokenizer:
    special = [names[role] for role in ("bos_token", "eos_token") if role in names]
    if (folder / "tokenizer.json").is_file():
        return from_tokenizer_json(folder / "tokenizer.json", specials=special)
    if (folder / "tokenizer.model").is_file():
        return from_sentencepiece(
            folder / "tokenizer.model", prefix=_prefix(config), controls=_added(folder, config)
        )
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        return from_gpt2_files(folder / "vocab.json", folder / "merges.txt")
    found = sorted(p.name for p in folder.iterdir())[:12] if folder.is_dir() else "no folder"
    raise DataError(
        str(folder),
        "no tokenizer",
        got=found,
        want="tokenizer.json, tokenizer.model, or vocab.json with merges.txt",
    )


def _prefix(config: Mapping[str, Any]) -> Prefix:
    """Which texts get a space before them, in the words of transformers' config."""
    if config.get("add_prefix_space") is False:
        return "never"
    return "always" if config.get("legacy") is True else "first"


def _added(folder: Path, config: Mapping[str, Any]) -> dict[str, int]:
    """The control tokens that the config adds to a SentencePiece model.

    Raises:
        DataError: it adds tokens of another kind, which would be found in any text.
    """
    entries = config.get("added_tokens_decoder") or {}
    try:
        added = {int(i): (entry["content"], entry["special"]) for i, entry in entries.items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(str(folder / _CONFIG), "added_tokens_decoder", got=error) from error
    plain = [name for name, is_special in added.values() if not is_special]
    if plain:
        raise DataError(
            str(folder / _CONFIG),
            "tokens added to tokenizer.model that are not special",
            got=plain[:4],
            hint="save a tokenizer.json beside it",
        )
    return {name: i for i, (name, _) in added.items()}


def _check_added(folder: Path, tokenizer: Tokenizer) -> None:
    """Refuse an `added_tokens.json` with tokens that none of the other files has."""
    path = folder / "added_tokens.json"
    pieces = tokenizer.vocabulary.pieces
    for name, token in read_json(path).items() if path.is_file() else ():
        if type(token) is not int or pieces[token : token + 1] != (name.encode(),):
            raise DataError(
                str(path), f"{name!r} is in no other file", got=token, hint="save a tokenizer.json"
            )


def _finished(
    folder: Path, tokenizer: Tokenizer, config: Mapping[str, Any], names: Mapping[str, str]
) -> Tokenizer:
    """The tokenizer with what the config says of BOS, the ends and the chat template."""
    where = str(folder / _CONFIG)
    controls = tokenizer.vocabulary.controls
    for role in ("bos_token", "eos_token"):
        if role in names and names[role] not in controls:
            raise DataError(where, f"{role}: no such token", got=repr(names[role]))
    bos = controls[names["bos_token"]] if "bos_token" in names else tokenizer.bos_id
    ends = (controls[names["eos_token"]],) if "eos_token" in names else tokenizer.eos_ids
    adds_bos = config.get("add_bos_token")
    if adds_bos is None:
        adds_bos = tokenizer.adds_bos
    if not isinstance(adds_bos, bool) or (adds_bos and bos is None):
        raise DataError(where, "add_bos_token", got=adds_bos, want="a flag, and a BOS token")
    template = _template(folder, config)
    return replace(
        tokenizer,
        bos_id=bos,
        eos_ids=tuple(dict.fromkeys((*ends, *_more_ends(folder, tokenizer)))),
        adds_bos=adds_bos,
        template=template,
        names={**tokenizer.names, **names},
    )


def _more_ends(folder: Path, tokenizer: Tokenizer) -> list[int]:
    """The tokens that generation stops at, which chat models list beside the tokenizer's own."""
    path = folder / "generation_config.json"
    ends = read_json(path).get("eos_token_id") if path.is_file() else None
    found = ends if isinstance(ends, list) else [] if ends is None else [ends]
    for token in found:
        if type(token) is not int or not 0 <= token < tokenizer.vocab_size:
            raise DataError(str(path), "eos_token_id: no such token", got=token)
    return found


def _template(folder: Path, config: Mapping[str, Any]) -> ChatTemplate | None:
    """The chat template: a file of its own, or the config's, the one named `default` of several."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return ChatTemplate(read_text(path), str(path))
    where = str(folder / _CONFIG)
    match config.get("chat_template"):
        case None:
            return None
        case str(source):
            return ChatTemplate(source, where)
        case [*entries] if all(isinstance(entry, dict) for entry in entries):
            named = {entry.get("name"): entry.get("template") for entry in entries}
            if isinstance(named.get("default"), str):
                return ChatTemplate(named["default"], where)
            raise DataError(
                where, "chat_template", got=list(named), want="one that is named default"
            )
        case other:
            raise DataError(where, "chat_template", got=type(other).__name__, want="a text or list")
