"""A sample of the frozen conformance tier, enough for each change; the parts together are slow."""

from __future__ import annotations

import pytest
from conformance_runs import check_frozen


@pytest.mark.conformance
@pytest.mark.timeout(900)
def test_what_core_ml_was_seen_to_compute_is_computed_here(tmp_path):
    check_frozen(tmp_path, part=1, parts=20)
