"""A part of the frozen conformance tier; the parts are files so that they run side by side."""

from __future__ import annotations

import pytest
from conformance_runs import check_frozen


@pytest.mark.slow
@pytest.mark.conformance
@pytest.mark.timeout(1800)
def test_what_core_ml_was_seen_to_compute_is_computed_here(tmp_path):
    check_frozen(tmp_path, part=2, parts=3)
