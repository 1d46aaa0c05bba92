"""Make the model that the package carries: text and tokenizer before training, its folder after.

    python tools/story_model.py prepare STORIES.txt WORK
    orion train --from-scratch WORK/shape --data WORK/learnt.txt … --export WORK/trained
    python tools/story_model.py ship WORK/trained OUT

`prepare` takes a text whose documents end with a line `<|endoftext|>`.  Each tenth document goes to
WORK/held-out.txt, which nothing is learnt from, the others to WORK/learnt.txt; and WORK/shape is a
config.json with a tokenizer of at most 1,024 pieces: byte-level BPE with GPT-2's words, of the
learnt documents alone.  `ship` writes a trained model in fp16 with its tokenizer and config.  Both
give the same bytes each time.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

END = "<|endoftext|>"
HELD_OUT = 10  # one document of so many
VOCABULARY = 1024
FIRST, LAST = "<s>", "</s>"  # ids 0 and 1
SHAPE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 172,
    "num_hidden_layers": 5,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 512,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
WEIGHTS = "model.safetensors"
COPIED = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")


def documents(text: str) -> list[str]:
    """The documents of a text, without blank ones."""
    parts = [part.strip("\r\n") for part in text.split(f"{END}\n")]
    return [part for part in parts if part]


def tokenizer_of(texts: Iterable[str], *, vocabulary: int) -> Tokenizer:
    """A byte-level BPE of at most so many pieces; prompts begin with `<s>`."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[FIRST, LAST],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(texts, trainer)
    made.post_processor = processors.TemplateProcessing(
        single=f"{FIRST} $A", special_tokens=[(FIRST, 0)]
    )
    return made


def prepare(stories: Path, work: Path) -> None:
    """Write the learnt and the held-out documents, and the shape of the model."""
    found = documents(stories.read_text(encoding="utf-8"))
    held_out = found[HELD_OUT - 1 :: HELD_OUT]
    learnt = [text for i, text in enumerate(found, 1) if i % HELD_OUT]
    if not learnt or not held_out:
        sys.exit(f"{stories}: {len(found)} documents, want {HELD_OUT} or more")
    shape = work / "shape"
    shape.mkdir(parents=True, exist_ok=True)
    for name, texts in (("learnt.txt", learnt), ("held-out.txt", held_out)):
        (work / name).write_text("".join(f"{text}\n{END}\n" for text in texts), encoding="utf-8")
    tokenizer = tokenizer_of(learnt, vocabulary=VOCABULARY)
    tokenizer.save(str(shape / "tokenizer.json"), pretty=False)
    size = tokenizer.get_vocab_size()
    write_json(shape / "config.json", {**SHAPE, "vocab_size": size})
    write_json(
        shape / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": FIRST,
            "eos_token": LAST,
            "model_max_length": SHAPE["max_position_embeddings"],
            "clean_up_tokenization_spaces": False,
        },
    )
    print(f"{len(learnt)} documents learnt, {len(held_out)} held out, {size} pieces")


def ship(trained: Path, out: Path) -> None:
    """Write a trained model in fp16, its other files as they are."""
    tensors = load_file(trained / WEIGHTS)
    half = {name: tensors[name].astype(np.float16) for name in sorted(tensors)}
    for name, array in half.items():
        if not np.isfinite(array).all():
            sys.exit(f"{name}: a number is too large for fp16")
    out.mkdir(parents=True, exist_ok=True)
    save_file(half, out / WEIGHTS, metadata={"format": "pt"})
    config = json.loads((trained / "config.json").read_text(encoding="utf-8"))
    write_json(out / "config.json", {**config, "torch_dtype": "float16"})
    for name in COPIED:
        shutil.copyfile(trained / name, out / name)
    size = sum((out / name).stat().st_size for name in (WEIGHTS, "config.json", *COPIED))
    print(f"{out}: {sum(array.size for array in half.values()):,} numbers, {size:,} bytes")


def write_json(path: Path, document: dict[str, object]) -> None:
    """Write an object with a key a line."""
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    """Do what the first word says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["prepare", "ship"])
    parser.add_argument("source", type=Path, help="the text, or the folder that was exported")
    parser.add_argument("out", type=Path, help="the folder to write")
    asked = parser.parse_args()
    {"prepare": prepare, "ship": ship}[asked.what](asked.source, asked.out)


if __name__ == "__main__":
    main()
