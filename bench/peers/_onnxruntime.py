"""onnxruntime on a graph of the same shape: keys and values go in and come out, made longer."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _protocol import NotToBeHadError, Rates, drawn, lacking, want

OPSET = 17


def prepare(work: dict[str, Any], stored: str) -> tuple[str, Callable[[], Rates]]:
    """A session, and a run; of single products where they are asked for."""
    if work["what"] != "products":
        want(work, "inference")
    try:
        import onnx  # noqa: F401 - what the graph is written with
        import onnxruntime
    except ModuleNotFoundError as error:
        raise lacking(error, "onnxruntime") from error
    what = f"onnxruntime {onnxruntime.__version__}, {stored}"
    if work["what"] == "products":
        return what, _products(work, stored)
    with tempfile.TemporaryDirectory() as folder:
        path = Writer(work["config"], drawn(work)).save(Path(folder) / "model.onnx")
        if stored == "int8":
            path = quantised(path)
        session = opened(path, work["threads"])
    return what, Run(session, work)


def opened(path: Path, threads: int) -> Any:
    """A session on the processor alone."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])


def quantised(path: Path) -> Path:
    """The same with products of int8, the scale of what goes in found as it runs."""
    import logging

    from onnxruntime.quantization import QuantType, quantize_dynamic

    logging.getLogger().setLevel(logging.ERROR)
    to = path.with_name("int8.onnx")
    only = {"MatMulConstBOnly": True}
    quantize_dynamic(
        path, to, op_types_to_quantize=["MatMul"], weight_type=QuantType.QInt8, extra_options=only
    )
    return to


class Run:
    """Reads the prompt, then takes the likeliest token, again and again."""

    def __init__(self, session: Any, work: dict[str, Any]) -> None:
        self.session, self.ids, self.new = session, work["ids"], work["new"]
        shape = work["config"]
        heads = shape.get("kv_heads", shape["heads"])
        self.empty = (1, heads, 0, shape.get("head_dim", shape["dim"] // shape["heads"]))
        self.layers = shape["layers"]

    def __call__(self) -> Rates:
        """The rates of one run."""
        import numpy as np

        none = np.zeros(self.empty, np.float32)
        cache = [none] * (2 * self.layers)
        start = time.perf_counter()
        token, cache = self.likeliest(self.ids, 0, cache)
        middle = time.perf_counter()
        for i in range(self.new):
            token, cache = self.likeliest([token], len(self.ids) + i, cache)
        end = time.perf_counter()
        return {"prefill": len(self.ids) / (middle - start), "decode": self.new / (end - middle)}

    def likeliest(self, ids: list[int], at: int, cache: list[Any]) -> tuple[int, list[Any]]:
        """The token that follows, and the longer cache."""
        import numpy as np

        n = len(ids)
        mask = np.triu(np.full((n, n), -1e9, np.float32), 1)
        feed = {
            "ids": np.array(ids, np.int64),
            "at": np.arange(at, at + n, dtype=np.int64),
            "mask": np.concatenate([np.zeros((n, at), np.float32), mask], 1),
        }
        feed |= {f"past{i}": array for i, array in enumerate(cache)}
        logits, *cache = self.session.run(None, feed)
        return int(logits[-1].argmax()), cache


class Writer:
    """Writes the graph of a Llama or a GPT-2, op by op, as exporters spell them."""

    def __init__(self, shape: dict[str, Any], tensors: dict[str, Any]) -> None:
        import numpy as np

        if shape["family"] not in ("llama", "gpt2"):
            raise NotToBeHadError(f"no {shape['family']} here")
        if shape.get("kv_heads", shape["heads"]) != shape["heads"]:
            raise NotToBeHadError("it has no grouped heads here")
        self.shape, self.is_llama = shape, shape["family"] == "llama"
        self.tensors = {name: array.astype(np.float32) for name, array in tensors.items()}
        self.nodes: list[Any] = []
        self.weights: dict[str, Any] = {}
        self.outputs: list[str] = []
        self.head = shape.get("head_dim", shape["dim"] // shape["heads"])

    def op(self, kind: str, *args: str, **attributes: Any) -> str:
        """One more op; the name of its value."""
        import onnx

        name = f"v{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(kind, list(args), [name], **attributes))
        return name

    def const(self, value: Any, name: str | None = None) -> str:
        """One more constant."""
        name = name or f"c{len(self.weights)}"
        self.weights[name] = value
        return name

    def ints(self, *values: int) -> str:
        """A list of whole numbers."""
        import numpy as np

        return self.const(np.array(values, np.int64))

    def number(self, value: float) -> str:
        """One number."""
        import numpy as np

        return self.const(np.float32(value))

    def linear(self, x: str, name: str, bias: str | None = None) -> str:
        """x times a weight's transpose."""
        import numpy as np

        y = self.op("MatMul", x, self.const(np.ascontiguousarray(self.tensors[name].T), name))
        return y if bias is None else self.op("Add", y, self.const(self.tensors[bias], bias))

    def norm(self, x: str, gain: str, bias: str | None = None) -> str:
        """RMSNorm, or LayerNorm where there is a bias."""
        g = self.const(self.tensors[gain], gain)
        if bias is not None:
            b = self.const(self.tensors[bias], bias)
            return self.op("LayerNormalization", x, g, b, axis=-1, epsilon=1e-5)
        mean = self.op("ReduceMean", self.op("Pow", x, self.number(2)), axes=[-1], keepdims=1)
        root = self.op("Sqrt", self.op("Add", mean, self.number(1e-5)))
        return self.op("Mul", self.op("Div", x, root), g)

    def heads(self, x: str) -> str:
        """[S, H*D] -> [1, H, S, D]."""
        split = self.op("Reshape", x, self.ints(1, 0, -1, self.head), allowzero=0)
        return self.op("Transpose", split, perm=[0, 2, 1, 3])

    def turned(self, x: str, cos: str, sin: str) -> str:
        """Rotary positions."""
        half, end, last = self.head // 2, self.head, self.ints(-1)
        left = self.op("Slice", x, self.ints(0), self.ints(half), last)
        right = self.op("Slice", x, self.ints(half), self.ints(end), last)
        across = self.op("Concat", self.op("Neg", right), left, axis=-1)
        return self.op("Add", self.op("Mul", x, cos), self.op("Mul", across, sin))

    def attention(self, i: int, h: str, tables: tuple[str, str] | None) -> str:
        """One layer's attention over what came before and itself."""
        biases = [None] * 3 if self.is_llama else [f"layers.{i}.b{n}" for n in "qkv"]
        flat = [self.linear(h, f"layers.{i}.w{n}", b) for n, b in zip("qkv", biases, strict=True)]
        q, k, v = (self.heads(self.op("Unsqueeze", x, self.ints(0))) for x in flat)
        if tables:
            q, k = self.turned(q, *tables), self.turned(k, *tables)
        k = self.op("Concat", f"past{2 * i}", k, axis=2)
        v = self.op("Concat", f"past{2 * i + 1}", v, axis=2)
        self.outputs += [k, v]
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        scaled = self.op("Mul", scores, self.number(self.head**-0.5))
        shares = self.op("Softmax", self.op("Add", scaled, "mask"), axis=-1)
        y = self.op("Transpose", self.op("MatMul", shares, v), perm=[0, 2, 1, 3])
        flat_y = self.op("Reshape", y, self.ints(-1, self.shape["heads"] * self.head))
        return self.linear(flat_y, f"layers.{i}.wo", None if self.is_llama else f"layers.{i}.bo")

    def feed_forward(self, i: int, h: str) -> str:
        """One layer's other half."""
        layer = f"layers.{i}"
        if self.is_llama:
            gate = self.linear(h, f"{layer}.w1")
            gate = self.op("Mul", gate, self.op("Sigmoid", gate))
            up = self.op("Mul", gate, self.linear(h, f"{layer}.w3"))
            return self.linear(up, f"{layer}.w2")
        x = self.linear(h, f"{layer}.w1", f"{layer}.b1")
        cube = self.op("Mul", self.op("Mul", x, x), self.op("Mul", x, self.number(0.044715)))
        inner = self.op("Mul", self.op("Add", x, cube), self.number((2 / 3.141592653589793) ** 0.5))
        gate = self.op("Add", self.op("Tanh", inner), self.number(1))
        gelu = self.op("Mul", self.op("Mul", x, self.number(0.5)), gate)
        return self.linear(gelu, f"{layer}.w2", f"{layer}.b2")

    def tables(self) -> tuple[str, str]:
        """Cosines and sines of the positions."""
        import numpy as np

        rates = 10000.0 ** (-np.arange(0, self.head, 2) / self.head)
        angles = np.outer(np.arange(self.shape["context"]), rates)
        made = [np.tile(f(angles), (1, 2)).astype(np.float32) for f in (np.cos, np.sin)]
        cos, sin = (self.op("Gather", self.const(table), "at", axis=0) for table in made)
        return cos, sin

    def save(self, path: Path) -> Path:
        """Write the whole of it."""
        import onnx

        table = "embed" if self.is_llama else "wte"
        tables = self.tables() if self.is_llama else None
        x = self.op("Gather", self.const(self.tensors[table], "looked up"), "ids", axis=0)
        if not self.is_llama:
            wpe = self.const(self.tensors["wpe"], "wpe")
            x = self.op("Add", x, self.op("Gather", wpe, "at", axis=0))
        first = ("attn_norm", None) if self.is_llama else ("ln1_g", "ln1_b")
        second = ("ffn_norm", None) if self.is_llama else ("ln2_g", "ln2_b")
        for i in range(self.shape["layers"]):
            named = [f"layers.{i}.{n}" if n else None for n in (*first, *second)]
            x = self.op("Add", x, self.attention(i, self.norm(x, *named[:2]), tables))
            x = self.op("Add", x, self.feed_forward(i, self.norm(x, *named[2:])))
        last = self.op("Gather", x, self.ints(-1), axis=0)
        ends = ("norm",) if self.is_llama else ("lnf_g", "lnf_b")
        logits = self.linear(self.norm(last, *ends), "head" if "head" in self.tensors else table)
        onnx.save(self.model(onnx, logits), str(path))
        return path

    def model(self, onnx: Any, logits: str) -> Any:
        """The ops as a model, with its inputs and outputs."""
        info, one, whole = onnx.helper.make_tensor_value_info, onnx.TensorProto, 7
        heads = self.shape.get("kv_heads", self.shape["heads"])
        inputs = [info("ids", whole, ["S"]), info("at", whole, ["S"])]
        inputs.append(info("mask", one.FLOAT, ["S", "T"]))
        size, count = [1, heads, "P", self.head], 2 * self.shape["layers"]
        inputs += [info(f"past{i}", one.FLOAT, size) for i in range(count)]
        outputs = [info(name, one.FLOAT, None) for name in (logits, *self.outputs)]
        weights = [onnx.numpy_helper.from_array(w, name) for name, w in self.weights.items()]
        graph = onnx.helper.make_graph(self.nodes, "decoder", inputs, outputs, weights)
        opsets = [onnx.helper.make_opsetid("", OPSET)]
        return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9)


def _products(work: dict[str, Any], stored: str) -> Callable[[], Rates]:
    """Those products that are in this element type."""
    import numpy as np
    import onnx

    info, float_ = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    made = {}
    for row, (o, k, s) in work["products"].items():
        if row.split()[0] != stored:
            continue
        w = np.ones((k, o), np.float32)
        node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
        graph = onnx.helper.make_graph(
            [node], "product", [info("x", float_, [s, k])], [info("y", float_, [s, o])],
            [onnx.numpy_helper.from_array(w, "w")],
        )  # fmt: skip
        opsets = [onnx.helper.make_opsetid("", OPSET)]
        model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "product.onnx"
            onnx.save(model, str(path))
            session = opened(path, work["threads"])
        made[row] = (session, {"x": np.ones((s, k), np.float32)}, o * k * s / 1e9)
    if not made:
        raise NotToBeHadError(f"no product is in {stored}")

    def once() -> Rates:
        found = {}
        for row, (session, feed, amount) in made.items():
            times, start = 0, time.perf_counter()
            while (taken := time.perf_counter() - start) < 0.05:
                session.run(None, feed)
                times += 1
            found[row] = amount * times / taken
        return found

    return once
