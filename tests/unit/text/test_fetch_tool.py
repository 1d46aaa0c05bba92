"""The tool that fetches vocabularies takes them out of the archive, and nothing else."""

from __future__ import annotations

import importlib.util
import io
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).resolve().parents[3] / "tools" / "fetch_llama_vocab.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fetch_llama_vocab", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def archive(path: Path, names: list[str]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = len(name)
            tar.addfile(info, io.BytesIO(name.encode()))
        link = tarfile.TarInfo("p-1/vendor/llama.cpp/models/ggml-vocab-qwen2.gguf")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    return path


def test_only_the_wanted_files_are_taken(tool, tmp_path):
    models = "p-1/vendor/llama.cpp/models/"
    wanted = models + "ggml-vocab-llama-spm.gguf"
    others = [
        models + "ggml-vocab-aquila.gguf",
        "p-1/ggml-vocab-gpt-2.gguf",
        models + "x/" + wanted,
    ]
    others += ["../../ggml-vocab-llama-spm.gguf", "/ggml-vocab-llama-spm.gguf", "p-1"]
    found = dict(tool.members(archive(tmp_path / "a.tar.gz", [*others, wanted])))
    assert found == {"ggml-vocab-llama-spm.gguf": wanted.encode()}


def test_an_archive_of_another_hash_is_refused(tool, tmp_path, monkeypatch):
    archive(tmp_path / "a.tar.gz", [])
    monkeypatch.setattr(tool.subprocess, "run", lambda *_args, **_options: None)
    with pytest.raises(SystemExit, match=r"a\.tar\.gz: not the archive we know: sha256 "):
        tool.download(tmp_path)


def test_what_is_there_already_is_not_fetched_again(tool, tmp_path, monkeypatch, capsys):
    for name in tool.NAMES:
        (tmp_path / name).write_bytes(b"")
    monkeypatch.setattr(sys, "argv", ["fetch", str(tmp_path)])
    monkeypatch.setattr(tool, "download", None)
    tool.main()
    assert capsys.readouterr().out == f"{tmp_path}: 18 files\n"
