from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from orion_ane.engine import threads

SCRIPT = """
import os, sys, numpy as np
from orion_ane.compiler import compile
from orion_ane.ir import Graph
from orion_ane.ops import cast, conv1x1, input_, weight
from orion_ane.runtime.registry import backend
from orion_ane.types import DType, TensorType

loaded = {}
for lanes in (1, 64):  # padded where rows of a device are 64 bytes
    x = input_("x", TensorType(DType.FP32, (1, 256, 1, lanes)))
    w = cast(weight("w", TensorType(DType.FP16, (512, 256, 1, 1))), DType.FP32)
    values = {"w": np.ones((512, 256, 1, 1), np.float16)}
    program = compile(Graph({"x": x}, {"y": conv1x1(x, w)}), values, target=None)
    loaded["cpu", lanes] = backend("cpu", threads=2).compile(program)
    x = input_("x", TensorType(DType.FP16, (1, 256, 1, max(32, lanes))))
    program = compile(Graph({"x": x}, {"y": conv1x1(x, w.args[0])}), values, target=None)
    loaded["emulator", max(32, lanes)] = backend("emulator", threads=2).compile(program)

def run():
    for (device, lanes), executable in loaded.items():
        dtype = np.float32 if device == "cpu" else np.float16
        y = executable.run({"x": np.ones((1, 256, 1, lanes), dtype)})["y"]
        assert (y == 256).all()

run()
child = os.fork()
if child == 0:
    try:
        run()
    finally:
        os._exit(sys.exc_info()[0] is not None)
status = os.waitpid(child, 0)[1]
run()
print("child", os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_process_forked_after_a_run_has_threads_of_its_own():
    out = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, check=True, text=True, timeout=120
    )
    assert out.stdout == "child 0\n"


def test_a_lock_that_a_lost_thread_held_is_renewed():
    assert threads._RUNNING.acquire(timeout=10)
    held = threads._RUNNING
    try:
        threads._forget_threads()
        assert threads._RUNNING is not held
        with threads.Threads(1).running():
            assert threads._RUNNING.locked()
    finally:
        held.release()
    assert isinstance(threads._RUNNING, type(threading.Lock()))


ARENA = """
import os
from orion_ane.engine.plan.memory import HUGE, block
held = block(HUGE)
child = os.fork()
if child == 0:
    held[0] = 1
    os._exit(0)
os.waitpid(child, 0)
assert held[0] == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_the_memory_of_a_forked_process_is_its_own():
    subprocess.run([sys.executable, "-c", ARENA], check=True)


AFTER = """
import threading
import numpy as np
from orion_ane.engine.lower import lower
from orion_ane.ir import Graph
from orion_ane.ops import input_, matmul
from orion_ane.types import DType, TensorType

x = input_("x", TensorType(DType.FP32, (1, 1, 256, 256)))
plan = lower(Graph({"x": x}, {"y": matmul(x, x)}), {}, numerics="fp32", threads=2)
feed = {"x": np.eye(256, dtype=np.float32)[None, None]}

def late():
    threading.main_thread().join()
    assert (plan.run(feed)["y"] == feed["x"]).all()
    print("computed")

threading.Thread(target=late).start()
"""


def test_threads_may_compute_when_the_main_one_has_ended():
    out = subprocess.run(
        [sys.executable, "-c", AFTER], capture_output=True, check=True, text=True, timeout=120
    )
    assert out.stdout == "computed\n"
    assert all("compiling" in line for line in out.stderr.splitlines())
