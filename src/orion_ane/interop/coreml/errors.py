"""The error for what a package may have and is not taken here."""

from __future__ import annotations

from orion_ane.errors import MilError


class UnsupportedError(MilError):
    """A sound mlProgram with something that has no place here: an op, a type, a form of an op.

    `where` is the op or the kind of thing, so that a tool can count them.
    """
