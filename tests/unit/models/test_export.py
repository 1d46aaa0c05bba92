from __future__ import annotations

import numpy as np
import pytest
from oracles import oracle
from torch_models import random_tensors, tiny_gpt2, tiny_llama
from toys import toy_gpt2, toy_llama
from vocabularies import gguf_bpe

import orion_ane
from orion_ane.errors import ConfigError
from orion_ane.host.rope import Rope
from orion_ane.models.build import tokenizer_of
from orion_ane.models.weights import TokenizerFiles, load_checkpoint
from orion_ane.models.weights.checkpoint import GgufTokenizer
from orion_ane.models.weights.export import export
from orion_ane.text import from_gguf

LLAMA3 = Rope(
    5e5,
    "llama3",
    (
        ("factor", 8.0),
        ("low_freq_factor", 1.0),
        ("high_freq_factor", 4.0),
        ("original_max_position_embeddings", 8),
    ),
)
CONFIGS = [
    tiny_gpt2(bos_id=1, eos_ids=(1,)),
    tiny_llama(eos_ids=(2, 3), norm_eps=1e-6),
    tiny_llama(tied=False, bos_id=0, rope=LLAMA3),
]


def same(found, config, tensors):
    assert found.config == config
    assert set(found.tensors) == set(tensors)
    assert all(np.array_equal(found.tensors[name], array) for name, array in tensors.items())


@pytest.mark.parametrize("config", CONFIGS)
def test_a_folder_is_read_back_bit_for_bit_and_by_transformers(config, rng, tmp_path):
    tensors = random_tensors(config, rng)
    notes = export(tmp_path / "out", config, tensors)
    assert notes == ["the model has no tokenizer: none was written"]
    same(load_checkpoint(tmp_path / "out"), config, tensors)
    torch, transformers = oracle("torch"), oracle("transformers")
    model, said = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    assert not any(said[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert model.dtype == torch.float32
    ids = rng.integers(0, config.vocab, (1, 12))
    with torch.no_grad():
        got = model(torch.tensor(ids)).logits[0].numpy()
    with orion_ane.load(str(tmp_path / "out"), device="cpu", threads=1) as loaded:
        want = loaded.logits(ids[0].tolist())
    assert np.abs(got - want).max() < 1e-4


@pytest.mark.parametrize("tied", [True, False])
def test_a_llama2c_file_is_read_back_bit_for_bit(tied, rng, tmp_path):
    config = tiny_llama(tied=tied, head_dim=3 * 2, heads=2, kv_heads=1, bos_id=1, eos_ids=(2, 1))
    tensors = random_tensors(config, rng)
    (note,) = export(tmp_path / "new" / "m.bin", config, tensors)
    assert "the model has no tokenizer" in note
    other = TokenizerFiles("huggingface", {})
    (note,) = export(tmp_path / "other" / "m.bin", config, tensors, other)
    assert "a tokenizer.bin beside it, and this tokenizer cannot become one" in note
    same(load_checkpoint(tmp_path / "new" / "m.bin"), config, tensors)


def test_a_size_that_a_gguf_file_rounded_is_what_it_was(rng, tmp_path):
    config = tiny_llama(head_dim=6, heads=2, norm_eps=float(np.float32(1e-5)))
    assert config.norm_eps != 1e-5
    export(tmp_path / "m.bin", config, random_tensors(config, rng))
    assert load_checkpoint(tmp_path / "m.bin").config.norm_eps == 1e-5


def test_a_real_file_is_written_again_as_it_was(data_dir, tmp_path):
    """But for the two rotary tables, which programs compute for themselves."""
    file = data_dir / "stories260K" / "stories260K.bin"
    source = load_checkpoint(file)
    assert export(tmp_path / "m.bin", source.config, source.tensors, source.tokenizer) == []
    got, want = (np.fromfile(path, "<f4") for path in (tmp_path / "m.bin", file))
    assert np.abs(got[7:] - want[7:]).max() < 1e-5  # late positions' angles, in fp32 there
    again = load_checkpoint(tmp_path / "m.bin")
    same(again, source.config, source.tensors)
    text = "Once upon a time"
    assert tokenizer_of(again).encode(text) == tokenizer_of(source).encode(text)
    notes = export(tmp_path / "hf", source.config, source.tensors, source.tokenizer)
    assert notes == ["the tokenizer is llama2.c's: this package reads it, transformers does not"]
    again = load_checkpoint(tmp_path / "hf")
    same(again, source.config, source.tensors)
    assert tokenizer_of(again).encode(text) == tokenizer_of(source).encode(text)


@pytest.mark.parametrize("toy", [toy_llama, toy_gpt2])
def test_tokenizer_files_come_along(toy, tmp_path):
    source = load_checkpoint(toy(tmp_path / "model"))
    assert export(tmp_path / "out", source.config, source.tensors, source.tokenizer) == []
    again = load_checkpoint(tmp_path / "out")
    same(again, source.config, source.tensors)
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == (
        tmp_path / "model" / "tokenizer.json"
    ).read_bytes()
    with pytest.raises(ConfigError, match="is there already"):
        export(tmp_path / "out", source.config, source.tensors)


def test_a_tokenizer_of_a_gguf_file_becomes_files_and_all_have_one_mode(rng, tmp_path):
    fields = gguf_bpe()
    config = tiny_llama(vocab=len(fields["tokenizer.ggml.tokens"]), eos_ids=(1,))
    tensors = random_tensors(config, rng)
    assert export(tmp_path / "out", config, tensors, GgufTokenizer(fields)) == []
    again = load_checkpoint(tmp_path / "out")
    same(again, config, tensors)
    assert tokenizer_of(again).encode("the cat") == from_gguf(fields).encode("the cat")
    assert len({file.stat().st_mode for file in (tmp_path / "out").iterdir()}) == 1


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (tiny_gpt2(), "llama2.c has Llama alone: got gpt2"),
        (tiny_llama(), "one head_dim: got 6, want 3"),
        (tiny_llama(head_dim=6, heads=2, norm_eps=1e-6), "one norm_eps"),
        (tiny_llama(head_dim=6, heads=2, rope=LLAMA3), "one rope"),
    ],
)
def test_what_a_header_cannot_say_is_refused(config, message, rng, tmp_path):
    with pytest.raises(ConfigError, match=message):
        export(tmp_path / "m.bin", config, random_tensors(config, rng))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["out.gguf", "out.safetensors"])
def test_a_file_of_a_format_that_is_not_written_is_refused(name, rng, tmp_path):
    config = tiny_llama()
    with pytest.raises(ConfigError, match=r"give a folder: .*out; or out\.bin"):
        export(tmp_path / name, config, random_tensors(config, rng))
    assert not (tmp_path / name).exists()
