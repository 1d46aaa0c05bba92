"""Checks of sizes: axes, ranks, kernels, channels, and what all weights of a program weigh."""

from __future__ import annotations

from collections.abc import Iterator

from orion_ane.ane.limits.claims import Check
from orion_ane.ane.limits.subject import Finding, Subject, literal, type_of
from orion_ane.ir.node import Node
from orion_ane.types import TensorType

AXES = ("", "W", "HW", "CHW", "NCHW", "NCDHW")
"""What the device calls the axes of a value, by rank."""
SPATIAL, LONGEST = 16384, 65536
"""How long an axis W, H or D is at most (ANE107), and any axis (ANE108)."""
CONV_READS = 32000
"""Channels of which a convolution reads fewer (ANE016)."""
LAYER_NORMS = {"ANE192": 1024, "ANE193": 10240}
"""Over so many values no layer norm runs."""
FUSED_ROWS, FUSED_SIDE = 2048, 512
"""Positions of a fused attention at most, and what its shorter side stays below (ANE151)."""
REDUCTIONS = ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min")


def axes_at_most(most: int, letters: str) -> Check:
    """No axis of these letters is longer, in a port or a value."""

    def worst(of: TensorType) -> str:
        named = zip(AXES[of.rank], of.shape, strict=True)
        long = [
            f"axis {axis} {size} > {most}"
            for axis, size in named
            if axis in letters and size > most
        ]
        return ", ".join(long)

    def check(subject: Subject) -> Iterator[Finding]:
        hint = "split the axis"
        for name, of in subject.inputs:
            if message := worst(of):
                yield subject.at_input(name, message, hint)
        for statement in subject.statements:
            for node in statement.nodes:
                if message := worst(node.type):
                    yield subject.at(statement, message, hint)

    return check


def ranks(subject: Subject) -> Iterator[Finding]:
    """Products have at most four axes, and convolutions exactly four."""
    for statement in subject.calls("matmul", "linear", "conv", "conv_transpose"):
        of = type_of(statement.args.get("x"))
        is_conv = statement.op.startswith("conv")
        if of is not None and (of.rank != 4 if is_conv else of.rank > 4):
            want = "rank 4" if is_conv else "at most rank 4"
            yield subject.at(statement, f"x is {of}, want {want}", "reshape it")


def kernel_at_most(most: int, axis: str) -> Check:
    """No convolution's kernel is wider (axis W) or higher (axis H)."""

    def check(subject: Subject) -> Iterator[Finding]:
        for statement in subject.calls("conv", "conv_transpose"):
            of = type_of(statement.args.get("weight"))
            size = of.shape[{"W": -1, "H": -2}[axis]] if of is not None and of.rank == 4 else 0
            if size > most:
                yield subject.at(statement, f"kernel {axis} {size} > {most}", "split the kernel")

    return check


def conv_reads_under(limit: int) -> Check:
    """No convolution reads so many channels."""

    def check(subject: Subject) -> Iterator[Finding]:
        for statement in subject.calls("conv"):
            of = type_of(statement.args.get("x"))
            if of is not None and of.rank == 4 and of.shape[1] >= limit:
                message = f"reads {of.shape[1]} channels, want fewer than {limit}"
                yield subject.at(statement, message, "split the channels and add the parts")

    return check


def runtime_weights(subject: Subject) -> Iterator[Finding]:
    """A convolution whose weight is computed is not grouped and has a batch of one."""
    for statement in subject.calls("conv"):
        x, w = statement.args.get("x"), statement.args.get("weight")
        if not isinstance(w, Node) or subject.op_of(w) in ("const", ""):
            is_input = isinstance(w, Node) and w.op.name == "input"
            if not is_input:
                continue
        of = type_of(x)
        if literal(statement, "groups") not in (1, None):
            yield subject.at(statement, "grouped, with a weight that is computed", "use matmul")
        elif of is not None and of.shape[0] != 1:
            message = f"batch {of.shape[0]}, with a weight that is computed, want 1"
            yield subject.at(statement, message, "use matmul")


def attention_sizes(subject: Subject) -> Iterator[Finding]:
    """The fused attention has one batch, few positions, and a short side."""
    for statement in subject.calls("scaled_dot_product_attention"):
        q, k = type_of(statement.args.get("query")), type_of(statement.args.get("key"))
        if q is None or k is None or q.rank < 3 or k.rank < 3:
            continue
        if not attention_fits(q, k):
            message = f"query {q} on key {k}"
            yield subject.at(statement, message, "spell it with matmul and softmax")


def attention_fits(q: TensorType, k: TensorType) -> bool:
    """Whether a fused attention is right on these."""
    sides = q.shape[-2], k.shape[-2]
    return max(sides) <= FUSED_ROWS and min(sides) < FUSED_SIDE and q.shape[0] == 1


def layer_norm_below(least: int) -> Check:
    """No layer norm is over so long an axis."""

    def check(subject: Subject) -> Iterator[Finding]:
        for statement in subject.calls("layer_norm"):
            of = type_of(statement.args.get("x"))
            if of is not None and of.shape and of.shape[-1] >= least:
                hint = "spell it with reductions over the channels"
                yield subject.at(statement, f"over {of.shape[-1]} values", hint)

    return check


def axis_below(limit: int, *ops: str) -> Check:
    """These ops do not work along an axis longer than `limit`."""

    def check(subject: Subject) -> Iterator[Finding]:
        for statement in subject.calls(*ops):
            of, axis = type_of(statement.args.get("x")), literal(statement, "axis")
            along = axis if isinstance(axis, int) else -1
            if of is not None and -of.rank <= along < of.rank and of.shape[along] > limit:
                yield subject.at(statement, f"along {of.shape[along]} values, want at most {limit}")

    return check


def power_of_two_softmax(subject: Subject) -> Iterator[Finding]:
    """Softmax is along a power of two."""
    for statement in subject.calls("softmax"):
        of, axis = type_of(statement.args.get("x")), literal(statement, "axis")
        if of is not None and isinstance(axis, int) and -of.rank <= axis < of.rank:
            size = of.shape[axis]
            if size & (size - 1):
                yield subject.at(statement, f"along {size} values, no power of two", "pad and mask")


def channel_reductions(subject: Subject) -> Iterator[Finding]:
    """No reduction is along 512 channels or more."""
    for statement in subject.calls(*REDUCTIONS):
        of, axes = type_of(statement.args.get("x")), literal(statement, "axes")
        if of is not None and of.rank == 4 and axes == (1,) and of.shape[1] >= 512:
            yield subject.at(statement, f"over {of.shape[1]} channels", "multiply by a row of ones")


def weight_bytes_at_most(most: int) -> Check:
    """All weights of the program together are no larger."""

    def check(subject: Subject) -> Iterator[Finding]:
        places = {ref: weight.of.nbytes for _, weight, ref in subject.weights}
        total = sum(places.values())
        if subject.files is not None:
            total = max(total, sum(len(memoryview(f).cast("B")) for f in subject.files.values()))
        if total > most:
            statement = subject.weights[0][0]
            message = f"weights of {total} bytes, want at most {most}"
            yield subject.at(statement, message, "split the model into several programs")

    return check


def one_function(subject: Subject) -> Iterator[Finding]:
    """The text has one function."""
    if subject.functions > 1:
        yield Finding("program", f"{subject.functions} functions, want 1", "split the text", None)
