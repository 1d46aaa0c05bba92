from __future__ import annotations

import errno
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from orion_ane.artefacts.atomic import naming, write_file

resource = pytest.importorskip("resource", reason="this system has no limit of a file")


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file may be larger than a kilobyte, as on a disk that is full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, before)


@pytest.mark.usefixtures("small_files")
def test_a_file_that_the_disk_cannot_take_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="File too large") as caught:
        write_file(tmp_path / "weights.bin", b"x" * 4096)
    assert caught.value.filename == str(tmp_path / "weights.bin")


def test_an_error_that_names_a_file_keeps_it_and_its_kind() -> None:
    with pytest.raises(FileNotFoundError) as caught, naming("other"):
        Path("absent").read_bytes()
    assert caught.value.filename == "absent"
    with pytest.raises(OSError, match="3 requested and 1 written") as caught, naming("this"):
        raise OSError("3 requested and 1 written")
    assert (caught.value.errno, caught.value.filename) == (None, "this")
    with pytest.raises(BrokenPipeError) as pipe, naming("this"):
        raise OSError(errno.EPIPE, "gone")
    assert pipe.value.filename == "this"
