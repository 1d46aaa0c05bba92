from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import arrays

from orion_ane.errors import BackendError, MilError
from orion_ane.mil.program import Port, Program
from orion_ane.runtime import backend
from orion_ane.runtime.surfaces import filled, taken
from orion_ane.types import DType, TensorType

FP16, FP32 = DType.FP16, DType.FP32


def port(surface: TensorType, logical: TensorType | None = None) -> Port:
    return Port("x", "a00_x", surface, logical)


@st.composite
def ports(draw) -> Port:
    shape = tuple(draw(st.lists(st.integers(1, 4), max_size=4)))
    wide = tuple(n + draw(st.integers(0, 3)) for n in shape or draw(st.sampled_from([(), (1,)])))
    logical = TensorType(draw(st.sampled_from((FP16, FP32, DType.INT8))), shape)
    narrow = FP16 if logical.dtype == FP32 else logical.dtype
    return port(TensorType(narrow, wide), logical)


@given(st.data())
def test_what_is_fed_is_what_is_taken_and_the_rest_of_the_surface_is_zero(data):
    of = data.draw(ports())
    value = data.draw(arrays(of.of))
    surface = filled(of, value)
    assert TensorType.of(surface) == of.type
    assert np.count_nonzero(surface) == np.count_nonzero(value.astype(of.type.dtype.numpy))
    rounded = value.astype(of.type.dtype.numpy).astype(of.of.dtype.numpy)
    np.testing.assert_array_equal(taken(of, surface), rounded, strict=True)


def test_a_port_of_one_type_takes_and_gives_the_very_array():
    of = port(TensorType(FP16, (2, 32)))
    value = np.ones((2, 32), np.float16)
    assert filled(of, value) is value
    assert taken(of, value) is value


def test_what_fp16_does_not_hold_is_infinite_and_no_warning():
    of = port(TensorType(FP16, (1,)), TensorType(FP32, (1,)))
    assert filled(of, np.array([1e9], np.float32)).tolist() == [np.inf]


def test_errors_name_the_type_of_the_value_not_of_the_surface():
    of = port(TensorType(FP16, (1, 32)), TensorType(FP32, (1, 3)))
    with pytest.raises(BackendError, match=r"input x: is not fed: want fp32\[1,3\]"):
        filled(of, None)
    with pytest.raises(BackendError, match=r"another type: got float16\[1, 32\], want fp32\[1,3\]"):
        filled(of, np.zeros((1, 32), np.float16))


@pytest.mark.parametrize("logical", [(3,), (1, 33), (1, 1, 2)])
def test_a_surface_that_does_not_hold_its_value_is_refused(logical):
    text = (
        "func main<ios18>(tensor<fp16, [1, 32]> x) { tensor<fp16, [1, 32]> y = exp(x=x); } -> (y);"
    )
    surface = TensorType(FP16, (1, 32))
    program = Program(
        text, {}, (Port("x", "x", surface, TensorType(FP16, logical)),), (Port("y", "y", surface),)
    )
    with pytest.raises(MilError, match="port x: the surface does not hold its value"):
        backend("cpu").compile(program)
