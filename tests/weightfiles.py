"""Checkpoints that tests write: safetensors and llama2.c by hand, GGUF through its package."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import gguf
import numpy as np

LLAMA = {
    "vocab": 96,
    "context": 32,
    "dim": 64,
    "layers": 2,
    "heads": 4,
    "kv_heads": 2,
    "hidden": 96,
}
HEAD_DIM = 16


def safetensors_bytes(tensors, metadata=None, *, dtypes=None):
    """A safetensors file; `dtypes` names the type of arrays that numpy has no type for."""
    names = {"float32": "F32", "float16": "F16", "uint16": "U16", "int64": "I64", "uint8": "U8"}
    header = {} if metadata is None else {"__metadata__": metadata}
    data = b""
    for name, array in tensors.items():
        begin, data = len(data), data + array.tobytes()
        dtype = (dtypes or {}).get(name, names[array.dtype.name])
        header[name] = {
            "dtype": dtype,
            "shape": list(array.shape),
            "data_offsets": [begin, len(data)],
        }
    return with_header(header, data)


def with_header(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def llama_tensors(rng, sizes=LLAMA, *, tied=False, head_dim=HEAD_DIM):
    """Random canonical tensors of a llama, by canonical name."""
    c, f, v = sizes["dim"], sizes["hidden"], sizes["vocab"]
    wide, narrow = sizes["heads"] * head_dim, sizes["kv_heads"] * head_dim
    shapes = {"embed": (v, c), "norm": (c,)} | ({} if tied else {"head": (v, c)})
    for i in range(sizes["layers"]):
        at = f"layers.{i}."
        shapes |= {at + "attn_norm": (c,), at + "ffn_norm": (c,), at + "wq": (wide, c)}
        shapes |= {at + "wk": (narrow, c), at + "wv": (narrow, c), at + "wo": (c, wide)}
        shapes |= {at + "w1": (f, c), at + "w3": (f, c), at + "w2": (c, f)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def interleaved(rows, heads):
    """Half-split rows as neighbouring pairs, row by row: how llama2.c and GGUF store q and k."""
    size = len(rows) // heads
    order = [
        h * size + j + k * size // 2 for h in range(heads) for j in range(size // 2) for k in (0, 1)
    ]
    return rows[order]


def write_llama2c(path: Path, tensors, sizes=LLAMA):
    """The canonical tensors as a llama2.c checkpoint."""
    tied = "head" not in tensors
    header = [sizes[k] for k in ("dim", "hidden", "layers", "heads", "kv_heads")]
    header += [sizes["vocab"] if tied else -sizes["vocab"], sizes["context"]]
    parts = [np.array(header, "<i4").tobytes(), tensors["embed"].tobytes()]
    for name in ("attn_norm", "wq", "wk", "wv", "wo", "ffn_norm", "w1", "w2", "w3"):
        for i in range(sizes["layers"]):
            rows = tensors[f"layers.{i}.{name}"]
            heads = {"wq": sizes["heads"], "wk": sizes["kv_heads"]}.get(name)
            parts.append((interleaved(rows, heads) if heads else rows).tobytes())
    head_dim = sizes["dim"] // sizes["heads"]
    parts += [tensors["norm"].tobytes(), bytes(4 * sizes["context"] * head_dim)]
    parts += [] if tied else [tensors["head"].tobytes()]
    path.write_bytes(b"".join(parts))
    return path


def write_llama2c_tokenizer(path: Path, pieces):
    """A llama2.c tokenizer of these pieces."""
    data = struct.pack("<i", max(map(len, pieces)))
    for i, piece in enumerate(pieces):
        data += struct.pack("<fi", -float(i), len(piece)) + piece
    path.write_bytes(data)
    return path


GGUF_LLAMA = {
    "embed": "token_embd",
    "norm": "output_norm",
    "head": "output",
    "attn_norm": "attn_norm",
    "ffn_norm": "ffn_norm",
    "wq": "attn_q",
    "wk": "attn_k",
    "wv": "attn_v",
    "wo": "attn_output",
    "w1": "ffn_gate",
    "w3": "ffn_up",
    "w2": "ffn_down",
}


class Gguf:
    """A GGUF file to be: a llama by default, which tests then bend."""

    def __init__(self, arch="llama", sizes=LLAMA, *, head_dim=HEAD_DIM):
        self.arch = arch
        self.meta = {
            f"{arch}.context_length": sizes["context"],
            f"{arch}.embedding_length": sizes["dim"],
            f"{arch}.block_count": sizes["layers"],
            f"{arch}.feed_forward_length": sizes["hidden"],
            f"{arch}.attention.head_count": sizes["heads"],
            "general.alignment": 32,
        }
        if arch == "llama":
            self.meta |= {
                "llama.attention.head_count_kv": sizes["kv_heads"],
                "llama.attention.layer_norm_rms_epsilon": 1e-5,
                "llama.rope.dimension_count": head_dim,
                "llama.rope.freq_base": 5000.0,
            }
        else:
            self.meta[f"{arch}.attention.layer_norm_epsilon"] = 1e-5
        self.tensors = {}  # name -> (array or bytes of rows, quantisation or None)

    def add(self, name, array, kind=None):
        """A tensor, quantised where a type is given and it is a matrix."""
        self.tensors[name] = (array, kind)
        return self

    def add_llama(self, tensors, sizes=LLAMA, kind=None):
        """The canonical tensors, query and key rows as pairs; vectors stay fp32."""
        for canonical, array in tensors.items():
            at, _, short = canonical.rpartition(".")
            heads = {"wq": sizes["heads"], "wk": sizes["kv_heads"]}.get(short)
            name = at.replace("layers", "blk") + "." * bool(at) + GGUF_LLAMA[short] + ".weight"
            rows = interleaved(array, heads) if heads else array
            self.add(name, rows, kind if array.ndim == 2 else None)
        return self

    def write(self, path: Path):
        """The file."""
        writer = gguf.GGUFWriter(path, self.arch)
        for key, value in self.meta.items():
            self._put(writer, key, value)
        for name, (array, kind) in self.tensors.items():
            if kind is None:
                writer.add_tensor(name, array)
            elif array.dtype == np.uint8:
                writer.add_tensor(name, array, raw_dtype=kind)
            else:
                writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    @staticmethod
    def _put(writer, key, value):
        match value:
            case bool():
                writer.add_bool(key, value)
            case int():
                writer.add_uint32(key, value)
            case float():
                writer.add_float32(key, value)
            case str():
                writer.add_string(key, value)
            case list():
                writer.add_array(key, value)
