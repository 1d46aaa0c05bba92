"""Documents of a text to learn, and the next ones to hold out: `tales.py TEXT LEARNT HELD N M`.

The first N documents go to LEARNT and the M after them to HELD, as text, or as rows where a file's
name ends in .jsonl.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

END_LINE = "<|endoftext|>"


def main(text: str, learnt: str, held: str, count: str, further: str) -> None:
    """Write both files."""
    documents = [one.strip() for one in Path(text).read_text("utf-8").split(END_LINE)]
    documents = [one for one in documents if one]
    parts = documents[: int(count)], documents[int(count) :][: int(further)]
    for path, part in zip((learnt, held), parts, strict=True):
        rows = path.endswith(".jsonl")
        lines = [json.dumps({"text": one}) if rows else f"{one}\n{END_LINE}" for one in part]
        Path(path).write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
