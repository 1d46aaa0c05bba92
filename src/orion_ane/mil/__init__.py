"""MIL text and blob files: what a device is given, written and read."""

from orion_ane.mil.blob import (
    DEFAULT_PATH,
    Blob,
    BlobDType,
    WeightFile,
    pack,
    read_blob,
    read_blobs,
)
from orion_ane.mil.dialect import DIALECTS, IOS15, IOS16, IOS17, IOS18, Dialect
from orion_ane.mil.emit import Emitted, emit, emit_module, returned
from orion_ane.mil.module import Function, Module, Place, Statement
from orion_ane.mil.parse import parse, parse_graph
from orion_ane.mil.place import place
from orion_ane.mil.program import Buffer, Port, Program

__all__ = [
    "DEFAULT_PATH",
    "DIALECTS",
    "IOS15",
    "IOS16",
    "IOS17",
    "IOS18",
    "Blob",
    "BlobDType",
    "Buffer",
    "Dialect",
    "Emitted",
    "Function",
    "Module",
    "Place",
    "Port",
    "Program",
    "Statement",
    "WeightFile",
    "emit",
    "emit_module",
    "pack",
    "parse",
    "parse_graph",
    "place",
    "read_blob",
    "read_blobs",
    "returned",
]
