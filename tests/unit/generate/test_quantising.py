"""Models with weights of int8 codes: what a program holds, and what becomes of the logits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from orion_ane.errors import ConfigError, LimitError
from orion_ane.generate.model import load

LOGITS = {"int8": 0.8, "q8_0": 0.45}
"""How far logits of stories260K may move, which are about 7.5 wide: measured 0.75 and 0.42."""
IDS = [1, 403, 407, 261, 378, 432, 383, 285]


@pytest.mark.parametrize("weights", ["int8", "q8_0"])
def test_codes_move_logits_by_no_more_than_is_told(data_dir: Path, weights: str) -> None:
    path = str(data_dir / "stories260K")
    with load(path, weights="fp32") as plain, load(path, weights=weights) as model:  # type: ignore[arg-type]
        want, found = plain.logits(IDS), model.logits(IDS)
        assert np.abs(found - want).max() < LOGITS[weights]
        few, full = (m.generate(IDS[:2], max_tokens=3, verify=True) for m in (model, plain))
        assert few.verification is not None
        assert few.verification.max_logit_error < LOGITS[weights]
        assert few.weight_bytes_per_token < 0.3 * full.weight_bytes_per_token


def test_codes_are_refused_where_fp16_is_rounded_to(data_dir: Path) -> None:
    with pytest.raises(ConfigError, match="take numerics fp32"):
        load(str(data_dir / "stories260K"), device="cpu", numerics="fp16", weights="int8")


@pytest.mark.parametrize("weights", ["int8", "q8_0"])
def test_a_target_that_forbids_codes_says_so(data_dir: Path, weights: str) -> None:
    path = str(data_dir / "stories260K")
    with (
        load(path, device="emulator", weights=weights) as model,  # type: ignore[arg-type]
        pytest.raises(LimitError, match=r"constexpr|int8"),
    ):
        model.logits(IDS[:1])
