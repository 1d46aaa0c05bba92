"""Devices, and programs loaded on them."""

from orion_ane.runtime.backend import Backend, Executable
from orion_ane.runtime.registry import BACKENDS, backend

__all__ = ["BACKENDS", "Backend", "Executable", "backend"]
