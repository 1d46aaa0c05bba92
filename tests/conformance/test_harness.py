"""The conformance harness sees wrong results."""

from __future__ import annotations

from collections import Counter

import pytest
from conformance_runs import outcomes

FEW = ["iOS14/test_linear.py", "-k", "(TestMatMul or TestLinear) and (smoke or rank_2_const)"]


@pytest.mark.slow  # it is the harness that this tests, which changes seldom
@pytest.mark.conformance
@pytest.mark.timeout(900)
def test_results_that_are_a_tenth_too_small_fail_and_true_ones_pass(tmp_path):
    true = Counter(outcomes(tmp_path, *FEW).values())
    small = Counter(outcomes(tmp_path, *FEW, factor="0.9").values())
    assert true["passed"] >= 3
    assert set(true) == {"passed"}
    assert small == {"failed": true["passed"]}
