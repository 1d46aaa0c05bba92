"""Text: tokenizers by what their files declare, chats, and streams that break no character."""

from __future__ import annotations

from orion_ane.text.folder import from_folder
from orion_ane.text.gguf import files_from_gguf, from_gguf
from orion_ane.text.gpt2 import from_gpt2_files, from_gpt2_merges
from orion_ane.text.llama2c import from_llama2c
from orion_ane.text.spm import from_sentencepiece
from orion_ane.text.stream import Streamer
from orion_ane.text.template import ChatTemplate, Message
from orion_ane.text.tokenizer import Tokenizer
from orion_ane.text.tokenizer_json import from_tokenizer_json

__all__ = [
    "ChatTemplate",
    "Message",
    "Streamer",
    "Tokenizer",
    "files_from_gguf",
    "from_folder",
    "from_gguf",
    "from_gpt2_files",
    "from_gpt2_merges",
    "from_llama2c",
    "from_sentencepiece",
    "from_tokenizer_json",
]
