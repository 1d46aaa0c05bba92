"""How a graph is executed on a CPU: numpy and a few numba kernels, without any device's rules."""

from orion_ane.engine.lower import Numerics, lower
from orion_ane.engine.tape import Tape

__all__ = ["Numerics", "Tape", "lower"]
