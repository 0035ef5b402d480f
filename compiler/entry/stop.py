"""A compile that stops early: the option `stop_after`. What it would have built runs operator by operator.

    captured      the functional graph as recorded; where eager would record gradients, with its derivative
    decomposed    with operators written as those that have kernels
    partitioned   divided into forward and backward as the compiler does, not in the simplest way
    PASS          after this pass, and all before it
    written       with writes in place; each operator is a call to ATen in the host function

Each state is the one before it and one step more, so that the first one that differs from eager names the step.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import replace

from assay.compiler.assembly.compilers import Compilers
from assay.compiler.assembly.halves import by_operators
from assay.compiler.autograd.partition import default_split
from assay.compiler.errors import OptionError
from assay.compiler.ir.graph.roles import GraphCall, Program
from assay.compiler.passes import Pass

CAPTURED, DECOMPOSED, PARTITIONED, WRITTEN = "captured", "decomposed", "partitioned", "written"


def states(passes: Sequence[Pass]) -> tuple[str, ...]:
    """The states at which a compile with these passes can stop, in order."""
    return (CAPTURED, DECOMPOSED, PARTITIONED, *(step.name for step in passes), WRITTEN)


def stopped(compilers: Compilers, state: str, call_operators: Callable[[Program], GraphCall]) -> Compilers:
    """The compilers of a compile that stops after a state. `call_operators` builds a graph with writes in place.

    Raises: OptionError for a state that does not exist.
    """
    known = states(compilers.passes)
    if state not in known:
        near = difflib.get_close_matches(state, known, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise OptionError(f"assay: option stop_after is {state!r}{hint}; the states are {', '.join(known)}")
    build = call_operators if state == WRITTEN else by_operators
    made = replace(compilers, forward=build, backward=build, inference=build, between_hooks=None, keep=None)
    return made if state == WRITTEN else _functional(made, known.index(state))


def _functional(compilers: Compilers, reached: int) -> Compilers:
    """The compilers of a graph without writes, once `reached` states after the first are passed."""
    return replace(
        compilers,
        write=None,
        decompositions=compilers.decompositions if reached >= 1 else {},
        partition=compilers.partition if reached >= 2 else default_split,
        passes=compilers.passes[: max(0, reached - 2)],
    )
