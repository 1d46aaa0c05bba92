"""The changelog from its fragments, so that two changes never edit the same lines.

A fragment is changelog.d/TOPIC.KIND.md: one or more sentences for a user. Without options this
prints what the next release will say; --check only judges the fragments; --release VERSION moves
them to the top of CHANGELOG.md.
"""

from __future__ import annotations

import argparse
import datetime as dt
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KINDS = {"added": "Added", "changed": "Changed", "fixed": "Fixed", "removed": "Removed"}
MARK = "<!-- releases -->\n"


def fragments(folder: Path) -> dict[str, list[str]]:
    """The fragments' texts by kind, each kind's in the order of their topics."""
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for path in sorted(folder.glob("*")):
        _, *kinds = path.name.split(".")
        text = " ".join(path.read_text(encoding="utf-8").split())
        if len(kinds) != 2 or kinds[0] not in KINDS or kinds[1] != "md":
            sys.exit(f"{path.name}: want TOPIC.KIND.md with a kind of {', '.join(KINDS)}")
        if not text.endswith("."):
            sys.exit(f"{path.name}: want whole sentences")
        found[kinds[0]].append(text)
    return found


def section(title: str, found: dict[str, list[str]]) -> str:
    """One release, as Markdown."""
    lines = [f"## {title}", ""]
    for kind, texts in found.items():
        if texts:
            lines += [f"### {KINDS[kind]}", "", *(f"- {text}" for text in texts), ""]
    return "\n".join(lines)


def main() -> None:
    """Print, check or release."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only judge the fragments")
    parser.add_argument("--release", metavar="VERSION", help="move the fragments to CHANGELOG.md")
    parser.add_argument("--root", type=Path, default=ROOT)
    options = parser.parse_args()
    folder, book = options.root / "changelog.d", options.root / "CHANGELOG.md"
    found = fragments(folder)
    if options.check:
        print(f"{sum(map(len, found.values()))} fragments")
    elif options.release is None:
        print(section("Unreleased", found))
    else:
        today = dt.datetime.now(tz=dt.UTC).date()
        before, mark, after = book.read_text(encoding="utf-8").partition(MARK)
        if not mark or not any(found.values()):
            sys.exit(f"{book.name}: no line {MARK.strip()}, or nothing to release")
        released = section(f"{options.release} ({today})", found)
        book.write_text(f"{before}{mark}\n{released}{after}", encoding="utf-8")
        for path in folder.glob("*"):
            path.unlink()


if __name__ == "__main__":
    main()
