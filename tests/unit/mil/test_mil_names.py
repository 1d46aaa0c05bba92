"""What users' names become in a text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion_ane.mil.names import MAX_NAME, RESERVED, is_identifier, symbols

AWKWARD = st.sampled_from(["a/b", "a_b", "a_b_1", "a.b", "", "1a", "x", "tensor", "tensor_1", "λ"])
NAMES = st.lists(st.one_of(AWKWARD, st.text(max_size=6)), max_size=12)


@given(NAMES)
def test_symbols_are_identifiers_and_all_different(names):
    found = symbols(names)
    assert len(set(found)) == len(found) == len(names)
    assert all(is_identifier(symbol) for symbol in found)


@given(NAMES)
def test_a_name_that_is_an_identifier_stays_as_it_is_once(names):
    found = symbols(names)
    for name in filter(is_identifier, names):
        assert found[names.index(name)] == name


@given(NAMES)
def test_symbols_of_symbols_are_the_same(names):
    assert symbols(symbols(names)) == symbols(names)


@pytest.mark.parametrize("names", [("a/b", "a_b"), ("a_b", "a/b")])
def test_two_names_never_meet_in_either_order(names):  # case A15
    found = dict(zip(names, symbols(names), strict=True))
    assert found == {"a_b": "a_b", "a/b": "a_b_1"}


def test_a_number_that_a_name_was_given_is_not_given_to_another():
    assert symbols(["a/b", "a_b", "a_b_1", "a.b"]) == ("a_b_2", "a_b", "a_b_1", "a_b_3")


def test_a_reserved_word_is_renamed():  # case A13
    words = ["tensor", "true", "fp16", "func", "const", "inf", "int4"]
    assert set(words) <= RESERVED
    assert symbols(words) == tuple(f"{word}_1" for word in words)


def test_a_name_is_cleaned_letter_by_letter():
    assert symbols(["layers.0.wq"]) == ("layers_0_wq",)
    assert symbols(["0 x", "", "naïve", "x@2"]) == ("_0_x", "_", "na_ve", "x@2")


def test_a_name_without_end_gets_one():
    (symbol,) = symbols(["x" * (MAX_NAME + 1)])
    assert re.fullmatch("x{200}", symbol)
    assert symbols(["x" * MAX_NAME]) == ("x" * MAX_NAME,)


def test_many_equal_names_take_no_time_to_tell_apart():
    found = symbols(["a b"] * 50_000)
    assert found[-1] == "a_b_49999"
