"""Which graph is being compiled just now, for graph compilers and partition functions that ask for its name.

model__2_forward_7      the model's name; the compile and the half of it; how many graphs were named before
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import fx

MODEL = "model"
"""What every graph's name begins with."""
JOINT, HALF, WHOLE = "inner_f", "GraphModule", "<lambda>"
"""The class names by which torch prints a joint graph, a forward or backward, and a graph without gradients."""
_compiles = itertools.count()


@dataclass(slots=True)
class _Named:
    """The graph that a front door has handed out, and the number of those that it has had back."""

    graphs: list[str] = field(default_factory=list)
    finished: int = 0


_now = _Named()


def next_compile() -> int:
    """The number of a compile that begins."""
    return next(_compiles)


def print_as(module: fx.GraphModule, name: str) -> fx.GraphModule:
    """Gives a graph the class name by which it is printed. Each graph module has a class of its own."""
    type(module).__name__ = name
    return module


@contextmanager
def compiling(compile_id: int, half: str) -> Iterator[None]:
    """While it is open, the graph of this name is being compiled: `joint`, `forward`, `backward` or `inference`."""
    outer, _now.graphs = _now.graphs, [f"{compile_id}_{half}"]
    try:
        yield
    finally:
        _now.graphs = outer
        _now.finished += 1


def get_aot_compilation_context() -> tuple[list[str], str, int]:
    """The names of the graphs being compiled (none outside of a compile), the model's name, and a serial number."""
    return list(_now.graphs), MODEL, _now.finished


def get_aot_graph_name() -> str:
    """The name of the graph being compiled, as `model__2_forward_7`."""
    return f"{MODEL}__{'_'.join(_now.graphs)}_{_now.finished}"


get_graph_being_compiled = get_aot_graph_name
