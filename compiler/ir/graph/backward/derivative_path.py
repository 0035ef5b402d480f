"""`Again`: gradients of one order of a call, as a program; and the path that leads to that order."""

from __future__ import annotations

from dataclasses import dataclass

from assay.compiler.ir.graph.roles import InputRole, Program

Given = tuple[tuple[int, bool], ...]
"""Which values of the order before are given tangents, and whether each tangent requires grad itself."""
Path = tuple[Given, ...]
"""The tangents of each order, the first one's first."""


@dataclass(frozen=True, slots=True)
class Again:
    """The gradients of one order as a program of what forward kept and of the tangents of all orders.

    `read` are the kept values that it takes, by name; then come all tangents, in their order. `leaves` are the roles of
    the inputs of the call that have gradients. `gradients` are, for each of them and then for each tangent of the
    orders before, the output that is its gradient, or None; `differentiable` are those outputs that follow from
    something that requires grad.
    """

    program: Program
    read: tuple[str, ...]
    leaves: tuple[InputRole, ...]
    gradients: tuple[int | None, ...]
    differentiable: frozenset[int]
