"""The project around the code: what is shipped, pinned, imported and said."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions, version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import orion_ane

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONSTRAINTS = [
    Requirement(line)
    for line in (ROOT / ".ci" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
HEAVY = ("numba", "llvmlite", "torch", "coremltools", "transformers", "tokenizers", "sentencepiece")

# A path of one machine, the host of a package index, an unfinished line, a merge gone wrong.
FORBIDDEN = re.compile(
    r"(?<![\w.:/-])/(home|root|work|Users|mnt|private)/\w"
    r"|\b(pypi\.|pythonhosted\.|download\.pytorch\.|registry\.npmjs\.)\w+"
    r"|\b(TOD[O]|FIXM[E]|XX[X])\b(?! \(#\d+\))"
    r"|^(<{7}|>{7}) "
)


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """What a command prints; its errors are part of the assertion."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def tracked() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout, so nothing says which files are tracked")
    return [ROOT / name for name in run("git", "ls-files", "-z").split("\0") if name]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index")
    run(*pip, "--no-build-isolation", "--wheel-dir", folder, ROOT, cwd=folder)
    (path,) = folder.glob("orion_ane-*.whl")
    return zipfile.ZipFile(path)


def test_the_version_is_stated_once() -> None:
    assert orion_ane.__version__ == version("orion-ane") == PROJECT["project"]["version"]


def test_the_wheel_holds_the_package_its_types_and_its_licence(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    sources = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    assert sources <= names
    assert "orion_ane/py.typed" in names
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "tools/"))]


def test_the_wheel_holds_the_model_that_the_package_carries(wheel: zipfile.ZipFile) -> None:
    folder = ROOT / "src" / "orion_ane" / "models" / "embedded"
    files = sorted(folder.iterdir())
    assert {"model.safetensors", "config.json", "tokenizer.json", "README.md"} <= {
        file.name for file in files
    }
    for file in files:
        shipped = wheel.read(file.relative_to(ROOT / "src").as_posix())
        assert shipped == file.read_bytes()


def test_the_wheel_installs_the_command(wheel: zipfile.ZipFile) -> None:
    (entry,) = (name for name in wheel.namelist() if name.endswith("/entry_points.txt"))
    assert "orion = orion_ane.cli.main:main" in wheel.read(entry).decode()


def test_importing_the_package_imports_nothing_heavy() -> None:
    loaded = run(sys.executable, "-c", "import sys, orion_ane; print(*sys.modules)").split()
    assert not [name for name in HEAVY if name in loaded]


def test_the_public_names_are_seen_before_they_are_used() -> None:
    script = "import orion_ane, sys; print(*dir(orion_ane)); print(*sorted(sys.modules))"
    names, modules = (line.split() for line in run(sys.executable, "-c", script).splitlines())
    assert {*orion_ane.__all__, "__version__"} <= set(names)
    assert not {"numba", "orion_ane.generate.model"} & set(modules)


def test_the_package_never_needs_an_oracle() -> None:
    needed = {Requirement(line).name for line in PROJECT["project"]["dependencies"]}
    oracles = PROJECT["project"]["optional-dependencies"]["oracles"]
    assert not needed & {Requirement(line).name for line in oracles}


def imported(folder: str) -> set[str]:
    """The distributions whose packages the files of a folder import, our own aside."""
    names = set()
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names.add((node.module or "").partition(".")[0])
    homes = packages_distributions()
    found = {home.lower() for name in names for home in homes.get(name, [])}
    return {canonicalize_name(name) for name in found} - {"orion-ane"}


def declared(*lists: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(line).name) for lines in lists for line in lines}


def test_what_the_package_imports_is_what_it_asks_for() -> None:
    # llvmlite is numba's, in the version that numba was built for.
    assert imported("src") - {"llvmlite"} <= declared(PROJECT["project"]["dependencies"])


def test_what_the_tests_import_is_what_the_extras_bring() -> None:
    extras = PROJECT["project"]["optional-dependencies"].values()
    assert imported("tests") <= declared(PROJECT["project"]["dependencies"], *extras)


def test_the_gate_pins_every_dependency_to_a_version_that_the_project_admits() -> None:
    pins = {}
    for pin in CONSTRAINTS:
        (spec,) = pin.specifier
        assert spec.operator == "==", pin
        pins[pin.name.lower()] = spec.version
    extras = PROJECT["project"]["optional-dependencies"].values()
    for line in [*PROJECT["project"]["dependencies"], *(line for e in extras for line in e)]:
        wanted = Requirement(line)
        if wanted.name != PROJECT["project"]["name"]:
            assert wanted.specifier.contains(pins[wanted.name.lower()]), wanted


def test_a_version_that_the_readme_names_is_the_one_the_gate_runs() -> None:
    pins = {str(pin) for pin in CONSTRAINTS}
    named = re.findall(r"[\w-]+==[\w.]+", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert named
    assert set(named) <= pins


def test_hooks_are_local() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert {repo["repo"] for repo in config["repos"]} == {"local"}
    assert {hook["language"] for repo in config["repos"] for hook in repo["hooks"]} == {"system"}


def test_every_marker_is_explained_to_contributors() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for marker in PROJECT["tool"]["pytest"]["ini_options"]["markers"]:
        name, colon, meaning = marker.partition(":")
        assert colon, marker
        assert meaning.strip(), marker
        assert f"`{name}`" in guide, f"CONTRIBUTING.md does not say what {name} marks"


def test_the_gate_is_a_sound_script() -> None:
    run("bash", "-n", ROOT / ".ci" / "run")
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_tracked_files_speak_of_the_project_alone() -> None:
    found = []
    for path in tracked():
        try:
            text = path.read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue  # a binary sample, or one deleted but not yet committed
        lines = text.splitlines()
        found += [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
            for number, line in enumerate(lines, 1)
            if FORBIDDEN.search(line)
        ]
    assert not found, "\n".join(found)


def test_what_is_too_long_fails_the_size_report(tmp_path: Path) -> None:
    sizes = ROOT / "tools" / "sizes.py"
    assert "core: " in run(sys.executable, sizes)
    body = "\n".join(f"    x = {i}" for i in range(80))
    (tmp_path / "long.py").write_text(f"def endless():\n{body}\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, sizes, tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "too long: long.py: endless" in done.stderr


def test_a_core_that_outgrows_an_afternoon_fails_the_size_report(tmp_path: Path) -> None:
    (tmp_path / "mil").mkdir()
    for part in range(8):
        lines = [f"x{i} = {i}" for i in range(450)]
        (tmp_path / "mil" / f"part{part}.py").write_text("\n".join(lines), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "sizes.py", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "core: 3600 of 3000 lines of code, 600 too many" in done.stdout


def test_comments_and_docstrings_do_not_make_the_core_larger(tmp_path: Path) -> None:
    (tmp_path / "ir").mkdir()
    text = '"""Two\nlines."""\n\n# why\ndef one():\n    """What."""\n    return 1  # so\n'
    (tmp_path / "ir" / "small.py").write_text(text, encoding="utf-8")
    assert "core: 2 of" in run(sys.executable, ROOT / "tools" / "sizes.py", tmp_path)


def test_a_release_moves_the_fragments_to_the_top_of_the_book(tmp_path: Path) -> None:
    changelog = (sys.executable, ROOT / "tools" / "changelog.py", "--root", tmp_path)
    (tmp_path / "changelog.d").mkdir()
    fragment = tmp_path / "changelog.d" / "wings.added.md"
    fragment.write_text("It\nflies.\n", encoding="utf-8")
    book = tmp_path / "CHANGELOG.md"
    book.write_text("# Book\n\n<!-- releases -->\n\n## 0.1 (2026-01-01)\n", encoding="utf-8")
    assert "### Added\n\n- It flies." in run(*changelog)
    run(*changelog, "--release", "0.2")
    text = book.read_text(encoding="utf-8")
    assert text.index("## 0.2 (") < text.index("- It flies.") < text.index("## 0.1 (2026-01-01)")
    assert not fragment.exists()


@pytest.mark.parametrize("name", ["wings.md", "wings.new.md", "wings.added.txt"])
def test_a_fragment_of_an_unknown_kind_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "changelog.d").mkdir()
    (tmp_path / "changelog.d" / name).write_text("It flies.\n", encoding="utf-8")
    command = (sys.executable, ROOT / "tools" / "changelog.py", "--check", "--root", tmp_path)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"{name}: want TOPIC.KIND.md" in done.stderr
