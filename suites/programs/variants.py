"""Programs with something inserted that changes nothing: each must still be as eager.

A dead branch, a graph break, an identity whose result nobody uses, and a pointwise step split in two along its first
dimension.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from assay.suites.programs.operations.pointwise import UNARY
from assay.suites.programs.program import Line, Program

METHOD = re.compile(r"\{0\}(\.\w+\(\))")


def variants(program: Program) -> Iterator[Program]:
    """The program with one insertion each, in its middle."""
    if not program.steps:
        return
    middle = program.steps[len(program.steps) // 2].args[:1]
    names = [name for name in middle if name in {line.targets[0] for line in program.inputs}]
    name = (*names, program.inputs[0].targets[0])[0]
    yield _inserted(program, Line("graph_break", "torch._dynamo.graph_break()"))
    yield _inserted(program, Line("dead_branch", "{0}.add_(1) if {0}.dim() > 6 else None", (name,)))
    yield _inserted(program, Line("identity", "{0} + 0", (name,), ("unused",)))
    yield from _split(program)


def _inserted(program: Program, line: Line) -> Program:
    middle = len(program.steps) // 2
    return replace(program, steps=(*program.steps[:middle], line, *program.steps[middle:]))


def _split(program: Program) -> Iterator[Program]:
    for index, step in enumerate(program.steps):
        if step.operation in UNARY and step.layout != "0-d" and (found := METHOD.fullmatch(step.template)):
            halves = f"torch.cat([{{0}}[:1]{found.group(1)}, {{0}}[1:]{found.group(1)}])"
            steps = (*program.steps[:index], replace(step, template=halves), *program.steps[index + 1 :])
            yield replace(program, steps=steps)
            return
