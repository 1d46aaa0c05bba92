"""What differs between the generations of MIL text: header, opset, the type of a scalar."""

from __future__ import annotations

from dataclasses import dataclass

from orion_ane.types import TensorType


@dataclass(frozen=True)
class Dialect:
    """A generation of the device's parser.

    Attributes:
        name: as in `func main<ios18>`.
        opset: 15 to 18.
        version: of `program(…)`; 1.3 has plain scalars, 1.0 spells them as tensors of rank 0.
        build_info: the header's pairs, as programs that run on devices have them.
    """

    name: str
    opset: int
    version: str
    build_info: tuple[tuple[str, str], ...]

    @property
    def has_plain_scalars(self) -> bool:
        """Whether a scalar is `fp16` rather than `tensor<fp16, []>`."""
        return self.version == PLAIN

    def scalar(self, dtype: str) -> str:
        """The type of a scalar, be it a string or a number."""
        return dtype if self.has_plain_scalars else f"tensor<{dtype}, []>"

    def type(self, of: TensorType, *, short: bool = False) -> str:
        """A type as the text has it; the short form saves spaces."""
        if not of.shape:
            return self.scalar(of.dtype.value)
        return f"tensor<{of.dtype}, [{(',' if short else ', ').join(map(str, of.shape))}]>"


PLAIN = "1.3"
OLD = "1.0"

# Both headers run on devices: the longer on M3 to M5, the shorter on M1 and M2 (ane-facts, 2.1).
_LATER = (
    ("coremlc-component-MIL", "3510.2.1"),
    ("coremlc-version", "3505.4.1"),
    ("coremltools-component-milinternal", ""),
    ("coremltools-version", "9.0"),
)
_EARLIER = (("coremlc-version", "3505.4.1"),)

IOS15 = Dialect("ios15", 15, OLD, _EARLIER)
IOS16 = Dialect("ios16", 16, OLD, _EARLIER)
IOS17 = Dialect("ios17", 17, OLD, _EARLIER)
IOS18 = Dialect("ios18", 18, PLAIN, _LATER)
DIALECTS = {dialect.name: dialect for dialect in (IOS15, IOS16, IOS17, IOS18)}
