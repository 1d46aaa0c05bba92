from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orion_ane.runtime.disk_cache import DiskCache, cache_root, default_cache, key_of

SIZE = 1000


def keep(cache: DiskCache, key: str, text: str = "x" * SIZE) -> None:
    cache.keep(key, len(text), lambda folder: (folder / "data").write_text(text) and None)


def age(cache: DiskCache, key: str, seconds: float) -> None:
    folder = cache.find(key)
    then = time.time() - seconds
    os.utime(folder, (then, then))


def held(cache: DiskCache, keys: str) -> str:
    root = cache.root / "v1"
    return "".join(key for key in keys if (root / key).is_dir())


def test_what_is_kept_is_found(tmp_path):
    cache = DiskCache(tmp_path / "made" / "here")
    assert cache.find("a") is None
    keep(cache, "a", "text")
    assert (cache.find("a") / "data").read_text() == "text"
    keep(cache, "a", "another")  # an entry never changes
    assert (cache.find("a") / "data").read_text() == "text"


def test_the_longest_unused_goes_when_the_bound_is_reached(tmp_path):
    cache = DiskCache(tmp_path, most_bytes=4 * SIZE)
    for seconds, key in enumerate("abcd"):
        keep(cache, key)
        age(cache, key, 100 - seconds)
    assert cache.find("a")  # used just now
    keep(cache, "e")
    assert held(cache, "abcde") == "acde"
    assert not [path for path in (tmp_path / "v1").iterdir() if path.name.startswith(".")]


def test_what_would_take_most_of_the_cache_is_not_kept(tmp_path):
    cache = DiskCache(tmp_path, most_bytes=4 * SIZE)
    keep(cache, "a", "x" * (SIZE + 1))
    assert cache.find("a") is None


def test_a_damaged_entry_is_dropped_with_a_warning(tmp_path, caplog):
    cache = DiskCache(tmp_path)
    keep(cache, "a")
    with caplog.at_level(logging.WARNING):
        cache.drop("a", "no such bytes")
        cache.drop("a", "no such bytes")
    assert [record.getMessage() for record in caplog.records] == [
        "a damaged entry of the cache is dropped: no such bytes"
    ]
    assert list((tmp_path / "v1").iterdir()) == []


def test_a_writer_that_fails_leaves_nothing(tmp_path):
    cache = DiskCache(tmp_path)

    def fill(folder: Path) -> None:
        (folder / "data").write_text("half")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        cache.keep("a", 4, fill)
    assert cache.find("a") is None
    assert list((tmp_path / "v1").iterdir()) == []


def test_what_a_dead_writer_left_is_swept_after_a_while(tmp_path):
    cache = DiskCache(tmp_path)
    keep(cache, "a")
    for name, seconds in ((".old", 7200.0), (".new", 10.0)):
        (tmp_path / "v1" / name).mkdir()
        os.utime(tmp_path / "v1" / name, (time.time() - seconds,) * 2)
    keep(cache, "b")
    assert sorted(path.name for path in (tmp_path / "v1").iterdir()) == [".new", "a", "b"]


def test_a_place_that_cannot_be_written_costs_a_warning(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    cache = DiskCache(tmp_path / "file")
    with caplog.at_level(logging.WARNING):
        keep(cache, "a")
        keep(cache, "b")
    (record,) = caplog.records
    assert "cannot be written" in record.getMessage()


def test_a_place_that_cannot_even_be_asked_for_costs_a_warning(tmp_path, caplog):
    cache = DiskCache(tmp_path / ("long" * 100))  # likewise what a user may not look into
    with caplog.at_level(logging.WARNING):
        keep(cache, "a")
        cache.drop("a", "a test")
    assert cache.find("a") is None
    (record,) = caplog.records
    assert "cannot be written" in record.getMessage()
    assert cache.find("a") is None


WRITER = """
import sys, time
from pathlib import Path
from orion_ane.runtime.disk_cache import DiskCache
cache = DiskCache(Path(sys.argv[1]), most_bytes=40_000)
start = float(sys.argv[2])
time.sleep(max(0, start - time.time()))
for round in range(60):
    key = f"key{round % 12}"
    folder = cache.find(key)
    if folder is not None:
        try:
            found = (folder / "data").read_text()
        except FileNotFoundError:
            continue  # the other made room
        assert found == key * 1000, len(found)
    else:
        cache.keep(key, 5000, lambda folder: (folder / "data").write_text(key * 1000) and None)
"""


def test_two_processes_may_write_at_once(tmp_path):
    begin = str(time.time() + 1.5)
    command = [sys.executable, "-c", WRITER, str(tmp_path), begin]
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in both:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (0, "", "")
    entries = list((tmp_path / "v1").iterdir())
    assert sum((path / "data").stat().st_size for path in entries) <= 40_000
    for path in entries:
        assert (path / "data").read_text() == path.name * 1000


def test_the_place_is_the_users_choice(monkeypatch, tmp_path):
    monkeypatch.setenv("ORION_CACHE", str(tmp_path / "c"))
    assert cache_root() == tmp_path / "c"
    assert default_cache() == DiskCache(tmp_path / "c")
    monkeypatch.delenv("ORION_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_root() == tmp_path / "orion-ane"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # a user without a home
    assert default_cache() is None
    for off in ("off", "OFF"):
        monkeypatch.setenv("ORION_CACHE", off)
        assert default_cache() is None


def test_parts_of_a_key_do_not_run_together():
    assert len({key_of("t", "ab", "c"), key_of("t", "a", "bc"), key_of("ta", "b", "c")}) == 3
