"""What one process compiled, the next need not (case A17)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from safetensors.numpy import load_file, save_file
from toys import toy_gpt2, toy_llama

import orion_ane
from orion_ane.generate.kept import identity_of


@pytest.fixture
def cache(monkeypatch, tmp_path) -> Path:
    monkeypatch.setenv("ORION_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "v1"


def generated(model: Path, *words: str) -> dict:
    """What a new process prints."""
    command = [sys.executable, "-m", "orion_ane", "generate", "--model", str(model), "--json"]
    options = ["--prompt", "ab", "--max-tokens", "3", "--device", "cpu", *words]
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, check=False, env=os.environ.copy()
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def once(model: Path, device: str = "cpu"):
    with orion_ane.load(str(model), device=device, threads=1) as loaded:
        return loaded.generate([1, 2], max_tokens=3)


def test_a_second_process_compiles_nothing_A17(cache, tmp_path):
    model = toy_llama(tmp_path / "m")
    first, second = generated(model), generated(model)
    assert first["compiles"] == first["programs"] == 3
    assert (second["compiles"], second["programs"]) == (0, 3)
    assert second["ids"] == first["ids"]


def test_two_processes_at_once_find_or_make_the_same(cache, tmp_path):
    model = toy_gpt2(tmp_path / "m")
    command = [sys.executable, "-m", "orion_ane", "generate", "--model", str(model), "--json"]
    options = ["--prompt", "ab", "--max-tokens", "3", "--device", "cpu"]
    both = [
        subprocess.Popen(
            [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    found = []
    for process in both:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0
        assert "cache" not in err
        found.append(json.loads(out)["ids"])
    third = generated(model)
    assert found == [third["ids"]] * 2
    assert third["compiles"] == 0


def test_with_one_weight_changed_only_its_program_is_compiled_A17(cache, tmp_path, monkeypatch):
    model = toy_gpt2(tmp_path / "m")
    before = once(model)
    tensors = load_file(model / "model.safetensors")
    tensors["h.1.mlp.c_fc.weight"][3, 4] += 1
    save_file(tensors, model / "model.safetensors")
    changed = once(model)
    assert (before.compiles, changed.compiles) == (3, 2)  # both bodies; the head is as it was
    monkeypatch.setenv("ORION_CACHE", "off")
    assert once(model).ids == changed.ids


@pytest.mark.parametrize("device", ["cpu", "emulator"])
def test_kept_or_not_the_results_are_the_same(cache, tmp_path, monkeypatch, device):
    model = toy_llama(tmp_path / "m")
    first, second = once(model, device), once(model, device)
    assert (first.compiles > 0, second.compiles) == (True, 0)
    assert first.ids == second.ids
    assert first.weight_bytes_per_token == second.weight_bytes_per_token
    monkeypatch.setenv("ORION_CACHE", "off")
    third = once(model, device)
    assert (third.compiles, third.ids) == (first.compiles, first.ids)


def test_other_devices_and_precisions_have_programs_of_their_own(cache, tmp_path):
    model = toy_llama(tmp_path / "m")
    assert once(model, "cpu").compiles > 0
    assert once(model, "emulator").compiles > 0
    assert once(model, "cpu").compiles == once(model, "emulator").compiles == 0


def test_targets_that_differ_in_one_answer_share_no_program(cache, tmp_path):
    model, target = toy_llama(tmp_path / "m"), tmp_path / "probed.json"
    found = []
    for binding in ("sizes", "sizes", "names@output"):
        document = {"name": "probed", "base": "strict", "behaviour": {"binding": binding}}
        target.write_text(json.dumps(document))
        with orion_ane.load(str(model), device="emulator", target=str(target), threads=1) as loaded:
            found.append(loaded.generate([1, 2], max_tokens=3).compiles)
    assert found == [found[0], 0, found[0]]
    assert found[0] > 0


def damage(folder: Path) -> None:
    for file in folder.rglob("*"):
        if file.is_file():
            data = bytearray(file.read_bytes())
            data[len(data) // 2] ^= 1
            file.write_bytes(data)


def test_damaged_entries_are_dropped_and_made_anew(cache, tmp_path, caplog):
    model = quantised(tmp_path / "m.gguf")
    want = once(model)
    damage(cache)
    found = once(model)
    assert (found.compiles, found.ids) == (want.compiles, want.ids)
    dropped = [record.getMessage() for record in caplog.records]
    assert len(dropped) == len(list(cache.iterdir())) == 4  # the weights, and three programs
    assert all("damaged entry of the cache is dropped" in message for message in dropped)
    assert once(model).compiles == 0
    for change in (lambda file: file.write_bytes(b""), Path.unlink):
        for file in cache.rglob("*"):
            if file.is_file():
                change(file)
        assert once(model).ids == want.ids


@pytest.mark.parametrize("name", ["body-0.bin", "head.bin", "model.mil", "entry.json"])
def test_damage_of_any_file_is_seen(cache, tmp_path, caplog, name):
    model = quantised(tmp_path / "m.gguf")
    want = once(model)
    file = next(cache.rglob(name))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert once(model).ids == want.ids
    assert "damaged entry of the cache is dropped" in caplog.text


def quantised(path: Path) -> Path:
    """A Llama of one layer in Q8_0, without a tokenizer."""
    rng = np.random.default_rng(5)
    writer = GGUFWriter(str(path), "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    shapes = {
        "token_embd": (300, 32),
        "blk.0.attn_q": (32, 32),
        "blk.0.attn_k": (16, 32),
        "blk.0.attn_v": (16, 32),
        "blk.0.attn_output": (32, 32),
        "blk.0.ffn_gate": (64, 32),
        "blk.0.ffn_up": (64, 32),
        "blk.0.ffn_down": (32, 64),
    }
    kind = GGMLQuantizationType.Q8_0
    for name, shape in shapes.items():
        array = rng.normal(size=shape).astype(np.float32)
        writer.add_tensor(f"{name}.weight", quantize(array, kind), raw_dtype=kind)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", 1 + rng.normal(size=32).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_quantised_weights_are_read_once(cache, tmp_path, monkeypatch):
    model = quantised(tmp_path / "m.gguf")
    first = once(model)

    def refused(*_: object) -> None:
        raise AssertionError("the file's weights are read again")

    with monkeypatch.context() as patch:
        patch.setattr("orion_ane.models.weights.gguf_file.dequantize", refused)
        second = once(model)
    assert (second.ids, second.compiles) == (first.ids, 0)
    assert list(cache.rglob("head.bin"))
    assert not list(cache.rglob("host.bin"))  # the embedding is the head's


def test_a_file_that_is_written_to_is_another(tmp_path):
    model = toy_llama(tmp_path / "m")
    before = identity_of(model)
    assert identity_of(model) == before
    file = model / "model.safetensors"
    status, data = file.stat(), bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))  # as if it were the old one
    assert identity_of(model) != before


def test_with_the_cache_off_nothing_is_kept(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("ORION_CACHE", "off")
    model = toy_llama(tmp_path / "m")
    assert once(model).compiles == once(model).compiles > 0
    assert not cache.exists()
