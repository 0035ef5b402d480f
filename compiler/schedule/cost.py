"""What evaluating expressions costs, in rough units of one arithmetic operation, with every loop run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from assay.compiler.ir.loops.index import Index, Int, evaluate, symbols
from assay.compiler.ir.loops.kernel import Bind, Call, Check, Element, Expr, Scan
from assay.compiler.ir.loops.rewrite import TRANSCENDENTAL, children, free_variables

GATHER = 6
"""What a load at a position that is data costs more than one in order: a miss of the cache now and then, no vectors."""

UNKNOWN_SIZE = 64
"""What a size counts as when nothing is known of it."""


class Cost:
    """Sizes, depths and work of expressions, each remembered. Sizes at trace time decide; they never bind."""

    __slots__ = ("_depth", "_free", "_hints", "positions", "ranges")

    def __init__(self, hints: Mapping[str, int]) -> None:
        self._hints = hints
        self._free: dict[Expr, frozenset[str]] = {}
        self._depth: dict[Expr, int] = {}
        self.ranges: dict[str, Index] = {}
        """The extents of all variables of the graph that a `Reduce` or a `Bind` binds."""
        self.positions: dict[str, frozenset[str]] = {}
        """What the position of a variable that a `Bind` binds depends on, where it was met last."""

    def number(self, index: Index) -> int:
        """About how large a size is."""
        if isinstance(index, Int):
            return index.value
        known = {name: self._hints.get(name, UNKNOWN_SIZE) for name in symbols(index)}
        return evaluate(index, known)

    def count(self, extents: Iterable[Index]) -> int:
        """About how many points a space has."""
        points = 1
        for extent in extents:
            points *= max(self.number(extent), 1)
        return points

    def free(self, expr: Expr) -> frozenset[str]:
        return free_variables(expr, self._free)

    def depth(self, expr: Expr) -> int:
        """The longest path from an expression to a leaf."""
        found = self._depth.get(expr)
        if found is None:
            found = self._depth[expr] = 1 + max((self.depth(child) for child in children(expr)), default=0)
        return found

    def note(self, found: Iterable[Expr]) -> None:
        """Learns on what the positions among some expressions depend."""
        for node in found:
            if isinstance(node, Bind):
                self.positions[node.loop.var] = self.free(node.position)

    def loops_of(self, expr: Expr) -> frozenset[str]:
        """The loop variables that an expression depends on, through positions too."""
        found = self.free(expr)
        while bound := found & self.positions.keys():
            found = (found - bound).union(*(self.positions[name] - bound for name in bound))
        return found

    def work(self, expr: Expr, domain: Mapping[str, Index]) -> int:
        """The cost of one node, evaluated once for each value of its free variables within the loops of `domain`.

        A value that depends on an inner loop is evaluated in all the loops outside it.
        """
        free = self.loops_of(expr)
        last = max((position for position, name in enumerate(domain) if name in free), default=-1)
        outer = list(domain.values())[: last + 1]
        inner = [self.ranges[name] for name in free if name in self.ranges]
        return weight(expr) * self.count([*outer, *inner])


def weight(expr: Expr) -> int:
    """The cost of one evaluation of a node, apart from what it is made of."""
    if isinstance(expr, Call):
        return 8 if expr.op in TRANSCENDENTAL else 1
    if isinstance(expr, Bind):
        return GATHER
    if isinstance(expr, Scan):
        return 16 if expr.op == "logaddexp" else 2
    return {Element: 2, Check: 1}.get(type(expr), 0)
