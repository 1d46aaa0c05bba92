"""orion opt: MIL text in, MIL text out."""

from __future__ import annotations

import io
import json
import sys

import pytest

from orion_ane.ane.check import check
from orion_ane.ane.targets import TARGETS
from orion_ane.cli.main import main
from orion_ane.ir import isomorphic
from orion_ane.mil import emit, parse, parse_graph
from orion_ane.passes import PASSES, settle
from orion_ane.passes.legal import LEGAL

TEXT = """func main<ios18>(tensor<fp16, [1,64,1,32]> x, tensor<fp16, [1,512,8,512]> w) {
    tensor<fp16, [1,64,1,32]> a = add(x=x, y=0.0);
    tensor<fp16, [1,64,1,32]> y = gelu(x=a, mode="TANH_APPROXIMATION");
    tensor<fp16, [1,512,8,512]> z = tanh(x=w);
} -> (y, z);
"""


@pytest.fixture
def opt(capsys, tmp_path):
    """Runs the command on a text in a file; gives the exit code, and what it prints."""

    def run(text: str, *words: str) -> tuple[int, str, str]:
        path = tmp_path / "model.mil"
        path.write_text(text, encoding="utf-8")
        code = main(["opt", str(path), *words])
        return (code, *capsys.readouterr())

    return run


def device_form(text: str) -> str:
    return emit(parse_graph(text)).text


def test_without_passes_the_usual_ones_run(opt):
    code, out, err = opt(TEXT)
    assert code == 0
    assert isomorphic(parse_graph(out), settle(parse_graph(TEXT)))
    assert "add" not in out
    assert "nodes: dce,identities,masks,fold,casts,cse 6 -> 4" in err


def test_passes_run_in_order_once_each_and_legalisers_for_the_target(opt):
    code, out, _ = opt(TEXT, "--passes", "gelu, identities", "--target", "paper", "--verify")
    assert code == 0
    assert "gelu" not in out
    assert "y=0.0)" not in out
    code, same, err = opt(TEXT, "--passes", "gelu", "--target", "strict")
    assert isomorphic(parse_graph(same), parse_graph(TEXT))
    assert (code, err) == (0, "nothing changed\n")


@pytest.mark.parametrize("name", ["strict", "m1", "m5"])
def test_for_a_target_alone_the_text_keeps_what_it_demands(opt, name):
    code, out, _ = opt(device_form(TEXT), "--target", name)
    assert code == 0
    assert not check(out, TARGETS[name])
    assert list(parse_graph(out).inputs) == ["a00_x", "a01_w"]


@pytest.mark.parametrize("name", ["paper", "strict", "m1", "m5"])
@pytest.mark.parametrize("op", ['gelu(x=x, mode="EXACT")', "softmax(x=x, axis=1)", "exp(x=x)"])
def test_what_fits_a_target_passes_its_check_and_fits_without_a_change(opt, name, op):
    of = "tensor<fp16, [1,64,1,32]>"
    short = f"func main<ios18>({of} x) {{ {of} y = {op}; }} -> (y);"
    _, fit, said = opt(short, "--target", name)
    assert not check(fit, TARGETS[name])
    assert "ports: x -> a00_x, y -> b00_y; in the form that devices read" in said
    assert opt(fit, "--target", name) == (0, fit, "nothing changed\n")


def test_a_text_keeps_its_form(opt):
    _, short, _ = opt(TEXT, "--passes", "cse")
    assert short.startswith("func main<ios18>(")
    _, whole, _ = opt("// a word first\n" + device_form(TEXT), "--passes", "cse")
    assert whole == device_form(TEXT)
    _, old, _ = opt(device_form(TEXT).replace("program(1.3)", "program(1.0)").replace("18", "16"))
    assert parse(old).dialect.name == "ios16"


def test_sram_writes_behind_each_statement_what_it_works_on(opt):
    code, out, err = opt(TEXT, "--passes", "sram")
    assert (code, err) == (0, "what each statement works on is written behind it\n")
    assert isomorphic(parse_graph(out), parse_graph(TEXT))
    lines = [line.strip() for line in out.splitlines() if "//" in line]
    assert [line.partition("  // ")[2] for line in lines] == [
        "8,256 bytes",  # x, a scalar in a row of its own, and the result
        "8,192 bytes",
        "8,388,608 bytes, over the 2,000,000 that m1 keeps",
    ]
    _, out, _ = opt(TEXT, "--passes", "sram", "--target", "m5")
    assert "over the 4,720,000 that m5 keeps" in out


def test_json_holds_the_text_and_what_each_pass_did(opt):
    code, out, _ = opt(TEXT, "--passes", "identities,cse", "--json")
    document = json.loads(out)
    assert code == 0
    assert parse_graph(document["text"]).outputs
    assert document["target"] is None
    assert document["passes"] == [
        {"function": "main", "name": "identities", "changed": True, "before": 6, "after": 4},
        {"function": "main", "name": "cse", "changed": False, "before": 4, "after": 4},
    ]


def test_a_text_is_piped_in(capsys, monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(TEXT.encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert main(["opt", "-", "--passes", "identities"]) == 0
    assert "add" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "words", "says"),
    [
        (TEXT, ["--passes", "nosuch"], "orion: --passes: no such pass: got nosuch, want casts"),
        (TEXT, ["--passes", "gelu"], "orion: --passes: gelu fits a graph to a target: want a"),
        (TEXT, ["--target", "m9"], "orion: --target: no such target: got m9"),
        ("func main", [], "orion: {path}:1:10: "),
    ],
)
def test_bad_use_is_one_message(opt, tmp_path, text, words, says):
    code, out, err = opt(text, *words)
    assert (code, out) == (2, "")
    assert err.startswith(says.format(path=tmp_path / "model.mil"))


def test_every_pass_is_named_where_one_is_not_known(opt):
    _, _, err = opt(TEXT, "--passes", "nosuch")
    assert set(err.strip().partition("want ")[2].split(", ")) == {*PASSES, "sram", *LEGAL}
