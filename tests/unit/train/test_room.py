from __future__ import annotations

import numpy as np

from orion_ane.train.room import Room
from orion_ane.types import DType, TensorType

ROW = TensorType(DType.FP32, (1, 4, 1, 8))
HALF = TensorType(DType.FP16, (1, 4, 1, 8))


def test_what_is_lent_is_nobody_elses_until_it_is_left():
    room = Room()
    first, second, half = room.take(ROW), room.take(ROW), room.take(HALF)
    assert first is not second
    assert (first.dtype, half.dtype, half.shape) == (np.float32, np.float16, HALF.shape)
    room.leave([first, np.zeros(3)])  # what was never lent is passed over
    assert room.take(HALF) is not half
    assert room.take(ROW) is first
    room.leave_all()
    assert {id(room.take(ROW)), id(room.take(ROW))} == {id(first), id(second)}


def test_memory_that_was_given_up_is_not_lent_again():
    room = Room()
    kept, free = room.take(ROW), room.take(ROW)
    room.leave([free])
    room.give_up()
    room.leave([kept])  # no longer known
    assert room.take(ROW) is not kept
