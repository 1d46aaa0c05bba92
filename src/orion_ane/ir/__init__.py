from orion_ane.ir.graph import Graph, isomorphic
from orion_ane.ir.node import Arrays, Node, Op, Types
from orion_ane.ir.spelling import Literal, MilArgs, MilCall
from orion_ane.ir.verify import verify

__all__ = [
    "Arrays",
    "Graph",
    "Literal",
    "MilArgs",
    "MilCall",
    "Node",
    "Op",
    "Types",
    "isomorphic",
    "verify",
]
