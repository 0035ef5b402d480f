"""Removes every call that nothing reads and that has no effect.

    a = exp(x); b = sin(x); return b   ->   b = sin(x); return b

Random calls stay even when unread: eager would have advanced the generator (law: the RNG state after the call).
"""

from __future__ import annotations

from assay.compiler.ir.graph.roles import Program
from assay.compiler.ir.graph.trace import eliminate_dead_nodes


def eliminate_dead_code(program: Program) -> int:
    """Returns the number of calls removed."""
    before = len(program.module.graph.nodes)
    eliminate_dead_nodes(program.module.graph)
    return before - len(program.module.graph.nodes)
