"""Checks of one op upon another: what is computed from what."""

from __future__ import annotations

from collections.abc import Iterator

from orion_ane.ane.limits.claims import Check
from orion_ane.ane.limits.spelling import ELEMENTWISE
from orion_ane.ane.limits.subject import Finding, Subject, is_scalar, literal, type_of
from orion_ane.ir.node import Node
from orion_ane.mil.module import Statement
from orion_ane.mil.written import Constant

PRODUCTS = ("matmul", "linear", "conv")
CURVES = (
    "relu",
    "tanh",
    "sigmoid",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "gelu",
    "silu",
    "erf",
    "softmax",
)


def after(op: str, *makers: str, hint: str) -> Check:
    """An op is not given what one of `makers` just made."""

    def check(subject: Subject) -> Iterator[Finding]:
        for statement in subject.calls(op):
            maker = subject.op_of(statement.args.get("x"))
            if maker in makers:
                yield subject.at(statement, f"directly after {maker}", hint)

    return check


def _cuts_last_axis(statement: Statement) -> bool:
    begin, of = literal(statement, "begin"), type_of(statement.args.get("x"))
    if statement.op not in ("slice_by_index", "slice_by_size") or not isinstance(begin, tuple):
        return False
    return of is not None and len(begin) == of.rank > 0 and begin[-1] != 0


def last_axis_slices(subject: Subject) -> Iterator[Finding]:
    """A slice of the last axis starts at 0."""
    for statement in subject.calls("slice_by_index", "slice_by_size"):
        if _cuts_last_axis(statement):
            begin = literal(statement, "begin")
            message = f"begins at {begin} in the last axis"
            yield subject.at(statement, message, "transpose first, or keep values below 4094")


def joined_slices(subject: Subject) -> Iterator[Finding]:
    """Slices of the last axis that do not start at 0 are not joined again."""
    for statement in subject.calls("concat"):
        values = statement.args.get("values")
        makers = [subject.maker(v) for v in values] if isinstance(values, tuple) else []
        if sum(m is not None and _cuts_last_axis(m) for m in makers) > 1:
            yield subject.at(statement, "joins slices of the last axis", "slice another axis")


def input_slices(subject: Subject) -> Iterator[Finding]:
    """No input is sliced."""
    for statement in subject.calls("slice_by_index"):
        x = statement.args.get("x")
        if isinstance(x, Node) and x.op.name == "input":
            yield subject.at(statement, "slices an input", "give the parts as inputs")


def products_of_joins(subject: Subject) -> Iterator[Finding]:
    """No matmul takes a concat of separate inputs."""
    for statement in subject.calls("matmul"):
        for key in ("x", "y"):
            maker = subject.maker(statement.args.get(key))
            parts = maker.args.get("values") if maker and maker.op == "concat" else None
            if isinstance(parts, tuple) and all(
                isinstance(part, Node) and part.op.name == "input" for part in parts
            ):
                yield subject.at(statement, f"{key} joins inputs", "pack them into one input")


def baked_products(subject: Subject) -> Iterator[Finding]:
    """No matmul takes a constant."""
    for statement in subject.calls("matmul"):
        for key in ("x", "y"):
            value = statement.args.get(key)
            if isinstance(value, Constant) or subject.op_of(value) == "const":
                yield subject.at(statement, f"{key} is a constant", "use conv, or an input")


def wide_runtime_products(subject: Subject) -> Iterator[Finding]:
    """No matmul takes two computed operands of four axes."""
    for statement in subject.calls("matmul"):
        operands = [statement.args.get(key) for key in ("x", "y")]
        ranks = [v.type.rank for v in operands if isinstance(v, Node)]
        if ranks == [4, 4] and "const" not in map(subject.op_of, operands):
            yield subject.at(statement, "two computed operands of rank 4", "use rank 3")


def rank_five_products(subject: Subject) -> Iterator[Finding]:
    """No matmul takes a transpose of five axes."""
    for statement in subject.calls("matmul"):
        for key in ("x", "y"):
            value = statement.args.get(key)
            of = type_of(value)
            if of is not None and of.rank == 5 and subject.op_of(value) == "transpose":
                yield subject.at(statement, f"{key} is a transpose of rank 5", "use rank 4")


def broadcasts(subject: Subject) -> Iterator[Finding]:
    """No elementwise op stretches the last axis of an operand."""
    for statement in subject.calls(*ELEMENTWISE):
        types = [type_of(statement.args.get(key)) for key in ("x", "y")]
        x, y = types
        if x is None or y is None or not x.shape or not y.shape:
            continue
        if x.shape[-1] != y.shape[-1] and not any(
            is_scalar(statement.args.get(key)) for key in ("x", "y")
        ):
            yield subject.at(statement, f"stretches {x} and {y}", "give both the same size")


def sqrt_stretched(subject: Subject) -> Iterator[Finding]:
    """No root is stretched over an axis."""
    for statement in subject.calls(*ELEMENTWISE):
        for key in ("x", "y"):
            value = statement.args.get(key)
            of, result = type_of(value), statement.nodes[0].type
            if of is not None and subject.op_of(value) == "sqrt" and of.shape != result.shape:
                yield subject.at(statement, f"{key} is a root, stretched to {result}", "use pow")


def scaled(message: str, *makers: str, zero: bool = False) -> Check:
    """What `makers` made is not multiplied by a scalar (or by zero alone)."""

    def check(subject: Subject) -> Iterator[Finding]:
        for statement in subject.calls("mul"):
            pair = [statement.args.get(key) for key in ("x", "y")]
            for value, other in (pair, pair[::-1]):
                if not isinstance(other, Constant) or not is_scalar(other):
                    continue
                if subject.op_of(value) in makers and (not zero or other.elements[0] == 0):
                    yield subject.at(statement, message, "")

    return check


PATCH, HALF = 128, 64
"""On what is left of a patch beyond half, no curve follows a square (ANE189)."""


def curved_squares(subject: Subject) -> Iterator[Finding]:
    """No curve follows a square on a width whose remainder by 128 is over 64."""
    for op in CURVES:
        for statement in subject.calls(op):
            x = statement.args.get("x")
            of = type_of(x)
            if of is not None and subject.op_of(x) == "square" and of.shape[-1] % PATCH > HALF:
                message = f"follows square on width {of.shape[-1]}"
                yield subject.at(statement, message, "spell the square as mul")


def from_int8(subject: Subject) -> Iterator[Finding]:
    """No product has a weight that is widened from int8 or less."""
    for statement in subject.calls(*PRODUCTS):
        for key in ("weight", "x", "y"):
            maker = subject.op_of(statement.args.get(key))
            if maker in ("constexpr_affine_dequantize", "constexpr_blockwise_shift_scale"):
                hint = "keep activations below 4094"
                yield subject.at(statement, f"{key} is widened from int8", hint)


def patches(subject: Subject) -> Iterator[Finding]:
    """No convolution strides over patches as large as its kernel."""
    for statement in subject.calls("conv"):
        strides, of = literal(statement, "strides"), type_of(statement.args.get("weight"))
        if of is None or of.rank != 4 or max(of.shape[2:]) == 1 or strides != of.shape[2:]:
            continue
        yield subject.at(statement, f"strides {strides} are the kernel", "slice the patches")


def wide_casts(subject: Subject) -> Iterator[Finding]:
    """No value inside is fp32."""
    for statement in subject.calls("cast"):
        if literal(statement, "dtype") == "fp32":
            yield subject.at(statement, "casts to fp32", "stay in fp16")


def int_casts(subject: Subject) -> Iterator[Finding]:
    """Nothing is cast to int32."""
    for statement in subject.calls("cast"):
        if literal(statement, "dtype") == "int32":
            yield subject.at(statement, "casts to int32", "")


def top_three(subject: Subject) -> Iterator[Finding]:
    """Topk is not asked for 3 or 4."""
    for statement in subject.calls("topk"):
        if literal(statement, "k") in (3, 4):
            yield subject.at(statement, f"k {literal(statement, 'k')}", "ask for 5 and drop some")


def reflected_pads(subject: Subject) -> Iterator[Finding]:
    """No pad reflects, and nothing is resized or cropped by the texture engine."""
    for statement in subject.calls("pad"):
        if literal(statement, "mode") == "reflect":
            yield subject.at(statement, "reflects", "pad with zeros")
    for statement in subject.calls(
        "resize", "resize_bilinear", "resize_nearest_neighbor", "crop_resize", "affine", "resample"
    ):
        yield subject.at(statement, f"{statement.op} needs the texture engine")
