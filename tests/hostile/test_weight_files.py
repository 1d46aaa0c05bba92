"""Damaged and hostile weight files: an error that names the file, in bounded time and memory."""

from __future__ import annotations

import json
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import toy_gpt2
from weightfiles import (
    LLAMA,
    Gguf,
    llama_tensors,
    safetensors_bytes,
    with_header,
    write_llama2c,
    write_llama2c_tokenizer,
)

from orion_ane.errors import CheckpointError, ConfigError
from orion_ane.models.weights import load_checkpoint
from orion_ane.models.weights.gguf_file import open_gguf
from orion_ane.models.weights.safetensors import open_safetensors

MODEST = 4 << 20  # bytes a refusal may take, whatever the file says


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory):
    tensors = llama_tensors(np.random.default_rng(1), LLAMA | {"layers": 1})
    made = Gguf(sizes=LLAMA | {"layers": 1}).add_llama(tensors)
    made.meta |= {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a", "b", "c"]}
    made.meta |= {"tokenizer.ggml.scores": [1.0, 2.0, 3.0], "tokenizer.chat_template": "x" * 50}
    return made.write(tmp_path_factory.mktemp("gguf") / "model.gguf")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return toy_gpt2(tmp_path_factory.mktemp("hf"))


@pytest.fixture(scope="module")
def weights(folder):
    return (folder / "model.safetensors").read_bytes()


def outcome(path):
    """`loaded`, or the message of one of our errors; anything else is a failure of the test."""
    try:
        load_checkpoint(path)
    except (CheckpointError, ConfigError) as error:
        return str(error)
    return "loaded"


def refuse(path, match="model"):
    """What loading says, which takes little memory."""
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match=match) as error:
            load_checkpoint(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MODEST
    return str(error.value)


class TestSafetensors:
    def put(self, folder, data):
        (folder / "model.safetensors").write_bytes(data)
        return folder

    def test_three_ways_to_cut_it_give_three_errors_W15(self, tmp_path, folder, weights):
        (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
        length = struct.unpack("<Q", weights[:8])[0]
        told = [
            refuse(self.put(tmp_path, weights[:-1]), "cut short: got"),
            refuse(self.put(tmp_path, weights[: 8 + length // 2]), "cut short within the header"),
            refuse(self.put(tmp_path, b""), "the file is empty"),
            refuse(self.put(tmp_path, weights[:5]), "cut short: got 5 bytes"),
            refuse(self.put(tmp_path, weights[: 8 + length]), "cut short: got 0 bytes of tensors"),
        ]
        assert all("model.safetensors" in one for one in told)
        assert len(set(told)) == 5

    def check(self, tmp_path, data, match):
        path = tmp_path / "x.safetensors"
        path.write_bytes(data)
        tracemalloc.start()
        try:
            with pytest.raises(CheckpointError, match=match):
                open_safetensors(path)
            assert tracemalloc.get_traced_memory()[1] < MODEST
        finally:
            tracemalloc.stop()

    def test_more_bytes_than_it_says_are_refused(self, tmp_path, weights):
        self.check(tmp_path, weights + b"\0", "bytes after the last tensor: got 1")

    @pytest.mark.parametrize("length", [1 << 63, (1 << 64) - 1, 1 << 40, 33 << 20])
    def test_an_absurd_header_is_not_read(self, tmp_path, length):
        self.check(tmp_path, struct.pack("<Q", length) + b"{}", "absurdly long")

    @pytest.mark.parametrize(
        ("entry", "match"),
        [
            ({"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}, "another size than its shape"),
            ({"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}, "another size than its shape"),
            ({"dtype": "F4", "shape": [7], "data_offsets": [0, 4]}, "another size than its shape"),
            ({"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}, "unknown type: got F99"),
            ({"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}, "not described as a tensor"),
            ({"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}, "not described as a tensor"),
            ({"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}, "not described as a"),
            ({"dtype": "F32", "shape": 1, "data_offsets": [0, 4]}, "not described as a tensor"),
            ({"dtype": "F32", "shape": [1], "data_offsets": [0]}, "not described as a tensor"),
            ({"dtype": "F32", "shape": [1], "data_offsets": [0, "4"]}, "not described as a"),
            ({"dtype": 5, "shape": [1], "data_offsets": [0, 4]}, "not described as a tensor"),
            ({"shape": [1], "data_offsets": [0, 4]}, "not described as a tensor"),
            ({"dtype": "F32", "shape": [1], "data_offsets": [0, 4], "x": 1}, "not described as a"),
            ([1, 2], "not described as a tensor"),
            ({"dtype": "F32", "shape": [1] * 99, "data_offsets": [0, 4]}, "an absurd shape"),
            ({"dtype": "F32", "shape": [1 << 62] * 3, "data_offsets": [0, 4]}, "an absurd shape"),
            ({"dtype": "F32", "shape": [0, 1 << 62], "data_offsets": [0, 4]}, "another size"),
            ({"dtype": "F32", "shape": [1], "data_offsets": [1, 5]}, "leaves a gap"),
        ],
    )
    def test_an_entry_that_contradicts_itself_is_refused(self, tmp_path, entry, match):
        self.check(tmp_path, with_header({"w": entry}, bytes(4)), match)

    def test_tensors_may_not_overlap_or_leave_gaps(self, tmp_path):
        one = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
        for offsets, match in (([4, 12], "overlaps"), ([0, 8], "overlaps"), ([12, 20], "a gap")):
            other = one | {"data_offsets": offsets}
            self.check(tmp_path, with_header({"a": one, "b": other}, bytes(20)), match)

    @pytest.mark.parametrize(
        ("text", "match"),
        [
            (b"[]", "not a JSON object: got list"),
            (b"{", "not JSON"),
            (b"", "not JSON"),
            (b"\xff\xfe", "not JSON"),
            (b'{"a": NaN}', "NaN is no JSON number"),
            (b'{"a": 1, "a": 2}', "'a' stands twice"),
            (b'{"a": ' * 20_000, "nested too deeply"),
            (b'{"a": ' + b"9" * 10_000 + b"}", "not JSON"),
            (b'{"__metadata__": {"a": 1}}', "__metadata__ is not a map of texts"),
            (b'{"__metadata__": []}', "__metadata__ is not a map of texts"),
        ],
    )
    def test_a_header_that_is_not_one_is_refused(self, tmp_path, text, match):
        self.check(tmp_path, with_header(text), match)

    def test_doubled_names_are_found_in_linear_time(self, tmp_path):
        names = b", ".join(b'"n%d": 1' % i for i in range(60_000))
        path = tmp_path / "x.safetensors"
        path.write_bytes(with_header(b"{" + names + b', "n59999": 1}'))
        with pytest.raises(CheckpointError, match="'n59999' stands twice"):
            open_safetensors(path)

    @settings(max_examples=150)
    @given(data=st.data())
    def test_no_damage_goes_further_than_an_error(self, tmp_path_factory, data):
        tensors = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(2, np.float16)}
        raw = bytearray(safetensors_bytes(tensors, {"c": "a"}))
        for _ in range(data.draw(st.integers(1, 4))):
            at = data.draw(st.integers(0, len(raw) - 1))
            raw[at] = data.draw(st.integers(0, 255))
        path = tmp_path_factory.mktemp("x") / "x.safetensors"
        path.write_bytes(raw[: data.draw(st.integers(0, len(raw)))])
        try:
            opened = open_safetensors(path)
        except CheckpointError:
            return
        for tensor in opened.tensors.values():
            if tensor.read is not None:
                assert tensor.read().shape == tensor.shape


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("text", [b"", b"[1]", b"{", b"\xff", b'{"a": ' * 20_000])
def test_json_files_that_are_none_are_named(tmp_path, folder, name, text):
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / name).write_bytes(text)
    assert name in refuse(tmp_path, "not JSON|not a JSON object")


CONFIG_FIELDS = (
    "vocab_size",
    "n_positions",
    "n_embd",
    "n_layer",
    "n_head",
    "n_inner",
    "model_type",
    "layer_norm_epsilon",
    "eos_token_id",
    "tie_word_embeddings",
    "activation_function",
)


@settings(max_examples=150)
@given(
    changes=st.dictionaries(
        st.sampled_from(CONFIG_FIELDS),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(max_size=4),
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
            max_leaves=4,
        ),
        min_size=1,
    )
)
def test_any_config_loads_or_is_refused(tmp_path_factory, folder, changes):
    config = json.loads((folder / "config.json").read_text()) | changes
    path = tmp_path_factory.mktemp("x")
    (path / "config.json").write_text(json.dumps(config, allow_nan=False))
    (path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    told = outcome(path)
    assert told == "loaded" or str(path) in told or told.startswith("gpt2: ")


def header(version=3, tensors=0, pairs=0):
    return b"GGUF" + struct.pack("<IQQ", version, tensors, pairs)


def text(value):
    return struct.pack("<Q", len(value)) + value


def info(name=b"w", dims=(4,), kind=0, offset=0):
    packed = struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)
    return text(name) + packed


def padded(data, size=0):
    return data + bytes(-len(data) % 32) + bytes(size)


STRING, ARRAY, UINT32, UINT64 = 8, 9, 4, 10
HOSTILE_GGUF = {
    "nothing": (b"", "the file is empty"),
    "another magic": (b"GGML" + bytes(60), "not a GGUF file: got b'GGML'"),
    "magic alone": (b"GGUF", "cut short within the version"),
    "version 1": (header(1), "version that is not read: got 1"),
    "version 0": (header(0), "version that is not read: got 0"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "got 50331648, big-endian"),
    "tensors without end": (header(tensors=1 << 63), "an absurd number of tensors"),
    "pairs without end": (header(pairs=(1 << 64) - 1), "an absurd number of keys"),
    "pairs that are not there": (header(pairs=60_000), "cut short within key"),
    "tensors that are not there": (header(tensors=60_000), "cut short within tensor name"),
    "a key without end": (header(pairs=1) + struct.pack("<Q", 1 << 62), "absurdly long key"),
    "a key that is no text": (header(pairs=1) + text(b"\xff\xff"), "key is not UTF-8"),
    "a text without end": (
        header(pairs=1) + text(b"k") + struct.pack("<IQ", STRING, (1 << 64) - 1),
        "cut short within k",
    ),
    "an unknown kind": (
        header(pairs=1) + text(b"k") + struct.pack("<I", 99),
        "unknown type: got 9",
    ),
    "a list without end": (
        header(pairs=1) + text(b"k") + struct.pack("<IIQ", ARRAY, UINT64, 1 << 61),
        "an absurd length of k",
    ),
    "a list that is not there": (
        header(pairs=1) + text(b"k") + struct.pack("<IIQ", ARRAY, UINT64, 1 << 22),
        "cut short within k",
    ),
    "texts that are not there": (
        header(pairs=1) + text(b"k") + struct.pack("<IIQ", ARRAY, STRING, 1 << 22) + text(b"a"),
        "cut short within k",
    ),
    "texts that run out": (
        header(pairs=1)
        + text(b"k")
        + struct.pack("<IIQ", ARRAY, STRING, 2)
        + text(b"a")
        + struct.pack("<Q", (1 << 64) - 1)
        + bytes(16),
        "cut short within k",
    ),
    "texts that are none": (
        header(pairs=1) + text(b"k") + struct.pack("<IIQ", ARRAY, STRING, 1) + text(b"\xff"),
        "k is not UTF-8",
    ),
    "lists of lists": (
        header(pairs=1) + text(b"k") + struct.pack("<IIQ", ARRAY, ARRAY, 1) + bytes(99),
        "elements of an unknown type: got 9",
    ),
    "a key twice": (
        header(pairs=2) + 2 * (text(b"k") + struct.pack("<II", UINT32, 1)),
        "a key stands twice: got k",
    ),
    "alignment 0": (
        header(pairs=1) + text(b"general.alignment") + struct.pack("<II", UINT32, 0),
        "no such alignment: got 0",
    ),
    "alignment 48": (
        header(pairs=1) + text(b"general.alignment") + struct.pack("<II", UINT32, 48),
        "no such alignment: got 48",
    ),
    "alignment of a text": (
        header(pairs=1) + text(b"general.alignment") + struct.pack("<I", STRING) + text(b"32"),
        "no such alignment: got 32",
    ),
    "many axes": (header(tensors=1) + info(dims=(1,) * 9), "too many axes: got 9"),
    "axes without end": (
        header(tensors=1) + text(b"w") + struct.pack("<I", (1 << 32) - 1),
        "too many axes: got 4294967295",
    ),
    "an absurd shape": (header(tensors=1) + info(dims=((1 << 63), 8)), "an absurd shape"),
    "an empty shape": (header(tensors=1) + info(dims=(4, 0)), "an absurd shape"),
    "an unknown element type": (header(tensors=1) + info(kind=77), "unknown type: got 77"),
    "half a block": (
        header(tensors=1) + info(dims=(33,), kind=8),
        "no whole blocks: got 33",
    ),
    "a tensor twice": (header(tensors=2) + 2 * info(), "a tensor stands twice: got w"),
    "an offset outside": (
        padded(header(tensors=1) + info(offset=1 << 62), 16),
        "cut short within w",
    ),
    "data cut by one": (padded(header(tensors=1) + info(), 15), "cut short within w"),
    "an unaligned offset": (padded(header(tensors=1) + info(offset=4), 64), "not aligned: got 4"),
    "an overlap": (
        padded(header(tensors=2) + info(b"a", (64,)) + info(b"b", (8,), offset=32), 512),
        "b overlaps the one before: got 32, want from 256",
    ),
}


@pytest.mark.parametrize("case", HOSTILE_GGUF)
def test_a_gguf_header_is_believed_only_when_it_fits_the_file(tmp_path, case):
    data, match = HOSTILE_GGUF[case]
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    assert "model.gguf: " in refuse(path, match)


def test_a_gguf_file_cut_anywhere_is_refused(tmp_path, gguf_file):
    path, whole = tmp_path / "model.gguf", gguf_file.read_bytes()
    for end in [*range(0, 3000, 61), *range(3000, len(whole) - 128, 9973)]:
        path.write_bytes(whole[:end])
        with pytest.raises(CheckpointError, match=r"cut short|empty"):
            open_gguf(path)


@settings(max_examples=200)
@given(data=st.data())
def test_no_damage_to_a_gguf_goes_further_than_an_error(tmp_path_factory, gguf_file, data):
    raw = bytearray(gguf_file.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, 2500))
        width, value = data.draw(
            st.sampled_from([(1, 255), (8, 1 << 63), (8, 0), (4, 0), (4, (1 << 32) - 1), (8, 4096)])
        )
        value = data.draw(st.integers(0, 255)) if width == 1 else value
        raw[at : at + width] = value.to_bytes(width, "little")
    path = tmp_path_factory.mktemp("x") / "model.gguf"
    path.write_bytes(raw)
    told = outcome(path)
    assert told == "loaded" or str(path) in told or told.startswith(("rope ", "llama: "))


@settings(max_examples=100)
@given(numbers=st.lists(st.integers(-(1 << 31), (1 << 31) - 1), min_size=7, max_size=7))
def test_any_llama2c_header_is_held_against_the_size(tmp_path_factory, numbers):
    path = tmp_path_factory.mktemp("x") / "model.bin"
    path.write_bytes(struct.pack("<7i", *numbers) + bytes(64))
    refuse(path)


@settings(max_examples=100)
@given(noise=st.binary(max_size=200))
def test_any_tokenizer_beside_a_llama2c_file_fits_or_is_refused(tmp_path_factory, noise):
    path = tmp_path_factory.mktemp("x")
    write_llama2c(path / "model.bin", llama_tensors(np.random.default_rng(0)))
    write_llama2c_tokenizer(path / "tok.bin", [b"ab"] * 96)
    whole = (path / "tok.bin").read_bytes()
    (path / "tok.bin").write_bytes(noise + whole[len(noise) :])
    told = outcome(path / "model.bin")
    assert told == "loaded" or "no tokenizer beside it fits: got tok.bin of" in told
