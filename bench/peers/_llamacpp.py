"""llama.cpp by its own C functions, on a GGUF file: one that is there, or of random weights."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _protocol import NotToBeHadError, Rates, drawn, lacking, want

LLAMA = {
    "attn_norm": "attn_norm", "ffn_norm": "ffn_norm", "wq": "attn_q", "wk": "attn_k",
    "wv": "attn_v", "wo": "attn_output", "w1": "ffn_gate", "w3": "ffn_up", "w2": "ffn_down",
}  # fmt: skip
GPT2 = {
    "ln1_g": "attn_norm.weight", "ln1_b": "attn_norm.bias", "wo": "attn_output.weight",
    "bo": "attn_output.bias", "ln2_g": "ffn_norm.weight", "ln2_b": "ffn_norm.bias",
    "w1": "ffn_up.weight", "b1": "ffn_up.bias", "w2": "ffn_down.weight", "b2": "ffn_down.bias",
}  # fmt: skip
OUTER = {
    "embed": "token_embd.weight", "wte": "token_embd.weight", "wpe": "position_embd.weight",
    "norm": "output_norm.weight", "head": "output.weight", "lnf_g": "output_norm.weight",
    "lnf_b": "output_norm.bias",
}  # fmt: skip


def prepare(work: dict[str, Any], stored: str) -> tuple[str, Callable[[], Rates]]:
    """A file opened, and a run."""
    want(work, "inference")
    try:
        import llama_cpp
    except ModuleNotFoundError as error:
        raise lacking(error, "llamacpp") from error
    what = f"llama.cpp of llama-cpp-python {llama_cpp.__version__}, "
    if stored == "file":
        path = Path(work["model"])
        if path.suffix != ".gguf":
            raise NotToBeHadError("it reads GGUF files only")
        return what + path.name, Run(llama_cpp, path, work)
    if "tensors" not in work:
        raise NotToBeHadError("it draws random weights: take `llamacpp` for a file")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.gguf"
        write(path, work, stored)
        return what + stored.upper(), Run(llama_cpp, path, work)  # mapped: it may lose its name


class Run:
    """Reads the prompt, then takes the likeliest token, again and again."""

    def __init__(self, lib: Any, path: Path, work: dict[str, Any]) -> None:
        self.lib, self.ids, self.new = lib, work["ids"], work["new"]
        lib.llama_log_set(SILENT(lib), None)
        lib.llama_backend_init()
        self.model = lib.llama_model_load_from_file(
            str(path).encode(), lib.llama_model_default_params()
        )
        if not self.model:
            raise NotToBeHadError(f"it cannot load {path.name}")
        options = lib.llama_context_default_params()
        options.n_ctx = len(self.ids) + self.new
        options.n_batch = options.n_ubatch = max(512, len(self.ids))
        options.n_threads = options.n_threads_batch = work["threads"]
        self.context = lib.llama_init_from_model(self.model, options)
        self.vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))

    def __call__(self) -> Rates:
        """The rates of one run."""
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)
        start = time.perf_counter()
        token = self.likeliest(self.ids)
        middle = time.perf_counter()
        for _ in range(self.new):
            token = self.likeliest([token])
        end = time.perf_counter()
        return {"prefill": len(self.ids) / (middle - start), "decode": self.new / (end - middle)}

    def likeliest(self, ids: list[int]) -> int:
        """The token that follows."""
        import numpy as np

        lib = self.lib
        fed = (lib.llama_token * len(ids))(*ids)
        if lib.llama_decode(self.context, lib.llama_batch_get_one(fed, len(ids))):
            raise RuntimeError("llama_decode")
        logits = lib.llama_get_logits_ith(self.context, -1)
        return int(np.ctypeslib.as_array(logits, (self.vocab,)).argmax())


def SILENT(lib: Any) -> Any:  # noqa: N802 - it stands for a value, which must outlive the call
    """A callback that swallows what the library says of each tensor."""
    global _kept  # noqa: PLW0603 - the library calls it as long as the process lives
    _kept = lib.llama_log_callback(lambda *_: None)
    return _kept


_kept: Any = None


def write(path: Path, work: dict[str, Any], stored: str) -> None:
    """The random weights as a GGUF without a vocabulary's words."""
    import gguf
    import numpy as np

    shape = work["config"]
    family = shape["family"]
    if family not in ("llama", "gpt2"):
        raise NotToBeHadError(f"no {family} here")
    writer = gguf.GGUFWriter(str(path), family)
    writer.add_vocab_size(shape["vocab"])
    writer.add_context_length(shape["context"])
    writer.add_embedding_length(shape["dim"])
    writer.add_block_count(shape["layers"])
    writer.add_feed_forward_length(shape["hidden"])
    writer.add_head_count(shape["heads"])
    writer.add_tokenizer_model("no_vocab")
    if family == "llama":
        writer.add_head_count_kv(shape["kv_heads"])
        writer.add_key_length(shape["head_dim"])
        writer.add_value_length(shape["head_dim"])
        writer.add_rope_dimension_count(shape["head_dim"])
        writer.add_rope_freq_base(10000.0)
        writer.add_layer_norm_rms_eps(1e-5)
    else:
        writer.add_layer_norm_eps(1e-5)
    q8 = gguf.GGMLQuantizationType.Q8_0
    for name, array in named(drawn(work), shape).items():
        if array.ndim == 1 or name.startswith("position"):
            writer.add_tensor(name, array.astype(np.float32))
        elif stored == "q8_0" and array.shape[1] % 32 == 0:
            packed = gguf.quants.quantize(array.astype(np.float32), q8)
            writer.add_tensor(name, packed, raw_dtype=q8)
        else:
            writer.add_tensor(name, np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def named(tensors: dict[str, Any], shape: dict[str, Any]) -> dict[str, Any]:
    """The tensors by GGUF's names; q and k of a Llama with their rotated pairs side by side."""
    import numpy as np

    found, inner = {}, LLAMA if shape["family"] == "llama" else GPT2
    parts: dict[str, dict[str, Any]] = {}
    for name, array in tensors.items():
        if not name.startswith("layers."):
            found[OUTER[name]] = array
            continue
        _, i, short = name.split(".")
        if inner is LLAMA:
            turned = array
            if short in ("wq", "wk"):
                half = array.reshape(-1, 2, shape["head_dim"] // 2, array.shape[1])
                turned = half.swapaxes(1, 2).reshape(array.shape)
            found[f"blk.{i}.{inner[short]}.weight"] = turned
        elif short in inner:
            found[f"blk.{i}.{inner[short]}"] = array
        else:
            parts.setdefault(i, {})[short] = array
    for i, qkv in parts.items():
        found[f"blk.{i}.attn_qkv.weight"] = np.concatenate([qkv[n] for n in ("wq", "wk", "wv")])
        found[f"blk.{i}.attn_qkv.bias"] = np.concatenate([qkv[n] for n in ("bq", "bk", "bv")])
    return found
