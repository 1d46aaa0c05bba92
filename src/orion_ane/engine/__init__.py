"""How a graph is executed on a CPU: numpy and a few numba kernels, without any device's rules."""

from orion_ane.engine.lower import Lowered, Numerics, lower
from orion_ane.engine.tape import Tape
from orion_ane.engine.threads import Threads

__all__ = ["Lowered", "Numerics", "Tape", "Threads", "lower"]
