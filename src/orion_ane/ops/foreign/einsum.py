"""MIL's `einsum`, which is a product of matrices that lie across heads."""

from __future__ import annotations

import re

from orion_ane.errors import MilError
from orion_ane.ir.node import Node, Op
from orion_ane.ir.spelling import MilArgs
from orion_ane.ops.linear import matmul
from orion_ane.ops.shape import transpose

_EQUATION = re.compile(r"([a-zA-Z]{3,4}),([a-zA-Z]{3,4})->([a-zA-Z]{3,4})")
FORMS = {"abcd,adce->abce": (0, 2, 1, 3), "abc,cbd->abd": (1, 0, 2)}
"""Equations that MIL has, their letters in order, and what puts each operand's rows last."""


def read_einsum(args: MilArgs) -> Node:
    """`nchw,nwhu->nchu` or `chw,whu->chu`, by transposes around a matmul: n and h broadcast."""
    values, equation = args.nodes("values"), args.text("equation").replace(" ", "")
    perm = FORMS.get(_plain(equation))
    if perm is None:
        raise MilError("einsum", "no such equation", got=equation, want=", ".join(FORMS))
    if len(values) != 2 or any(value.type.rank != len(perm) for value in values):
        got = [value.type for value in values]
        raise MilError("einsum", "operands do not fit", got=got, want=equation)
    x, y = (transpose(value, perm) for value in values)
    inverse = (1, 0, 2) if len(perm) == 3 else (0, 2, 1, 3)
    return transpose(matmul(x, y), inverse)


def _plain(equation: str) -> str:
    """The equation with its letters named in the order in which they come; empty if it is none."""
    if _EQUATION.fullmatch(equation) is None:
        return ""
    letters = dict.fromkeys(c for c in equation if c.isalpha())
    names = dict(zip(letters, "abcdefghijkl", strict=False))
    return "".join(names.get(c, c) for c in equation)


Op.readers["einsum"] = read_einsum
