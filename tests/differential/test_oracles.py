"""A missing oracle is loud where it counts, and float64 is float64."""

from __future__ import annotations

import numpy as np
import oracles
import pytest
from ops.samples import typed

from orion_ane.ops import cast, const, input_
from orion_ane.types import DType


def test_a_missing_oracle_fails_in_ci_and_is_skipped_with_a_reason_elsewhere(monkeypatch):
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.fail.Exception, match="the oracle no_such_library is missing"):
        oracles.oracle("no_such_library")
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match=r"pip install '\.\[oracles\]'"):
        oracles.oracle("no_such_library")


def test_float64_is_kept_through_casts_and_constants():
    x = input_("x", typed("fp32[1]"))
    narrow = cast(x, DType.FP16) * const(0.1, DType.FP16)
    value = np.array([1 / 3])
    (found,) = oracles.evaluate64([cast(narrow, DType.FP32)], {x: value})
    assert found.dtype == np.float64
    assert found == value * float(np.float16(0.1))
    (whole,) = oracles.evaluate64([cast(cast(x, DType.INT32), DType.FP16)], {x: value + 2})
    assert whole == 2.0
