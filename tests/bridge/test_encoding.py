"""Type encodings: what may be called and what may not."""

from __future__ import annotations

import ctypes

import pytest

from orion_ane.errors import BackendError
from orion_ane.runtime.backends.neural_engine.encoding import compare, ctype, parse
from orion_ane.runtime.backends.neural_engine.signatures import FOUNDATION, REQUIRED


@pytest.mark.parametrize(
    ("encoding", "types"),
    [
        ("B36@0:8I16@20^@28", ("B", "@", ":", "I", "@", "^@")),
        ("v16@0:8", ("v", "@", ":")),
        ("@24@0:8r*16", ("@", "@", ":", "*")),
        ("@24@0:8^{__IOSurface=}16", ("@", "@", ":", "^{__IOSurface=}")),
        ('@"NSString"16@0:8@?16', ("@", "@", ":", "@?")),
        ("{CGSize=dd}16@0:8", ("{CGSize=dd}", "@", ":")),
    ],
)
def test_an_encoding_is_its_types(encoding, types):
    assert parse(encoding) == types


@pytest.mark.parametrize(
    ("want", "got", "match"),
    [
        ("B16@0:8", "B16@0:8", "exact"),
        ("B16@0:8", "c16@0:8", "compatible"),
        ("B16@0:8", "C24@0:8", "compatible"),
        ("@32@0:8r^v16Q24", "@32@0:8^rv16Q24", "compatible"),
        ("v24@0:8^@16", "v24@0:8^^v16", "compatible"),
        ("v24@0:8@16", 'v24@0:8@"NSData"16', "compatible"),
        ("B36@0:8I16@20^@28", "B40@0:8Q16@24^@32", "mismatch"),
        ("B36@0:8I16@20^@28", "B28@0:8I16^@20", "mismatch"),
        ("v24@0:8@16", "v24@0:8q16", "mismatch"),
        ("v24@0:8@16", "v24@0:8%16", "mismatch"),
        ("v24@0:8@16", "v24@0:8{broken", "mismatch"),
    ],
)
def test_a_call_is_made_only_where_its_widths_and_kinds_are_the_same(want, got, match):
    assert compare(want, got) == match


def test_every_recorded_encoding_can_be_called():
    for method in (*REQUIRED, *FOUNDATION):
        assert all(kind == "v" or ctype(kind) is not None for kind in parse(method.types))
    assert ctype("I") is ctypes.c_uint
    with pytest.raises(BackendError, match=r"passes no such type: got \{CGSize=dd\}"):
        ctype("{CGSize=dd}")
