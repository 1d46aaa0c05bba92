from orion_ane.passes.casts import casts
from orion_ane.passes.cse import cse
from orion_ane.passes.dce import dce
from orion_ane.passes.identities import identities
from orion_ane.passes.masks import masks
from orion_ane.passes.pipeline import DEFAULT, PASSES, Pass, apply, settle
from orion_ane.passes.rewrite import Rule, rewrite

__all__ = [
    "DEFAULT",
    "PASSES",
    "Pass",
    "Rule",
    "apply",
    "casts",
    "cse",
    "dce",
    "identities",
    "masks",
    "rewrite",
    "settle",
]
