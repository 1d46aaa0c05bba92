"""tokenizer.json: a whole tokenizer as the `tokenizers` library writes it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Library

from orion_ane.errors import DataError
from orion_ane.text.codec import Aliases, LibraryCodec, library_errors
from orion_ane.text.files import read_json
from orion_ane.text.tokenizer import Tokenizer
from orion_ane.text.vocabulary import (
    BYTE_ALPHABET,
    Strip,
    Vocabulary,
    byte_level,
    check_names,
    place,
)

Json = dict[str, Any]


def from_tokenizer_json(path: Path | str, *, specials: Sequence[str] = ()) -> Tokenizer:
    """The tokenizer of a `tokenizer.json`, by what the file says and not by its model's name (S09).

    Whether prompts start with BOS, and which token that is, its post-processor says. The tokens
    that end a text and the chat template stand in other files: see `from_folder`.

    Args:
        path: the file.
        specials: names of control tokens that the file may hold as ordinary ones.

    Raises:
        DataError: a damaged file, or a model, decoder or post-processor that is not supported.
    """
    where = str(path)
    document = read_json(Path(path))
    with library_errors(where, "not a tokenizer that can be read"):
        return _read(where, document, specials)


def _read(where: str, document: Json, specials: Sequence[str]) -> Tokenizer:
    learned = _learned(where, document["model"])
    added = _added(document, learned, specials)
    document = document | {"added_tokens": added}
    ids = learned | {token["content"]: token["id"] for token in added}
    check_names(where, ids)
    names = place(where, ids)
    controls = {token["content"]: token["id"] for token in added if token["special"]}
    aliases = Aliases.beside(where, ids)
    library = Library.from_str(json.dumps(_with_aliases(document, controls, aliases)))
    for name, token in ids.items():
        found = library.token_to_id(aliases.of(token) if name in controls else name)
        if found != token:
            raise DataError(where, f"{name!r} has another id", got=found, want=token)
    prints, strip = _printing(where, document)
    literal = {token["content"] for token in added}
    pieces = tuple(
        None if name is None else name.encode() if name in literal else prints(name)
        for name in names
    )
    bos = _leading_special(where, document)
    return Tokenizer(
        Vocabulary(pieces, controls, strip=strip),
        LibraryCodec(library, aliases, _absent_bytes(where, document, learned)),
        bos_id=bos,
        adds_bos=bos is not None,
    )


def _learned(where: str, model: Json) -> dict[str, int]:
    """The model's own tokens."""
    kind = model.get("type") or ("BPE" if "merges" in model else "none")
    if kind not in ("BPE", "Unigram"):
        raise DataError(where, "model", got=kind, want="BPE or Unigram")
    if model.get("dropout"):
        raise DataError(where, "the model merges at random", got=f"dropout {model['dropout']}")
    if kind == "BPE":
        return dict(model["vocab"])
    return {name: token for token, (name, _) in enumerate(model["vocab"])}


def _added(document: Json, learned: Mapping[str, int], specials: Sequence[str]) -> list[Json]:
    """The added tokens, those named as specials among them, marked as such."""
    added = [
        token | {"special": token["special"] or token["content"] in specials}
        for token in document.get("added_tokens") or []
    ]
    there = {token["content"] for token in added}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    missing = [name for name in dict.fromkeys(specials) if name in learned and name not in there]
    return added + [{"id": learned[n], "content": n, "special": True, **flags} for n in missing]


def _with_aliases(document: Json, controls: Mapping[str, int], aliases: Aliases) -> Json:
    """The document with control tokens under names that no text can spell, nor merges make."""

    def renamed(name: str) -> str:
        return aliases.of(controls[name]) if name in controls else name

    model = dict(document["model"])
    if isinstance(model["vocab"], dict):
        model["vocab"] = {renamed(name): token for name, token in model["vocab"].items()}
        pairs = [m.split(" ", 1) if isinstance(m, str) else m for m in model["merges"]]
        model["merges"] = [
            pair for pair in pairs if controls.keys().isdisjoint((*pair, "".join(pair)))
        ]
    else:
        model["vocab"] = [[renamed(name), score] for name, score in model["vocab"]]
    if model.get("unk_token"):
        model["unk_token"] = renamed(model["unk_token"])
    added = [
        token | {"content": renamed(token["content"]), "normalized": False}
        if token["special"]
        else token
        for token in document["added_tokens"]
    ]
    return document | {"model": model, "added_tokens": added, "post_processor": None}


def _steps(part: Json | None) -> Iterator[Json]:
    """The steps of a decoder, a pre-tokenizer or a post-processor, sequences unrolled."""
    if part is None:
        return
    nested = ("decoders", "pretokenizers", "processors")
    inner = [step for key in nested for step in part.get(key) or ()]
    if part["type"] != "Sequence":
        yield part
    for step in inner:
        yield from _steps(step)


def _printing(where: str, document: Json) -> tuple[Callable[[str], bytes], Strip]:
    """What makes bytes of a learned token, and what becomes of the first space."""
    replaced: list[tuple[str, str]] = []
    kinds: set[str] = set()
    strip = Strip.NONE
    decoder = document.get("decoder") or document.get("pre_tokenizer")
    for step in _steps(decoder):
        kinds.add(step["type"])
        match step:
            case {"type": "ByteLevel" | "ByteFallback" | "Fuse"}:
                pass
            case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)}:
                replaced.append((old, new))
            case {"type": "Strip", "content": " ", "start": 0 | 1 as start, "stop": 0}:
                strip = Strip.ONE if start else strip
            case {"type": "Metaspace", "replacement": str(old)}:
                replaced.append((old, " "))
                scheme = step.get("prepend_scheme", "always")
                strip = Strip.NONE if scheme == "never" else Strip.ONE
            case _ if document.get("decoder"):
                raise DataError(where, "decoder step", got=step["type"], want=_DECODERS)
    if not kinds & {"ByteLevel", "Metaspace", "Replace"}:
        raise DataError(where, "no decoder that puts spaces back", want=_DECODERS)

    def prints(name: str) -> bytes:
        if "ByteLevel" in kinds:
            return byte_level(name)
        byte = re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", name) if "ByteFallback" in kinds else None
        if byte:
            return bytes([int(byte[1], 16)])
        for old, new in replaced:
            name = name.replace(old, new)
        return name.encode()

    return prints, strip


_DECODERS = "ByteLevel, Metaspace, or Replace, ByteFallback, Fuse and Strip"


def _absent_bytes(where: str, document: Json, learned: Mapping[str, int]) -> frozenset[int]:
    """The bytes that the library would leave out in silence."""
    model = document["model"]
    if model.get("unk_token") is not None or model.get("unk_id") is not None:
        return frozenset()
    if any(step["type"] == "ByteLevel" for step in _steps(document.get("pre_tokenizer"))):
        return frozenset(byte for byte, char in enumerate(BYTE_ALPHABET) if char not in learned)
    if model.get("byte_fallback") and learned.keys() >= {f"<0x{b:02X}>" for b in range(256)}:
        return frozenset()
    raise DataError(where, "the model drops characters it does not know", want="a way to write all")


def _leading_special(where: str, document: Json) -> int | None:
    """The token that the post-processor puts before a text."""
    for step in _steps(document.get("post_processor")):
        if step["type"] not in ("ByteLevel", "TemplateProcessing"):
            raise DataError(where, "post-processor", got=step["type"], want="TemplateProcessing")
        if step["type"] == "TemplateProcessing":
            order = [next(iter(item.items())) for item in step["single"]]
            text = [kind for kind, _ in order].index("Sequence")
            leading = [step["special_tokens"][item["id"]]["ids"] for _, item in order[:text]]
            ids = [token for group in leading for token in group]
            if len(ids) > 1:
                raise DataError(where, "texts start with several tokens", got=ids, want="one")
            return int(ids[0]) if ids else None
    return None
