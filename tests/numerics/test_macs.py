"""The kernels of the ANE's product-sum against the rule in integers."""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mac_rule import away, slow, sums

from orion_ane.ane.numerics import Overflow
from orion_ane.engine.macs import kernels, products
from orion_ane.engine.macs.products import (
    THIN_COLUMNS,
    exact_sums,
    matmul,
    product_sum,
    rows,
    small,
)
from orion_ane.engine.macs.vectors import DEPTH, LANES, PANEL, ROWS
from orion_ane.engine.threads import Threads
from orion_ane.errors import ShapeError
from orion_ane.types import Array

Values = Callable[[np.random.Generator, tuple[int, int]], Array]

# --- operands that hurt ---------------------------------------------------------------------


def normal(scale: float) -> Values:
    return lambda rng, shape: (rng.standard_normal(shape) * scale).astype(np.float16)


def near_exponent(e: int, spread: int = 2) -> Values:
    """All mantissas, exponents around e, both signs."""

    def values(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
        size = np.ldexp(rng.integers(1024, 2048, shape), rng.integers(-spread, spread + 1, shape))
        return (size * 2.0 ** (e - 10) * rng.choice([-1, 1], shape)).astype(np.float16)

    return values


def few_bits(e: int) -> Values:
    """Small odd multiples of 2^e: products of two such with e summing to -17 are ties."""
    return lambda rng, shape: (
        (2 * rng.integers(-4, 4, shape) + 1) * 2.0**e * rng.integers(0, 2, shape)
    ).astype(np.float16)


def any_finite(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    bits = rng.integers(0, 0x7C00, shape) | rng.integers(0, 2, shape) << 15
    return bits.astype(np.uint16).view(np.float16)


def subnormal(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    return rng.integers(-1023, 1024, shape).astype(np.float64) * 2.0**-24


KINDS: dict[str, tuple[Values, Values]] = {
    "a model's": (normal(0.02), normal(1.0)),
    "outliers": (normal(0.02), normal(300.0)),
    "at the floor": (near_exponent(-8), near_exponent(-9)),
    "at the floor, uneven": (near_exponent(-2, 1), near_exponent(-14, 2)),
    "ties": (few_bits(-9), few_bits(-8)),
    "ties, uneven": (few_bits(-14), few_bits(-3)),
    "subnormal": (subnormal, normal(8.0)),
    "subnormal, right": (normal(40.0), subnormal),
    "about the fp32 window": (normal(1.0), normal(8.0)),
    "about the ceiling": (normal(30.0), normal(70.0)),
    "any": (any_finite, any_finite),
    "any, with small": (any_finite, near_exponent(-14)),
}
SIZES = [1, 2, 15, 16, 17, 63, LANES, LANES + 1, DEPTH - 1, DEPTH, DEPTH + 1, 172, 300]
COLUMNS = [1, 2, THIN_COLUMNS, THIN_COLUMNS + 1, PANEL - 1, PANEL + 1]


@st.composite
def operands(draw: st.DrawFn, *kinds: str) -> tuple[Array, Array]:
    left, right = KINDS[draw(st.sampled_from(kinds or sorted(KINDS)))]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    outer, inner = draw(st.integers(1, 2 * ROWS + 1)), draw(st.sampled_from(SIZES))
    shape = inner, draw(st.sampled_from(COLUMNS))
    w, x = left(rng, (outer, inner)).astype(np.float16), right(rng, shape).astype(np.float16)
    x[:, draw(st.sampled_from([0, 3, shape[1] - 1])) :] = x[:, -1:]  # as lanes without a token are
    return w, x


def alike(column: Array, columns: int) -> Array:
    """A column so many times, and behind several an empty one: all of them are computed."""
    x = np.repeat(column, columns, axis=1)
    return x if columns == 1 else np.concatenate((x, np.zeros_like(column)), axis=1)


def same(y: Array, z: Array) -> bool:
    """Equal to the last bit, the sign of a zero included."""
    return bool((y.view(np.uint16) == z.view(np.uint16)).all())


# --- laws -----------------------------------------------------------------------------------


@given(operands())
@settings(max_examples=150)
def test_a_sum_is_the_rule_in_integers(case: tuple[Array, Array]) -> None:
    w, x = case
    want = sums(w, x)
    y = product_sum(w, x, overflow="final")
    flat = [away(int(total)) for total in want.ravel()]
    assert same(y, np.array(flat, np.float16).reshape(want.shape))
    assert (exact_sums(w, x, overflow="final") == want * 2.0**-16).all()


@given(operands())
@settings(max_examples=60)
def test_the_two_statements_of_the_rule_agree(case: tuple[Array, Array]) -> None:
    w, x = case[0][:2], case[1][:, :2]
    flat = [away(int(total)) for total in sums(w, x).ravel()]
    assert same(slow(w, x), np.array(flat, np.float16).reshape(w.shape[0], x.shape[1]))


@given(operands("about the ceiling", "any", "outliers"))
@settings(max_examples=60)
def test_a_sticky_sum_is_infinite_from_where_it_first_passes_the_ceiling(
    case: tuple[Array, Array],
) -> None:
    w, x = case[0][:4], case[1]
    y = product_sum(w, x, overflow="sticky")
    some = np.unique([0, x.shape[1] // 2, x.shape[1] - 1])
    assert same(np.ascontiguousarray(y[:, some]), slow(w, x[:, some], "sticky"))


@pytest.mark.parametrize("columns", [1, PANEL + 3])
def test_an_interior_overflow_comes_back_only_where_it_may(columns: int) -> None:
    for sign in (1, -1):
        w = np.array([[255, 255, -255, 1]], np.float16) * sign
        x = np.repeat(np.array([[100], [100], [100], [1]], np.float16), columns, axis=1)
        assert (product_sum(w, x, overflow="final") == sign * 25500.0).all()
        assert (product_sum(w, x, overflow="sticky") == sign * np.inf).all()


@pytest.mark.parametrize("columns", [1, PANEL])
@pytest.mark.parametrize("inner", [1, 40])
def test_32752_passes_and_what_rounds_to_32768_is_infinite(inner: int, columns: int) -> None:
    def last(total: float) -> Array:
        w = np.zeros((1, inner + 1), np.float16)
        w[0, 0], w[0, -1] = 32736, 1
        x = np.zeros((inner + 1, columns), np.float16)
        x[0], x[-1] = 1, total - 32736
        return product_sum(w, x, overflow="sticky")

    assert (last(32752) == 32752).all()
    assert (last(32759.9) == 32752).all()
    assert (last(32760) == np.inf).all()
    assert (last(32768) == np.inf).all()


def test_2049_becomes_2050() -> None:
    w, x = np.array([[2048, 1]], np.float16), np.array([[1, 1], [1, -1]], np.float16)
    assert product_sum(w, x, overflow="final").tolist() == [[2050.0, 2047.0]]


@given(operands(), st.sampled_from(["final", "sticky"]))
@settings(max_examples=40)
def test_a_column_does_not_see_the_others(case: tuple[Array, Array], overflow: Overflow) -> None:
    w, x = case
    left, y = rows(w), product_sum(w, x, overflow=overflow)
    some = np.unique([0, x.shape[1] // 2, x.shape[1] - 1])
    for s in some:
        alone = product_sum(left, x[:, s : s + 1], overflow=overflow)
        assert same(alone[:, 0], np.ascontiguousarray(y[:, s]))


@given(operands(), st.integers(0, 9))
@settings(max_examples=30)
def test_a_final_sum_has_no_order(case: tuple[Array, Array], seed: int) -> None:
    w, x = case
    order = np.random.default_rng(seed).permutation(w.shape[1])
    y = product_sum(w, x, overflow="final")
    assert same(y, product_sum(w[:, order], x[order], overflow="final"))


@pytest.mark.parametrize("columns", [1, 5, 64])
def test_threads_do_not_show(columns: int, rng: np.random.Generator) -> None:
    w, x = normal(0.5)(rng, (203, 260)), normal(9.0)(rng, (260, columns))
    w[7, 3], x[5, columns // 2] = np.inf, np.nan
    before = numba.get_num_threads()
    found = []
    for count in (1, 2):
        numba.set_num_threads(min(count, before))
        found.append(product_sum(w, x, overflow="sticky", threads=Threads(count)))
    numba.set_num_threads(before)
    assert same(found[0], found[1])
    assert same(found[0], product_sum(w, x, overflow="sticky"))


@given(operands("a model's", "any"), st.sampled_from(["final", "sticky"]), st.data())
@settings(max_examples=40)
def test_nan_counts_as_infinity_and_what_is_indeterminate_is_zero(
    case: tuple[Array, Array], overflow: Overflow, data: st.DataObject
) -> None:
    w, x = case[0][:5].copy(), case[1].copy()
    for side in (w, x):
        for _ in range(data.draw(st.integers(0, 3))):
            at = tuple(data.draw(st.integers(0, size - 1)) for size in side.shape)
            side[at] = data.draw(st.sampled_from([np.nan, np.inf, -np.inf, 0.0, -0.0]))
    y = product_sum(w, x, overflow=overflow)
    some = np.unique([0, x.shape[1] // 2, x.shape[1] - 1])
    assert same(np.ascontiguousarray(y[:, some]), slow(w, x[:, some], overflow))


@pytest.mark.parametrize("columns", [1, PANEL])
@pytest.mark.parametrize("overflow", ["final", "sticky"])
def test_a_sum_that_has_to_be_walked_keeps_the_floor(columns: int, overflow: Overflow) -> None:
    large = [150, -150, 150, -150]  # 30,000 there and back, twice
    w = np.array([large + [2.0**-8] * 64], np.float16)
    x = alike(np.array([[200.0]] * 4 + [[2.0**-9]] * 64, np.float16), columns)
    assert (product_sum(w, x, overflow=overflow) == 0).all()
    x[4:] *= 2
    assert (product_sum(w, x, overflow=overflow)[:, :columns] == 2.0**-10).all()


@pytest.mark.parametrize("columns", [1, PANEL])
def test_zero_times_infinity_is_nothing(columns: int) -> None:
    for zero in (0.0, -0.0):
        w = np.array([[zero, 3], [np.inf, 3], [np.nan, 3]], np.float16)
        x = alike(np.array([[np.inf], [2]], np.float16), columns)
        assert (product_sum(w, x, overflow="sticky")[0, :columns] == 6).all()
        x[0] = zero
        assert (product_sum(w, x, overflow="sticky")[:, :columns] == 6).all()


@pytest.mark.parametrize("columns", [2, PANEL])
def test_what_is_not_finite_stays_in_its_row_and_column(
    columns: int, rng: np.random.Generator
) -> None:
    w, x = normal(0.1)(rng, (20, 70)), normal(1.0)(rng, (70, columns))
    clean = product_sum(w, x, overflow="sticky")
    spoilt_w, spoilt_x = w.copy(), x.copy()
    spoilt_w[3, 5], spoilt_x[60, columns // 2] = np.inf, np.nan
    y = product_sum(spoilt_w, spoilt_x, overflow="sticky")
    untouched = np.ones(y.shape, np.bool_)
    untouched[3], untouched[:, columns // 2] = False, False
    assert np.isinf(y[~untouched]).sum() >= y.size - untouched.sum() - 1
    assert not np.isnan(y).any()
    assert (y[untouched] == clean[untouched]).all()


@pytest.mark.parametrize("kind", ["any", "about the ceiling"])
@pytest.mark.parametrize("columns", [1, PANEL])
def test_sums_beyond_every_window_are_still_exact(
    kind: str, columns: int, rng: np.random.Generator
) -> None:
    inner = 1 << 12
    w = np.full((3, inner), 65504, np.float16)
    w[:, inner // 2 :] = -65504
    x = alike(np.full((inner, 1), 65504, np.float16), columns)
    w[:, -1] = KINDS[kind][0](rng, (3, 1))[:, 0]  # so that the sums do not all cancel
    want = [[away(int(total)) for total in line] for line in sums(w, x)]
    assert same(product_sum(w, x, overflow="final"), np.array(want, np.float16))


@given(operands("a model's"))
@settings(max_examples=20)
def test_fp32_that_holds_fp16_values_gives_the_same(case: tuple[Array, Array]) -> None:
    w, x = case
    y = product_sum(w, x.astype(np.float32), overflow="sticky")
    assert y.dtype == np.float32
    assert (y == product_sum(w, x, overflow="sticky")).all()


@pytest.mark.parametrize("m", [1, 3, 40])
@pytest.mark.parametrize("n", [1, 40])
def test_a_batch_of_matrices_is_each_by_the_rule(m: int, n: int, rng: np.random.Generator) -> None:
    x, y = normal(1.0)(rng, (6 * m, 33)).reshape(2, 3, m, 33), normal(1.0)(rng, (3 * 33, n))
    y = y.reshape(3, 33, n)
    z = matmul(x, y, overflow="final")
    assert z.shape == (2, 3, m, n)
    for i, j in np.ndindex(2, 3):
        assert same(z[i, j], product_sum(x[i, j], y[j], overflow="final"))


@pytest.mark.parametrize("axis", [-2, -1])
def test_lanes_that_are_all_alike_give_a_batch_what_each_gives(
    axis: int, rng: np.random.Generator
) -> None:
    x, y = normal(1.0)(rng, (80, 33)).reshape(2, 1, 40, 33), normal(1.0)(rng, (99, 40))
    y = y.reshape(3, 33, 40)
    lanes = np.moveaxis(x if axis == -2 else y, axis, 0)
    lanes[2:] = lanes[-1]
    z = matmul(x, y, overflow="final")
    for i, j, lane in np.ndindex(2, 3, 40):
        one = product_sum(x[i, 0], y[j, :, lane : lane + 1], overflow="final")
        assert same(z[i, j, :, lane], one[:, 0])


def test_a_lane_that_is_alike_but_for_a_zero_s_sign_or_a_later_one_is_not_left_out(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    w, x = normal(1.0)(rng, (5, 3)), np.repeat(normal(1.0)(rng, (3, 1)), 40, axis=1)
    run, computed = products._run, []
    monkeypatch.setattr(
        products, "_run", lambda w, x, *rest: computed.append(x.shape[1]) or run(w, x, *rest)
    )
    x[0] = 0.0
    x[0, 30] = -0.0
    product_sum(w, x, overflow="final")
    x[:, -1] *= 2
    product_sum(w, x, overflow="final")
    x[:] = np.nan
    product_sum(w, x, overflow="final")
    assert computed == [32, 40, 1]


@pytest.mark.parametrize(
    ("w", "x"),
    [
        (np.zeros((3, 4), np.float32), np.zeros((4, 2), np.float16)),
        (np.zeros(4, np.float16), np.zeros((4, 2), np.float16)),
        (np.zeros((3, 4), np.float16), np.zeros((3, 2), np.float16)),
        (np.zeros((3, 4), np.float16), np.zeros((4, 2), np.float64)),
        (np.zeros((3, 4), np.float16), np.zeros(4, np.float16)),
    ],
)
def test_other_types_and_shapes_are_refused(w: Array, x: Array) -> None:
    with pytest.raises(ShapeError):
        product_sum(w, x, overflow="final")


def test_every_part_of_a_bound_is_the_sum_that_it_says(rng: np.random.Generator) -> None:
    w = normal(3.0)(rng, (5, 300))
    w[2, 7] = np.inf
    left = rows(w).left
    assert left.odd.tolist() == [False, False, True, False, False]
    size = np.where(np.isfinite(w), np.abs(w), 0).astype(np.float64)
    size = np.pad(size, ((0, 0), (0, -300 % DEPTH)))
    np.testing.assert_allclose(left.reach, size.reshape(5, -1, DEPTH).sum(-1), rtol=1e-5)
    finite = ~left.odd
    lanes = size.reshape(5, -1, LANES).sum(1).max(-1)
    np.testing.assert_allclose(left.bound[finite, 0], size.sum(-1)[finite], rtol=1e-5)
    np.testing.assert_allclose(left.bound[finite, 1], lanes[finite], rtol=1e-5)


def test_the_windows_leave_room_for_what_rounding_adds() -> None:
    assert kernels.SINGLE_WINDOW * kernels.SLACK < 64
    assert kernels.DOUBLE_WINDOW * kernels.SLACK < 2.0**35


@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.sampled_from([(1, 1), (1, 9), (9, 1), (3, 2)]),
    overflow=st.sampled_from(["final", "sticky"]),
    is_odd=st.booleans(),
)
@settings(max_examples=15, deadline=None)
def test_small_matrices_of_a_batch_are_each_the_rule_s(seed, shape, overflow, is_odd):
    """Either side may be the thin one, broadcast, near the ceiling or not finite."""
    m, n = shape
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((2, 3, m, 70)) * rng.choice([1, 60])).astype(np.float16)
    y = (rng.standard_normal((3, 70, n)) * rng.choice([1, 60])).astype(np.float16)
    if is_odd:
        x[0, 1, 0, 5], y[2, 7, 0] = np.nan, -np.inf
    z = matmul(x, y, overflow=overflow)
    for i, j in np.ndindex(2, 3):
        np.testing.assert_array_equal(z[i, j], slow(x[i, j], y[j], overflow))


@pytest.mark.parametrize(("tx", "ty"), [(False, False), (False, True), (True, False), (True, True)])
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.sampled_from([(1, 1, 70), (1, 40, 33), (40, 2, 16), (9, 1, 1), (1, 9, 1), (3, 17, 5)]),
    overflow=st.sampled_from(["final", "sticky"]),
    low=st.sampled_from([0, 0x2000, 0x3000]),
)
@settings(max_examples=8, deadline=None)
def test_small_matrices_lie_either_way(seed, shape, overflow, low, tx, ty):
    """Of every exponent, or of such as make products vanish, ties and sums near the ceiling."""
    m, n, k = shape
    rng = np.random.default_rng(seed)
    high = 0x7BFF if low == 0 else low + 0x2400
    x, y = (
        (rng.integers(low, high, of, np.uint16) | (rng.integers(0, 2, of, np.uint16) << 15)).view(
            np.float16
        )
        for of in ((2, m, k), (2, k, n))
    )
    sides = [
        np.ascontiguousarray(side.swapaxes(1, 2) if turned else side).astype(np.float32)
        for side, turned in ((x, tx), (y, ty))
    ]
    product = small(sides[0].shape, sides[1].shape, overflow=overflow, tx=tx, ty=ty)
    assert product is not None
    z = product(*sides)
    assert z.dtype == np.float32
    for i in range(2):
        np.testing.assert_array_equal(z[i].astype(np.float16), slow(x[i], y[i], overflow))
    assert not np.signbit(z[z == 0]).any()
