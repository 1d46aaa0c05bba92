"""Values that real devices published, reproduced by the rule, and by nothing fitted to them.

By the engine's functions, and by the whole path: a text and its weights on the emulator.
"""

from __future__ import annotations

from typing import TypeAlias

import pytest
from published import (
    Emulated,
    Rule,
    attention,
    conv_stack,
    dft,
    gemm,
    group_norm,
    jacobi,
    layer_norm,
    rms_norm,
    saturated_conv,
    square_gemm,
    stencil,
)

from orion_ane.ane.numerics import NUMERICS

Path: TypeAlias = type[Rule] | type[Emulated]

PRINTED = 1e-13
"""Relative: the three machines themselves differ by 2e-15 in how numpy's norm is summed."""

BOTH = pytest.mark.parametrize("on", [Rule, Emulated])


@BOTH
@pytest.mark.parametrize("target", ["m1", "m2", "m5"])
def test_gemm_64_256_256(target: str, on: Path) -> None:
    published = {"m1": 0.0012522854527169441, "m2": 0.001252285452716944}
    want = published.get(target, 0.0012522854527169441)
    assert gemm(64, 256, 256, on(target)) == pytest.approx(want, rel=PRINTED)


@BOTH
@pytest.mark.parametrize("target", ["m1", "m2", "m5"])
def test_gemm_128_1024_1024(target: str, on: Path) -> None:
    published = {"m1": 0.005521493491066958, "m2": 0.005521493491066952}
    want = published.get(target, 0.0055214934910669524)
    assert gemm(128, 1024, 1024, on(target)) == pytest.approx(want, rel=PRINTED)


@BOTH
@pytest.mark.parametrize(
    ("target", "want"),
    [
        ("m1", 0.00036636558584241826),
        ("m2", 0.0003663655858424183),
        ("m5", 0.0005102488034377338),
    ],
)
def test_conv_single(target: str, want: float, on: Path) -> None:
    assert conv_stack(16, 64, 32, 3, 1, on(target)) == pytest.approx(want, rel=PRINTED)


@BOTH
def test_jacobi_512_25_on_m5(on: Path) -> None:
    assert jacobi(512, 25, on("m5")) == pytest.approx(0.0003998604341057898, rel=PRINTED)


HOSTS_OWN_SUM = 1e-7
"""Relative: what the unknown order of the host's sums changes."""


@BOTH
@pytest.mark.parametrize(
    ("target", "want"), [("m1", 0.00039985988472345587), ("m2", 0.00039985988400639095)]
)
def test_jacobi_512_25_is_near_where_the_hosts_sum_is_not_known(
    target: str, want: float, on: Path
) -> None:
    assert jacobi(512, 25, on(target)) == pytest.approx(want, rel=HOSTS_OWN_SUM)


SIZES = {
    "gemm": lambda on: gemm(32, 512, 96, on),
    "square gemm": lambda on: square_gemm(512, on),
    "conv stack": lambda on: conv_stack(8, 32, 16, 3, 4, on),
    "conv 5x5": lambda on: conv_stack(8, 16, 16, 5, 1, on),
    "saturated conv": lambda on: saturated_conv(32, 4, on),
    "stencil": lambda on: stencil(64, 48, 8, on),
    "dft": lambda on: dft(256, on),
}


@BOTH
@pytest.mark.parametrize("workload", SIZES)
@pytest.mark.parametrize("target", NUMERICS)
def test_other_sizes_err_as_fp16_or_as_the_grid_has_it(
    workload: str, target: str, on: Path
) -> None:
    # fp16's rounding alone gives 2e-4 to 3e-4; the grid of 2^-16 costs more, the more small
    # products a sum has, and Winograd's transforms cost again.
    assert 2e-4 < SIZES[workload](on(target)) < 6e-3


DISTANCES = {
    "attention 197": (lambda on: attention(197, 768, 12, on), 1.5743204e-3, 1.6295418e-3, 0.10),
    "attention 512": (lambda on: attention(512, 768, 12, on), 2.3493987e-3, 2.3463584e-3, 0.05),
    "layer norm": (lambda on: layer_norm(197, 768, on), 6.6668254e-4, 6.7219249e-4, 0.46),
    "rms norm": (lambda on: rms_norm(197, 768, on), 5.5795192e-4, 5.6612517e-4, 0.14),
    "group norm": (lambda on: group_norm(256, 64, 64, on), 7.4099821e-4, 7.4101579e-4, 0.36),
}
"""Workload, what M1 and M5 published, and how far from it, relatively, we are at most."""


@pytest.mark.parametrize("workload", DISTANCES)
def test_what_no_rule_reproduces_comes_no_farther_from_what_was_published(workload: str) -> None:
    measured, *published, farthest = DISTANCES[workload]
    for chip, want in zip(("m1", "m5"), published, strict=True):
        assert abs(measured(Emulated(chip)) / want - 1) < farthest
