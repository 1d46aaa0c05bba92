"""The page on `orion generate --json` lists what is printed, in its order, and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from toys import toy_llama

from orion_ane.cli.main import main

PAGE = Path(__file__).resolve().parents[2] / "docs/formats/generations.md"


def tables() -> list[list[str]]:
    """The fields of each table of the page."""
    parts = PAGE.read_text(encoding="utf-8").split("| --- | --- |\n")[1:]
    return [re.findall(r"^\| `(\w+)` \|", part.split("\n\n")[0], re.MULTILINE) for part in parts]


@pytest.mark.parametrize("device", ["cpu", "emulator"])
def test_the_page_lists_what_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], device: str
) -> None:
    words = ["--model", str(toy_llama(tmp_path)), "--device", device, "--prompt", "ab"]
    words += ["--max-tokens", "2", "--json"]
    plain, verified, seen, _ = tables()
    main(["generate", *words])
    assert list(json.loads(capsys.readouterr().out)) == plain
    main(["generate", *words, "--verify"])
    document = json.loads(capsys.readouterr().out)
    assert sorted(document) == sorted(plain + verified)
    found = [tensor for tensor in document["ranges"].values() if tensor is not None]
    assert all(list(tensor) == seen for tensor in found)
    assert found or device == "cpu"


def test_the_page_lists_what_an_error_has(capsys: pytest.CaptureFixture[str]) -> None:
    main(["generate", "--prompt", "a", "--max-tokens", "0", "--json"])
    assert [*json.loads(capsys.readouterr().out)["error"], "violations"] == tables()[-1]
