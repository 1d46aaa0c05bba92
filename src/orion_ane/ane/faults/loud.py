"""What a device says: the words of its compiler and of its driver (docs/emulator.md)."""

from __future__ import annotations

from orion_ane.ane.faults.kinds import Crashes, Fails, Fault, Refused

COMPILER = "_ANECompiler : ANECCompile() FAILED"
"""The form of an op, or a size, is not taken."""
INVALID = "InvalidMILProgram"
"""The text is not valid: a parameter, a name or a reference that is missing or one too many."""
CRASH = "the compiler's process ended"
INFERENCE = "ANEProgramProcessRequestDirect() Failed with status=0x1d : Program Inference error"
LOAD = "createProgramInstanceForModel : Program load failure (0x20004)"
BUNDLE = "verifyBundleAtPath : invalid model"
HINT = "orion check says why"
"""A device does not say it; this project may."""

_INVALID = "014 101 102 118 131 138 149 158"
_COMPILER = (
    "001 010 012 013 016 103 104 105 107 108 109 117 123 139 140 143 145 146 147 148 150 152 153 "
    "154 155 156 157 159 160 161 162 185 188 189 190 191 192 195 196 197 211 212 213 214 218"
)
_INFERENCE = "002 004 018 106 111 115 116 193 194"

LOUD: dict[str, Fault] = {
    **{f"ANE{number}": Refused(INVALID) for number in _INVALID.split()},
    **{f"ANE{number}": Refused(COMPILER) for number in _COMPILER.split()},
    **{f"ANE{number}": Fails(INFERENCE) for number in _INFERENCE.split()},
    "ANE142": Crashes(CRASH),
    "ANE164": Fails(LOAD),
    "ANE168": Fails(BUNDLE),
}
"""Rows that nobody can miss."""
