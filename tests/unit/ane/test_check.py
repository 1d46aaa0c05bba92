"""Laws of check: all violations at once, each with its place, and what our own programs break."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from toys import toy_gpt2, toy_llama

from orion_ane.ane.check import check
from orion_ane.ane.limits import LIMITS
from orion_ane.ane.targets import TARGETS, Target
from orion_ane.cli.main import main
from orion_ane.compiler import compile as compile_graph
from orion_ane.errors import Diagnostic, LimitError, MilError
from orion_ane.mil import Program, pack
from orion_ane.models.build import decoder_of
from orion_ane.models.weights import load_checkpoint
from orion_ane.nn.blocks import Precision
from orion_ane.ops import Weight
from orion_ane.types import DType

FP16 = Precision(DType.FP16, DType.FP16)
STRICT = TARGETS["strict"]

WRONG = """func main<ios18>(tensor<fp32, [1,4,1,33]> x) {
    tensor<fp16, [1,4,1,33]> a = cast(x = x, dtype = "fp16");
    tensor<fp16, [1,4,1,33]> b = gelu(x = a);
    tensor<fp16, [1,4,1,33]> c = nosuch(x = b);
} -> (c);
"""


def only(*codes: str) -> Target:
    return Target("test", frozenset(codes))


def text(width: int) -> str:
    of = f"tensor<fp16, [1,1,1,{width}]>"
    return f"func main<ios18>({of} a) {{ {of} b = relu(x = a); }} -> (b);"


def test_all_violations_come_at_once_the_silent_ones_first() -> None:
    found = check(WRONG, STRICT)
    codes = [d.code for d in found]
    assert codes == ["ANE132", "ANE132", "ANE012", "ANE104", "ANE131", "ANE154", ""]
    assert [(d.line, d.column) for d in found[:3]] == [(1, 18), (5, 7), (2, 5)]
    assert found[0].symptom == "silent wrong"


def test_a_statement_that_no_row_reads_is_said_with_its_place() -> None:
    (unknown,) = check(WRONG, only())
    assert (unknown.where, unknown.line, unknown.symptom) == ("nosuch c", 4, "not known")
    assert unknown.message == "no such op: got nosuch"


def test_a_width_over_the_cap_names_the_axis() -> None:
    """Case A01."""
    for chip in ("m1", "m2", "m3"):
        assert check(text(2 * 512 + 3 * 5120), TARGETS[chip]) == ()
        found = check(text(2 * 512 + 3 * 5632), TARGETS[chip])
        assert {d.message for d in found} == {"axis W 17920 > 16384"}
        assert found[0].where == "input a"
    assert check(text(17920), TARGETS["m4"]) == ()
    assert check(text(65568), TARGETS["m4"])[0].message == "axis W 65568 > 65536"


def test_an_error_holds_and_prints_every_diagnostic() -> None:
    found = check(WRONG, STRICT)
    error = LimitError("strict", found)
    assert error.diagnostics == found
    assert all(str(diagnostic) in str(error) for diagnostic in found)
    assert str(found[0]).startswith("1:18: input x: rows of 132 bytes")
    whole = Diagnostic("ANE109", "rejected", "program", None, None, "m", "h", ("AT",))
    assert str(whole) == "program: m (ANE109, rejected)\n  hint: h"


def test_a_text_that_is_not_mil_is_no_violation() -> None:
    with pytest.raises(MilError, match="unexpected"):
        check("func main<ios18>(", STRICT)


def weighed(offset: int, data: bytes | memoryview, dtype: str = "fp16") -> Program:
    of = f"tensor<{dtype}, [1,4,1,32]>"
    path = "@model_path/weights/w.bin"
    blob = f'BLOBFILE(path = string("{path}"), offset = uint64({offset}))'
    body = f"{of} w = const()[val = {of}({blob})]; {of} b = add(x = a, y = w);"
    return Program(f"func main<ios18>({of} a) {{ {body} }} -> (b);", {path: data}, (), ())


def test_a_blob_reference_meets_its_metadata() -> None:
    data = bytes(pack({"w": np.ones((1, 4, 1, 32), np.float16)}).data)
    assert check(weighed(64, data), only("ANE008", "ANE137")) == ()
    for offset, message in ((0, "offset 0,"), (65, "offset 65,"), (128, "no metadata here")):
        (found,) = check(weighed(offset, data), only("ANE008"))
        assert message in found.message
    (found,) = check(weighed(64, data, "fp32"), only("ANE008"))
    assert found.message == "128 fp16 at 64, want fp32[1,4,1,32]"
    lost = Program(weighed(64, data).text, {}, (), ())
    assert "no file" in check(lost, only("ANE008"))[0].message
    assert check(lost.text, only("ANE008")) == ()


def test_metadata_gives_its_data_from_the_files_start() -> None:
    data = bytearray(pack({"w": np.ones((1, 4, 1, 32), np.float16)}).data) + bytearray(64)
    data[80:88] = (192).to_bytes(8, "little")
    (found,) = check(weighed(64, bytes(data)), only("ANE137"))
    assert found.message == "the metadata at 64 puts its data at 192"


@pytest.mark.parametrize(
    ("files", "scalar", "code"), [(16, 0, ""), (17, 0, "ANE101"), (16, 1, "ANE102")]
)
def test_blob_files_are_counted_and_a_scalar_costs_one(files: int, scalar: int, code: str) -> None:
    of = "tensor<fp16, [1,4,1,32]>"
    lines, last = [], "a"
    for i in range(files):
        blob = f'BLOBFILE(path = string("@model_path/{i}.bin"), offset = uint64(64))'
        lines += [f"{of} w{i} = const()[val = {of}({blob})];"]
        lines += [f"{of} v{i} = add(x = {last}, y = w{i});"]
        last = f"v{i}"
    if scalar:
        lines.append(f"{of} v = mul(x = {last}, y = fp16(2));")
        last = "v"
    body = " ".join(lines)
    found = check(f"func main<ios18>({of} a) {{ {body} }} -> ({last});", only("ANE101", "ANE102"))
    assert [d.code for d in found] == ([code] if code else [])


def test_weights_are_counted_once_a_place_and_have_a_limit() -> None:
    of = "tensor<fp16, [1,65536,1,16384]>"  # 2 GiB
    blob = 'BLOBFILE(path = string("@model_path/w.bin"), offset = uint64({}))'
    lines = "".join(
        f"{of} w{i} = const()[val = {of}({blob.format(offset)})];"
        for i, offset in enumerate((64, 64, 1 << 32))
    )
    head = "func main<ios18>(tensor<fp16, [1,1,1,32]> a) {"
    tail = "tensor<fp16, [1,1,1,32]> b = relu(x = a); } -> (b);"
    (found,) = check(head + lines + tail, only("ANE164"))
    assert found.message == f"weights of {4 << 30} bytes, want at most {2 << 30}"
    assert (
        check(
            head + lines[: lines.rindex("tensor<fp16, [1,65536,1,16384]> w2")] + tail,
            only("ANE164"),
        )
        == ()
    )


def test_every_function_is_checked_and_named() -> None:
    both = WRONG + WRONG.replace("main", "other")
    assert {d.where.split(", ")[0] for d in check(both, only("ANE132"))[:4]} == {"main", "other"}
    assert {d.message for d in check(both, only("ANE168"))[:2]} == {"2 functions, want 1"}


def test_rules_about_old_text_ask_for_old_text() -> None:
    of = "tensor<fp16, [1,4,1,32]>"
    body = f"{of} b = pow(x = a, y = a); }} -> (b);"
    new = f"program(1.3) {{ func main<ios18>({of} a) {{ {body} }}"
    old = f"program(1.0) {{ func main<ios16>({of} a) {{ {body} }}"
    assert "ANE213" not in {d.code for d in check(new, only("ANE213"))}
    assert "ANE213" in {d.code for d in check(old, only("ANE213"))}


@pytest.mark.parametrize("cached", [0, 64])
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_our_programs_break_nothing(tmp_path: Path, family: str, cached: int) -> None:
    make = {"gpt2": toy_gpt2, "llama": toy_llama}[family]
    checkpoint = load_checkpoint(make(tmp_path / "model"))
    decoder = decoder_of(checkpoint.config)
    weights = decoder.weights(checkpoint.tensors, FP16)
    graphs = {
        "body": decoder.body(range(2), lanes=32, cached=cached, precision=FP16),
        "head": decoder.head(lanes=32, precision=FP16),
    }
    for name, graph in graphs.items():
        labels = {node.op.label for node in graph.nodes if isinstance(node.op, Weight)}
        arrays = {label: weights[label] for label in labels}
        for target in TARGETS:
            program = compile_graph(graph, arrays, target=target)
            assert not check(program, TARGETS[target]), (name, target)
            ports = (*program.inputs, *program.outputs)
            assert target in ("m1", "paper") or all(port.logical is None for port in ports)


def test_the_command_says_all_and_exits_by_what_it_found(tmp_path: Path, capsys) -> None:
    wrong, right = tmp_path / "wrong.mil", tmp_path / "right.mil"
    wrong.write_text(WRONG)
    right.write_text(text(32))
    assert main(["check", str(right)]) == 0
    assert capsys.readouterr().err == "1 program, 0 violations of strict\n"
    assert main(["check", str(wrong)]) == 1
    captured = capsys.readouterr()
    assert captured.out.count("ANE132") == 2
    assert f"{wrong}:1:18: input x: rows of 132 bytes" in captured.out
    assert main(["check", str(wrong), "--json", "--target", "m1"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["target"] == "m1"
    keys = {"file", "code", "symptom", "where", "line", "column", "message", "hint", "sources"}
    assert all(set(violation) == keys for violation in document["violations"])


def test_the_command_checks_every_program_of_a_folder(tmp_path: Path, capsys) -> None:
    data = pack({"w": np.ones((1, 4, 1, 32), np.float16)}).data
    for name, offset in (("good", 64), ("bad", 128)):
        folder = tmp_path / "out" / name
        (folder / "weights").mkdir(parents=True)
        (folder / "weights" / "w.bin").write_bytes(data)
        written = weighed(offset, data).text
        (folder / "model.mil").write_text(written)
    assert main(["check", str(tmp_path / "out"), "--json"]) == 1
    (violation,) = json.loads(capsys.readouterr().out)["violations"]
    assert violation["file"].endswith("bad/model.mil")
    assert violation["code"] == "ANE008"


@pytest.mark.parametrize("content", [b"", b"func", b"\xff"])
def test_the_command_refuses_what_is_not_mil(tmp_path: Path, content: bytes, capsys) -> None:
    (tmp_path / "model.mil").write_bytes(content)
    assert main(["check", str(tmp_path / "model.mil")]) == 2
    assert main(["check", str(tmp_path)]) == 2
    assert main(["check", str(tmp_path / "none")]) == 2
    assert main(["check", str(tmp_path), "--target", "m9"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_the_command_leaves_no_folder(tmp_path: Path, capsys) -> None:
    outside = weighed(64, b"").text.replace("@model_path/weights", "@model_path/../..")
    (tmp_path / "model.mil").write_text(outside)
    assert main(["check", str(tmp_path)]) == 2
    assert "not a path in the program" in capsys.readouterr().err


def test_rules_lists_and_explains(capsys) -> None:
    assert main(["rules"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(LIMITS)
    assert main(["rules", "ane132"]) == 0
    assert "holds for: strict, m1, m2, m3, m4, m5" in capsys.readouterr().out
    assert main(["rules", "ANE003", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record.keys() >= {
        "code",
        "title",
        "scope",
        "symptom",
        "disputed",
        "sources",
        "holds_for",
    }
    assert record["disputed"] is True
    assert main(["rules", "--target", "paper", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert (listed["target"], len(listed["rules"])) == ("paper", 20)
    assert main(["rules", "ANE999"]) == 2
    assert main(["rules", "ANE101", "--target", "paper"]) == 2


def test_a_constant_that_fp16_cannot_hold_is_said_in_its_place() -> None:
    of = "tensor<fp16, [1,4,1,32]>"
    mask = f"func main<ios18>({of} a) {{\n {of} b = add(x = a, y = fp16(-1e9)); }} -> (b);"
    (found,) = check(mask, only())
    assert (found.line, found.column, found.where) == (2, 2, "add b")
    assert "does not fit fp16: got -1000000000.0, want at most 65504.0" in found.message


def test_many_violations_have_their_places() -> None:
    of = "tensor<fp16, [1,4,1,32]>"
    lines = [f"  {of} v{i} = add(x = a, y = fp16(2));" for i in range(300)]
    body = "\n".join([f"func main<ios18>({of} a) {{", *lines, "} -> (v299);"])
    found = check(body, only("ANE012"))
    assert [(d.line, d.column) for d in found] == [(i + 2, 3) for i in range(300)]
