"""Division of numbers as floats: by zero it is infinite or NaN, where Python's raises.

    var(x, 0) of u elements     ->     dx = 2.0 / (u - 1.0) * ...        u = 1: infinite, and so NaN by what it scales

Autograd's formulas divide numbers in C++. A graph has symbols for them, so that Python divides.
"""

from __future__ import annotations

import math
import operator

import torch
from torch import fx


def divided(x: float, y: float) -> float:
    """The quotient of two floats, as C++ has it."""
    if y:
        return x / y
    return math.nan if not x or math.isnan(x) else math.copysign(math.inf, x) * math.copysign(1.0, y)


def divide_as_floats(start: fx.Node) -> None:
    """Divisions of symbolic numbers behind `start` become those of floats."""
    node = start.next
    while node.op != "root":
        if node.target is operator.truediv and isinstance(node.meta.get("val"), torch.SymFloat):
            node.target = divided
        node = node.next


def divide_as_python(graph: fx.Graph) -> None:
    """Divisions of floats become Python's, which other compilers know."""
    for node in graph.find_nodes(op="call_function", target=divided):
        node.target = operator.truediv
