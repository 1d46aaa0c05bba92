"""What the bridge calls, and the types with which each method was seen.

Read on macOS 27.0 (26A5378j, M2; a second report on M4), and unchanged in public header dumps since
iOS 15 where the method is there: the drift so far was by additions alone.
"""

from __future__ import annotations

from typing import NamedTuple


class Method(NamedTuple):
    """A method as it is called.

    Attributes:
        owner: its class.
        kind: `+` of the class, `-` of its instances.
        selector: its name.
        types: its type encoding.
    """

    owner: str
    kind: str
    selector: str
    types: str

    def __str__(self) -> str:
        return f"{self.kind}[{self.owner} {self.selector}]"

    @property
    def may_block(self) -> bool:
        """Whether other threads of the interpreter go on during a call."""
        is_slow = "error:" in self.selector or self.selector.startswith("modelWithMILText")
        return self.owner.startswith("_ANE") and is_slow


MODEL = "_ANEInMemoryModel"

DESCRIBE = Method(
    "_ANEInMemoryModelDescriptor", "+", "modelWithMILText:weights:optionsPlist:", "@40@0:8@16@24@32"
)
MAKE = Method(MODEL, "+", "inMemoryModelWithDescriptor:", "@24@0:8@16")
IDENTIFIER = Method(MODEL, "-", "hexStringIdentifier", "@16@0:8")
DIRECTORY = Method(MODEL, "-", "localModelPath", "@16@0:8")
COMPILE = Method(MODEL, "-", "compileWithQoS:options:error:", "B36@0:8I16@20^@28")
LOAD = Method(MODEL, "-", "loadWithQoS:options:error:", "B36@0:8I16@20^@28")
EVALUATE = Method(MODEL, "-", "evaluateWithQoS:options:request:error:", "B44@0:8I16@20@28^@36")
UNLOAD = Method(MODEL, "-", "unloadWithQoS:error:", "B28@0:8I16^@20")
EXISTS = Method(MODEL, "-", "compiledModelExists", "B16@0:8")
PURGE = Method(MODEL, "-", "purgeCompiledModel", "v16@0:8")
REQUEST = Method(
    "_ANERequest",
    "+",
    "requestWithInputs:inputIndices:outputs:outputIndices:weightsBuffer:perfStats:procedureIndex:",
    "@72@0:8@16@24@32@40@48@56@64",
)
WRAP = Method("_ANEIOSurfaceObject", "+", "objectWithIOSurface:", "@24@0:8^{__IOSurface=}16")

REQUIRED = (
    DESCRIBE,
    MAKE,
    IDENTIFIER,
    DIRECTORY,
    COMPILE,
    LOAD,
    EVALUATE,
    UNLOAD,
    EXISTS,
    PURGE,
    REQUEST,
    WRAP,
)
"""Without each of these, of these types, nothing is called."""

INFO = "_ANEDeviceInfo"
MACHINE = (
    Method(INFO, "+", "hasANE", "B16@0:8"),
    Method(INFO, "+", "numANEs", "I16@0:8"),
    Method(INFO, "+", "numANECores", "I16@0:8"),
    Method(INFO, "+", "aneArchitectureType", "@16@0:8"),
    Method(INFO, "+", "buildVersion", "@16@0:8"),
    Method(INFO, "+", "isVirtualMachine", "B16@0:8"),
)
"""Asked for reports, where they are there."""

UNUSED = (
    Method(MODEL, "-", "mapIOSurfacesWithRequest:cacheInference:error:", "B36@0:8@16B24^@28"),
    Method(MODEL, "-", "unmapIOSurfacesWithRequest:", "v24@0:8@16"),
    Method(MODEL, "-", "state", "Q16@0:8"),
    Method(MODEL, "-", "programHandle", "Q16@0:8"),
    Method(MODEL, "-", "queueDepth", "c16@0:8"),
    Method("_ANERequest", "-", "validate", "B16@0:8"),
)
"""Never called; a report of their types tells how far a system has moved."""

FOUNDATION = (
    Method("NSString", "+", "stringWithUTF8String:", "@24@0:8r*16"),
    Method("NSString", "-", "UTF8String", "r*16@0:8"),
    Method("NSData", "+", "dataWithBytes:length:", "@32@0:8r^v16Q24"),
    Method("NSData", "+", "dataWithBytesNoCopy:length:freeWhenDone:", "@36@0:8^v16Q24B32"),
    Method("NSNumber", "+", "numberWithLongLong:", "@24@0:8q16"),
    Method("NSMutableArray", "+", "arrayWithCapacity:", "@24@0:8Q16"),
    Method("NSMutableArray", "-", "addObject:", "v24@0:8@16"),
    Method("NSArray", "-", "objectAtIndex:", "@24@0:8Q16"),
    Method("NSMutableDictionary", "+", "dictionary", "@16@0:8"),
    Method("NSMutableDictionary", "-", "setObject:forKey:", "v32@0:8@16@24"),
    Method("NSDictionary", "-", "allValues", "@16@0:8"),
    Method("NSObject", "-", "isKindOfClass:", "B24@0:8#16"),
    Method("NSError", "-", "code", "q16@0:8"),
    Method("NSError", "-", "domain", "@16@0:8"),
    Method("NSError", "-", "localizedDescription", "@16@0:8"),
    Method("NSException", "-", "name", "@16@0:8"),
    Method("NSException", "-", "reason", "@16@0:8"),
)
