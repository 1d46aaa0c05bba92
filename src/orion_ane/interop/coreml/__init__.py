"""Core ML's `.mlpackage` files, read and written; needs the extra `coreml`."""

from orion_ane.interop.coreml.errors import UnsupportedError
from orion_ane.interop.coreml.read import Package, read_package
from orion_ane.interop.coreml.write import write_package

__all__ = ["Package", "UnsupportedError", "read_package", "write_package"]
