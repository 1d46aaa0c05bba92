"""With --json every command gives one object, and the same things have the same names in all."""

from __future__ import annotations

import json

import numpy as np
import pytest
from toys import toy_llama

from orion_ane.cli.main import main

TEXT = "func main<ios18>(tensor<fp16, [1,4]> x) { tensor<fp16, [1,4]> y = tanh(x=x); } -> (y);"
WHERE = ("device", "target", "numerics")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a model, a text, a program, an array, and an adapter."""
    here = tmp_path_factory.mktemp("alike")
    toy_llama(here / "model")
    (here / "tales.txt").write_text("a cat sat and a dog ran. " * 8)
    (here / "a.mil").write_text(TEXT)
    np.save(here / "x.npy", np.ones((1, 4), np.float16))
    learn = ["--data", here / "tales.txt", "--steps", 1, "--batch", 1, "--seq", 8, "--rank", 2]
    learn += ["--device", "cpu", "--model", here / "model", "--export", here / "ad"]
    assert main([*map(str, ["lora", "train", *learn])]) == 0
    assert main(["compile", str(here / "a.mil"), "--out", str(here / "programs")]) == 0
    return here


@pytest.mark.parametrize(
    ("words", "has"),
    [
        ("generate --model model --prompt a --max-tokens 1 --device cpu", ("model", *WHERE)),
        (
            "generate --model model --prompt a --max-tokens 1 --device cpu --adapter ad",
            ("model", "adapter", *WHERE),
        ),
        (
            "train --model model --data tales.txt --steps 1 --seq 8 --device cpu --export new",
            ("model", "out", *WHERE),
        ),
        (
            "lora eval --model model --adapter ad --data tales.txt --seq 8 --device cpu",
            ("model", "adapter", *WHERE),
        ),
        ("lora fuse --model model --adapter ad --out fused", ("model", "adapter", "out", "notes")),
        ("convert model converted", ("model", "out", "notes")),
        ("compile a.mil --out compiled", ("model", "target", "out")),
        ("run programs --input x=x.npy --out results --device cpu", ("out", *WHERE)),
        ("check a.mil", ("target",)),
        ("opt a.mil", ("target",)),
        ("diff a.mil a.mil", ()),
        ("rules", ("target", "rules")),
        ("rules --target m1", ("target", "rules")),
        ("rules ANE004", ()),
        ("bench inference --model model --prompt-tokens 2 --max-tokens 1 --runs 1 --device cpu",
         ("model", "device", "numerics", "weights", "threads")),
    ],
)  # fmt: skip
def test_a_command_gives_one_object_with_the_names_of_all(words, has, place, capsys, monkeypatch):
    monkeypatch.chdir(place)
    main([*words.split(), "--json"])
    out = capsys.readouterr().out
    *steps, found = out.splitlines() if words.startswith("train") else [out]
    document = json.loads(found)
    assert isinstance(document, dict)
    assert not set(has) - set(document)
    assert document.get("model", "model") in ("model", None)
    assert document.get("adapter") in ("ad", None)
    assert document.get("device", "cpu") == "cpu"
    for line in steps:
        assert not set(WHERE) - set(json.loads(line))
