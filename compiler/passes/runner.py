"""Runs passes over a program, with what the journal shows of it and the checks that the options ask for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from assay.compiler.ir.graph.replacement import verify_views
from assay.compiler.ir.graph.roles import Program
from assay.compiler.ir.graph.trace import autocast_off
from assay.compiler.journal import Journal
from assay.compiler.passes import Pass


@autocast_off()
def optimize(program: Program, passes: Sequence[Pass], journal: Journal, name: str) -> Program:
    """Runs the passes, in order."""
    journal.state(name, lambda: program.module.print_readable(print_output=False))
    for step in passes:
        with journal.stage(step.name):
            changed = step.run(program)
        if changed:
            check(program, journal, step.name)
            journal.state(step.name, lambda: program.module.print_readable(print_output=False))
    return program


def check(program: Program, journal: Journal, step: str) -> None:
    """Checks a graph that a step has changed, where the options ask for that. Raises: VerifyError."""
    if journal.options.verify:
        verify_views(program.module.graph, step)


def written(program: Program, write: Callable[[Program], Program] | None, journal: Journal) -> Program:
    """The program with its writes in place, by `write`; as it is without one."""
    if write is None:
        return program
    with journal.stage("write_in_place"):
        program = write(program)
    check(program, journal, "write_in_place")
    journal.state("write_in_place", lambda: program.module.print_readable(print_output=False))
    return program
