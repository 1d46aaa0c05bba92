"""Checks of how a program is spelled: parameters, named constants, dialect, blob references."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from orion_ane.ane.limits.claims import Check
from orion_ane.ane.limits.subject import Finding, Subject, is_scalar, literal
from orion_ane.errors import MilError
from orion_ane.mil.blob import SENTINEL, BlobDType, read_blob
from orion_ane.mil.dialect import OLD
from orion_ane.mil.written import Constant

ELEMENTWISE = ("add", "sub", "mul", "real_div", "pow", "maximum", "minimum")
MAX_FILES = 16
FP16_MAX = 65504
_METADATA_BYTES = 64
_DATA_OFFSET = slice(16, 24)  # of a blob's metadata: u32 sentinel, u32 dtype, u64 size, u64 offset

# Defaults of coremltools 9.0's op registry, for what a concrete value is known.
NEEDED = {
    "rsqrt": {"epsilon": "1e-12"},
    "log": {"epsilon": "1e-45"},
    "inverse": {"epsilon": "1e-4"},
    "gelu": {"mode": '"EXACT"'},
    "concat": {"interleave": "false"},
}
"""Parameters without which devices were seen to refuse the op."""

_REDUCE = {"keep_dims": "false"}
DEFAULTED = {
    "conv": {
        "strides": "[1, 1]",
        "pad_type": '"valid"',
        "pad": "[0, 0, 0, 0]",
        "dilations": "[1, 1]",
        "groups": "1",
    },
    "matmul": {"transpose_x": "false", "transpose_y": "false"},
    "reduce_sum": _REDUCE,
    "reduce_mean": _REDUCE,
    "reduce_max": _REDUCE,
    "reduce_min": _REDUCE,
    "reduce_argmax": {"axis": "-1", **_REDUCE},
    "softmax": {"axis": "-1"},
    "layer_norm": {"epsilon": "1e-5"},
    "pad": {"mode": '"constant"', "constant_val": "0"},
    "leaky_relu": {"alpha": "0.01"},
    "cumsum": {"axis": "0", "exclusive": "false", "reverse": "false"},
    "topk": {"k": "1", "axis": "-1", "ascending": "false"},
}
"""The like of other ops, where the same is to be expected."""


def written_out(table: dict[str, dict[str, str]]) -> Check:
    """Every parameter of the table is given."""

    def check(subject: Subject) -> Iterator[Finding]:
        for op, parameters in table.items():
            for statement in subject.calls(op):
                missing = [key for key in parameters if key not in statement.args]
                if missing:
                    hint = "write " + ", ".join(f"{key} = {parameters[key]}" for key in missing)
                    yield subject.at(statement, f"{', '.join(missing)} not given", hint)

    return check


def no_ops(*ops: str, hint: str = "") -> Check:
    """None of these ops is used."""

    def check(subject: Subject) -> Iterator[Finding]:
        for statement in subject.calls(*ops):
            yield subject.at(statement, f"{statement.op} is refused", hint)

    return check


def no_parameter(op: str, key: str, message: str, hint: str) -> Check:
    """An op is not given a parameter."""

    def check(subject: Subject) -> Iterator[Finding]:
        for statement in subject.calls(op):
            if key in statement.args:
                yield subject.at(statement, message, hint)

    return check


def named_constants(subject: Subject) -> Iterator[Finding]:
    """Every parameter is the name of a constant."""
    for statement in subject.statements:
        if statement.op != "const" and statement.inline:
            message = f"{', '.join(statement.inline)} written in place"
            hint = "give each a const statement of its own, as `orion opt --target` does"
            yield subject.at(statement, message, hint)


def concat_axis(subject: Subject) -> Iterator[Finding]:
    """Concat's axis is a constant that counts from the front."""
    for statement in subject.calls("concat"):
        axis = literal(statement, "axis")
        if not isinstance(axis, int):
            yield subject.at(statement, "axis is no constant", "write axis as a const")
        elif axis < 0:
            yield subject.at(statement, f"axis {axis}", "count the axis from the front")


def scalar_second(subject: Subject) -> Iterator[Finding]:
    """A scalar operand is the second."""
    for statement in subject.calls(*ELEMENTWISE):
        if is_scalar(statement.args.get("x")):
            yield subject.at(statement, "the scalar comes first", "put the tensor first")


def later_text(subject: Subject) -> Iterator[Finding]:
    """The text is program(1.0)."""
    if subject.dialect.version != OLD:
        message = f"program({subject.dialect.version}), want program({OLD})"
        yield Finding("program", message, "write it in the dialect ios16", None)


def fp16_constants(subject: Subject) -> Iterator[Finding]:
    """No constant of the text is beyond fp16."""
    for statement in subject.statements:
        for key, value in statement.args.items():
            if not isinstance(value, Constant) or value.dtype not in ("fp32", "fp16", None):
                continue
            numbers = [e for e in value.elements if isinstance(e, float) and isfinite(e)]
            far = max(numbers, key=abs, default=0.0)
            if abs(far) > FP16_MAX:
                message = f"{key} is {far}, beyond fp16: want at most {FP16_MAX}"
                yield subject.at(statement, message, "a mask takes -1e4")


def mask_constants(subject: Subject) -> Iterator[Finding]:
    """No constant that is added could push a score past fp16's range."""
    for statement in subject.calls("add"):
        for key in ("x", "y"):
            value = statement.args.get(key)
            numbers = value.elements if isinstance(value, Constant) else ()
            low = min((e for e in numbers if isinstance(e, float)), default=0.0)
            if low <= -FP16_MAX / 2:
                yield subject.at(statement, f"{key} has {low}", "a mask takes -1e4")


def subnormal_constants(subject: Subject) -> Iterator[Finding]:
    """No constant is below the smallest normal fp16."""
    for statement in subject.statements:
        for key, value in statement.args.items():
            numbers = value.elements if isinstance(value, Constant) else ()
            small = [e for e in numbers if isinstance(e, float) and 0 < abs(e) < 2.0**-14]
            if small:
                message = f"{key} is {small[0]}, which fp16 may flush to zero"
                yield subject.at(statement, message, "scale the operand instead")


def few_files(subject: Subject) -> Iterator[Finding]:
    """At most sixteen blob files are read."""
    paths = {ref.path for _, _, ref in subject.weights}
    if len(paths) > MAX_FILES:
        statement = subject.weights[-1][0]
        message = f"{len(paths)} blob files, want at most {MAX_FILES}"
        yield subject.at(statement, message, "put the weights in one file")


def few_files_and_scalars(subject: Subject) -> Iterator[Finding]:
    """A scalar operand of add, mul or pow takes the place of a blob file."""
    paths = {ref.path for _, _, ref in subject.weights}
    for statement in subject.calls("add", "mul", "pow"):
        is_first = any(is_scalar(statement.args.get(key)) for key in ("x", "y"))
        if is_first and len(paths) == MAX_FILES:
            message = f"a scalar operand besides {len(paths)} blob files"
            yield subject.at(statement, message, "put the weights in one file")
            return


def one_weight_a_file(subject: Subject) -> Iterator[Finding]:
    """Each weight has a file of its own."""
    seen: dict[str, int] = {}
    for statement, _, ref in subject.weights:
        if seen.setdefault(ref.path, ref.offset) != ref.offset:
            yield subject.at(statement, f"a further weight of {ref.path}", "give it its own file")


def references(subject: Subject) -> Iterator[Finding]:
    """Every blob reference is the place of its metadata, and that fits the weight."""
    for statement, weight, ref in subject.weights:
        if ref.offset < _METADATA_BYTES or ref.offset % _METADATA_BYTES:
            message = f"offset {ref.offset}, want that of the metadata"
            yield subject.at(statement, message, "the first blob of a file is at 64")
            continue
        if subject.files is None:
            continue
        if ref.path not in subject.files:
            yield subject.at(statement, f"no file {ref.path}", "pack it with the program")
            continue
        try:
            blob = read_blob(subject.files[ref.path], ref.offset)
        except MilError as error:
            yield subject.at(statement, str(error), "refer to the metadata, in front of the data")
            continue
        declared = BlobDType.of(weight.of.dtype.numpy) if weight.of.dtype.value != "bool" else None
        if (blob.dtype, blob.count) != (declared, weight.of.elements):
            message = f"{blob.count} {blob.dtype} at {ref.offset}, want {weight.of}"
            yield subject.at(statement, message, "")


def absolute_data(subject: Subject) -> Iterator[Finding]:
    """Every metadata gives the data behind it, counted from the file's start."""
    for statement, _, ref in subject.weights if subject.files else ():
        data = memoryview((subject.files or {}).get(ref.path, b"")).cast("B")
        metadata = data[ref.offset : ref.offset + _METADATA_BYTES]
        start = int.from_bytes(metadata[_DATA_OFFSET], "little")
        is_metadata = int.from_bytes(metadata[:4], "little") == SENTINEL
        if is_metadata and start != ref.offset + _METADATA_BYTES:
            message = f"the metadata at {ref.offset} puts its data at {start}"
            hint = f"want {ref.offset + _METADATA_BYTES}"
            yield subject.at(statement, message, hint)
