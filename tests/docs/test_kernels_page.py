"""The page of kernels is the table of kernels."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from orion_ane.models.paper import KERNELS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "kernels.md"


def test_the_page_lists_every_kernel_and_no_other() -> None:
    titles = re.findall(r"^### (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert titles == list(KERNELS)


def test_the_page_of_kernels_is_what_the_tool_writes() -> None:
    spec = importlib.util.spec_from_file_location(
        "kernels_page", ROOT / "tools" / "kernels_page.py"
    )
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert PAGE.read_text(encoding="utf-8") == tool.page()
