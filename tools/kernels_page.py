"""Write docs/kernels.md from the table of kernels; --check only says whether it is stale."""

from __future__ import annotations

import sys
from inspect import Parameter, cleandoc
from pathlib import Path

from orion_ane.bench.shapes import SHAPES
from orion_ane.ir import Graph
from orion_ane.models.config import ModelConfig
from orion_ane.models.paper import KERNELS, KernelBuilder
from orion_ane.ops import Weight

PAGE = Path(__file__).resolve().parent.parent / "docs" / "kernels.md"

STORIES110M, GPT2_124M = SHAPES["llama-110m"], SHAPES["gpt2-124m"]
SHOWN = {"layer": 0, "layers": range(1), "lanes": 256, "cached": 512}
"""The sizes of the page where a kernel has no default; of several layers, one."""

HEAD = """# Kernels

Every kernel by name: the paper's thirteen, its two with adapters, and three of our own. Written by
`tools/kernels_page.py` from `orion_ane.models.paper.KERNELS`. A builder takes a model's config and
sizes, and gives a graph:

```python
from orion_ane.compiler import compile
from orion_ane.models.config import LlamaConfig
from orion_ane.models.paper import KERNELS

toy = LlamaConfig(
    vocab=64, context=32, dim=16, layers=2, heads=4, kv_heads=2, head_dim=4, hidden=24, tied=True
)
graph = KERNELS["sdpa_bwd2"](toy, lanes=32)
print(compile(graph, target="strict").text)
```

`for_kernel(graph, config, tensors, precision)` gives its weights: the model's, transposed copies
of matrices for the backward kernels (`layers.0.wq_t`), and causal masks (`causal_256`). `tensors`
are a checkpoint's, by their [canonical names](formats/checkpoints.md#canonical-names):

```python
import numpy as np
from orion_ane.compiler import compile
from orion_ane.models.config import LlamaConfig
from orion_ane.models.paper import KERNELS, for_kernel
from orion_ane.nn.blocks import Precision
from orion_ane.runtime import backend
from orion_ane.types import DType

toy = LlamaConfig(
    vocab=64, context=32, dim=16, layers=2, heads=4, kv_heads=2, head_dim=4, hidden=24, tied=True
)
shapes = {"ffn_norm": (16,), "w1": (24, 16), "w3": (24, 16), "w2": (16, 24)}
tensors = {f"layers.0.{name}": np.full(shape, 0.1, np.float32) for name, shape in shapes.items()}

graph = KERNELS["fwd_ffn"](toy, layer=0, lanes=32)
weights = for_kernel(graph, toy, tensors, Precision(DType.FP16, DType.FP16))
kernel = backend("emulator", target="m4").compile(compile(graph, weights, target="m4"))
outputs = kernel.run({"x": np.ones((1, 16, 1, 32), np.float16)})
print({name: value.shape for name, value in outputs.items()})
```

- Any model of the family: any width, grouped heads, any number of lanes. Sizes without a default
  must be given; what means nothing is refused by name.
- Ports are those of the paper, in name, packing and type. `ports=` makes all of them fp16 or fp32;
  `precision=` chooses the types inside.
- Heads lie in the programs' own order, [group, key head] (`Llama.weights`), in `q`, `attn_out`,
  `pf`, `dpf`, `dqf`, and in the rows of adapters beside wq and wo.
- Each is held to torch in float64, to its golden text, and to the limits of `strict`; the backward
  kernels also to the derivative of the forward ones (`tests/unit/autodiff/test_hand_shaped.py`).

## What the paper's own code had wrong

What our kernels do otherwise, read in its source and its reported runs:

- **No positions.** No kernel of Stories turned queries and keys, and a run from trained weights
  began at a loss of 12 to 14, where a guess among 32,000 tokens has 10.37. `fwd_attn` and
  `lora_attn` take the rotary tables as inputs, always; `sdpa_bwd2` takes them to turn the
  cotangents back.
- **Norms that overflow.** Squares are summed over 768 channels in fp16: infinite once their root
  mean square is above 9.2. Here each lane is first divided by its largest magnitude.
- **Outputs in an order of their own**, and bound in that order, where the device binds by name.
  Here ports are ordered when a program is compiled.
- **Rows of 32 bytes.** Adapters of rank 16, in fp16, fill half of the 64 bytes that several reports
  want of a row. Here such ports grow when a program is compiled.
- **One shape.** As many key heads as query heads, channels that are heads times their size, a
  sequence that the config fixes (256 in `classifier_fwd`, whatever it says).

## The table

"""


def page() -> str:
    """The whole text."""
    return HEAD + "\n".join(line for kernel in KERNELS.values() for line in _kernel(kernel))


def _kernel(kernel: KernelBuilder) -> list[str]:
    """A kernel's purpose, sizes and ports at the size of each model."""
    purpose = cleandoc(kernel.build.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    sizes = ", ".join(f"`{_size(*size)}`" for size in kernel.sizes.items())
    lines = [f"### {kernel.name}", "", f"{purpose} Sizes: {sizes}.", ""]
    models: dict[str, ModelConfig] = {"Stories110M": STORIES110M, "GPT-2 124M": GPT2_124M}
    for name, config in models.items():
        if config.family in kernel.families:
            lines += _ports(name, _built(kernel, config))
    return [*lines, ""]


def _size(name: str, default: object) -> str:
    return name if default is Parameter.empty else f"{name}={default}"


def _built(kernel: KernelBuilder, config: ModelConfig) -> Graph:
    sizes = {
        name: SHOWN[name]
        for name, default in kernel.sizes.items()
        if default is Parameter.empty or name == "layers"
    }
    return kernel(config, **sizes)


def _ports(name: str, graph: Graph) -> list[str]:
    sides = [
        ", ".join(f"`{port}` {node.type}" for port, node in ports.items())
        for ports in (graph.inputs, graph.outputs)
    ]
    labels = sorted({n.op.label for n in graph.nodes if isinstance(n.op, Weight)})
    weights = ", ".join(f"`{label.removeprefix('layers.0.')}`" for label in labels) or "none"
    kinds = zip(("in", "out", "weights"), (*sides, weights), strict=True)
    return [f"- {name}", *(f"  - {kind}: {text}" for kind, text in kinds)]


def main() -> None:
    """Write the page, or compare it."""
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != page():
        sys.exit(f"{PAGE.name} is stale: run tools/kernels_page.py")


if __name__ == "__main__":
    main()
