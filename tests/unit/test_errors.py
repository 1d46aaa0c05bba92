from __future__ import annotations

import pytest

from orion_ane.errors import Diagnostic, LimitError


@pytest.mark.parametrize(
    ("count", "says"), [(1, "m1: 1 limit is broken\n"), (2, "m1: 2 limits are broken\n")]
)
def test_broken_limits_are_counted(count: int, says: str) -> None:
    broken = Diagnostic("ANE001", "refused", "x", None, None, "wrong", "", ())
    assert str(LimitError("m1", (broken,) * count)).startswith(says)
