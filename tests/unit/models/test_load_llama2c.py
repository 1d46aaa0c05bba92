from __future__ import annotations

import struct

import numpy as np
import pytest
from weightfiles import LLAMA, llama_tensors, write_llama2c, write_llama2c_tokenizer

from orion_ane.errors import CheckpointError
from orion_ane.models.config import LlamaConfig
from orion_ane.models.weights import TokenizerFiles, load_checkpoint, to_half_split, to_interleaved


def test_rows_of_eight_move_as_the_case_says_R01():
    rows = np.arange(8)
    assert to_half_split(rows, 1).tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    assert to_interleaved(rows, 1).tolist() == [0, 4, 1, 5, 2, 6, 3, 7]


def test_each_head_moves_by_itself_and_back_R01(rng):
    rows = rng.normal(size=(3 * 8, 5))
    moved = to_half_split(rows, 3)
    for h in range(3):
        head = slice(8 * h, 8 * h + 8)
        assert np.array_equal(moved[head], rows[head][[0, 2, 4, 6, 1, 3, 5, 7]])
    assert np.array_equal(to_interleaved(moved, 3), rows)


@pytest.mark.parametrize("tied", [True, False])
def test_both_head_variants_come_back_as_they_were(tmp_path, rng, tied):
    tensors = llama_tensors(rng, tied=tied)
    found = load_checkpoint(write_llama2c(tmp_path / "model.bin", tensors))
    assert found.config == LlamaConfig(
        **LLAMA, head_dim=16, tied=tied, norm_eps=1e-5, bos_id=1, eos_ids=(2, 1)
    )
    assert set(found.tensors) == set(tensors)
    for name, want in tensors.items():
        assert np.array_equal(found.tensors[name], want), name
        assert found.tensors[name].flags.c_contiguous
        assert not found.tensors[name].flags.writeable
    assert (found.stored, found.tokenizer) == ("fp32", None)


def test_one_byte_less_or_more_is_refused(tmp_path, rng):
    path = write_llama2c(tmp_path / "model.bin", llama_tensors(rng))
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(CheckpointError, match=rf"model.bin: cut short: got {len(whole) - 1} bytes"):
        load_checkpoint(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(CheckpointError, match=rf"longer than its header says: .*want {len(whole)}"):
        load_checkpoint(path)
    path.write_bytes(whole[:20])
    with pytest.raises(CheckpointError, match="cut short within the header: got 20 bytes"):
        load_checkpoint(path)


@pytest.mark.parametrize("version", [1, 2])
def test_newer_exports_are_refused_by_name(tmp_path, version):
    path = tmp_path / "model.bin"
    path.write_bytes(struct.pack("<II", 0x616B3432, version) + bytes(248))
    with pytest.raises(CheckpointError, match=f"newer llama2.c export: got version {version}"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    "header",
    [
        (0, 96, 2, 4, 2, 96, 32),
        (64, 96, 2, 5, 2, 96, 32),
        (64, 96, 2, 4, 3, 96, 32),
        (60, 96, 2, 4, 2, 96, 32),  # heads of 15: no pairs
        (64, 96, 2, 4, 2, 0, 32),
        (64, 96, -2, 4, 2, 96, 32),
        (64, 96, 1 << 30, 4, 2, 96, 32),
        (0x7FFFFFFF,) * 7,
        (-0x80000000,) * 7,
    ],
)
def test_an_impossible_header_is_refused(tmp_path, header):
    path = tmp_path / "model.bin"
    path.write_bytes(struct.pack("<7i", *header) + bytes(1000))
    with pytest.raises(CheckpointError, match=r"not the header of a llama2\.c checkpoint: got"):
        load_checkpoint(path)


def test_the_tokenizer_beside_it_is_found_by_its_size(tmp_path, rng):
    path = write_llama2c(tmp_path / "model.bin", llama_tensors(rng))
    own = write_llama2c_tokenizer(tmp_path / "tok96.bin", [b"x" * (i % 5 + 1) for i in range(96)])
    write_llama2c_tokenizer(tmp_path / "tokenizer.bin", [b"abc"] * 40)
    assert load_checkpoint(path).tokenizer == TokenizerFiles("llama2c", {"tok96.bin": own})
    assert load_checkpoint(tmp_path).tokenizer == TokenizerFiles("llama2c", {"tok96.bin": own})


def test_tokenizers_that_do_not_fit_or_are_several_are_named(tmp_path, rng):
    path = write_llama2c(tmp_path / "model.bin", llama_tensors(rng))
    write_llama2c_tokenizer(tmp_path / "tok.bin", [b"abc"] * 40)
    (tmp_path / "tok_text.bin").write_bytes(b"\xff" * 50)
    want = "no tokenizer beside it fits: got tok.bin of 40 pieces, tok_text.bin of no pieces"
    with pytest.raises(CheckpointError, match=f"{want}, want 96"):
        load_checkpoint(path)
    for name in ("tok.bin", "tok_text.bin"):
        write_llama2c_tokenizer(tmp_path / name, [b"a"] * 96)
    with pytest.raises(CheckpointError, match=r"several tokenizers fit: got tok\.bin, tok_"):
        load_checkpoint(path)


def test_stories260k_is_what_its_golden_file_says(data_dir):
    found = load_checkpoint(data_dir / "stories260K")
    config = found.config
    assert (config.dim, config.hidden, config.layers, config.vocab) == (64, 172, 5, 512)
    assert (config.heads, config.kv_heads, config.context, config.tied) == (8, 4, 512, True)
    assert sum(array.size for array in found.tensors.values()) == 260_032
    assert set(found.tokenizer.files) == {"tok512.bin"}
    raw = np.fromfile(data_dir / "stories260K/stories260K.bin", "<f4", offset=28)
    rows = raw[512 * 64 + 5 * 64 :][: 64 * 64].reshape(64, 64)  # layer 0's wq
    assert np.array_equal(found.tensors["layers.0.wq"][:8], rows[[0, 2, 4, 6, 1, 3, 5, 7]])
