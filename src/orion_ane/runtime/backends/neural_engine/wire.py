"""Messages between the process that asks and the one that holds the device.

A message is a JSON object and, where it has one, a run of bytes.  Tensors do not travel here: they
lie in a file that both map.
"""

from __future__ import annotations

import json
import os
import select
import struct
import time
from typing import Any

HEAD = struct.Struct("<II")
MOST = 1 << 28
"""No message is longer; what claims to be is noise of somebody else's."""


class Ended(Exception):  # noqa: N818 - it may be the end as it should be
    """The other side is gone."""


class Silent(Exception):  # noqa: N818 - likewise
    """The other side did not answer in time."""


def send(file: int, message: dict[str, Any], payload: bytes = b"") -> None:
    """Write a message.

    Raises:
        Ended: nobody reads.
    """
    head = json.dumps(message).encode()
    try:
        _write(file, HEAD.pack(len(head), len(payload)) + head)
        _write(file, payload)
    except BrokenPipeError as error:
        raise Ended from error


def _write(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def receive(file: int, timeout_s: float | None = None) -> tuple[dict[str, Any], bytes]:
    """Read a message.

    Raises:
        Ended: nobody writes, or not what this module does.
        Silent: it did not come whole in time.
    """
    end = None if timeout_s is None else time.monotonic() + timeout_s
    size, extra = HEAD.unpack(_read(file, HEAD.size, end))
    if size > MOST or extra > MOST:
        raise Ended
    return json.loads(_read(file, size, end)), _read(file, extra, end)


def _read(file: int, size: int, end: float | None) -> bytes:
    found = bytearray()
    while len(found) < size:
        left = None if end is None else max(end - time.monotonic(), 0)
        if not select.select([file], [], [], left)[0]:
            raise Silent
        part = os.read(file, size - len(found))
        if not part:
            raise Ended
        found += part
    return bytes(found)
