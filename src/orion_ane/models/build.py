"""From a checkpoint's description to the objects that use it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from orion_ane.models.config import GPT2Config, ModelConfig
from orion_ane.models.decoder import Decoder
from orion_ane.models.gpt2 import GPT2
from orion_ane.models.llama import Llama
from orion_ane.models.weights import Checkpoint, GgufTokenizer, TokenizerFiles

if TYPE_CHECKING:  # libraries of tokenizers and templates, where a checkpoint needs one
    from orion_ane.text import Tokenizer


def decoder_of(config: ModelConfig) -> Decoder:
    """The family of a config, at its size."""
    return GPT2(config) if isinstance(config, GPT2Config) else Llama(config)


def tokenizer_of(checkpoint: Checkpoint) -> Tokenizer | None:
    """The tokenizer that a checkpoint's files declare; None where they have none.

    The config's BOS serves where the tokenizer names none, to start from an empty prompt; ids that
    the model has and the tokenizer has not, which pad its vectors, print nothing.

    Raises:
        DataError: its files are damaged, or of a kind that is not supported.
    """
    found = _declared(checkpoint)
    if found is None:
        return None
    config = checkpoint.config
    bos = config.bos_id if found.bos_id is None else found.bos_id
    return replace(found, bos_id=bos, vocabulary=found.vocabulary.padded(config.vocab))


def document_tokenizer_of(checkpoint: Checkpoint) -> Tokenizer | None:
    """That tokenizer, which ends documents with the model's end token where it has none itself."""
    found = tokenizer_of(checkpoint)
    if found is None or found.eos_ids:
        return found
    return replace(found, eos_ids=checkpoint.config.eos_ids)


def _declared(checkpoint: Checkpoint) -> Tokenizer | None:
    if checkpoint.tokenizer is None:
        return None
    from orion_ane import text

    match checkpoint.tokenizer:
        case TokenizerFiles(kind="llama2c", files=files):
            (path,) = files.values()
            return text.from_llama2c(path, checkpoint.config.vocab)
        case TokenizerFiles(files=files):
            return text.from_folder(next(iter(files.values())).parent)
        case GgufTokenizer(fields=fields):
            return text.from_gguf(fields)
