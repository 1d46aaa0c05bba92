"""Settings of a run as documents: what differs between two, in words of options."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from typing import Any

OPTIONS = {
    "schedule.lr": "--lr",
    "schedule.steps": "--steps",
    "schedule.warmup": "--warmup",
    "schedule.shape": "--schedule",
    "rule.weight_decay": "--weight-decay",
    "clip": "--clip",
    "seq": "--seq",
    "batch": "--batch",
    "grad_accum": "--grad-accum",
    "learns.rank": "--rank",
    "learns.alpha": "--alpha",
    "learns.targets": "--targets",
    "learns.dropout": "--dropout",
    "learns.rank_stabilised": "--rslora",
    "learns.base": "--model",
}
"""What the command calls a setting."""


def plain(value: dict[str, Any]) -> dict[str, Any]:
    """As it comes back from JSON: tuples are lists."""
    found: dict[str, Any] = json.loads(json.dumps(value, allow_nan=False))
    return found


def read_repr(text: str) -> Any:
    """An adapter's config that was kept as Python prints it; any other text as it is."""
    try:
        call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call):
            return text
        return plain({str(k.arg): ast.literal_eval(k.value) for k in call.keywords})
    except (SyntaxError, ValueError):
        return text


def differences(got: Any, want: Any, at: str = "") -> Iterator[tuple[str, Any, Any]]:
    """What differs between two documents: its path, and what either has."""
    if isinstance(got, dict) and isinstance(want, dict):
        for name in dict.fromkeys((*want, *got)):
            inner = f"{at}.{name}" if at else name
            yield from differences(got.get(name), want.get(name), inner)
    elif got != want:
        yield at, got, want


def option(at: str, value: Any) -> str:
    """A setting as the command has it, or by its path where no option is it alone."""
    if value is None:
        value = {"clip": 0, "learns": "the whole model"}.get(at)
    if isinstance(value, dict):
        value = f"an adapter of rank {value.get('rank')}"
    elif isinstance(value, list):
        value = ",".join(map(str, value)) or "none"
    return f"{OPTIONS.get(at, at)} {value}"
