"""A short loop whose iterations ask which one they are, as one store for each of them.

    out[16*i + j] = (j == 0 ? a[i] : 0) + (j == 1 ? b[i] : 0) + ...      j below 16
    ->  out[16*i] = a[i] + 0;  out[16*i + 1] = b[i] + 0;  ...

So come the gradients of a tensor that was taken apart along a dimension: each part is one iteration's, and a sum of all
parts padded with zeros is a copy. Written as a loop it would read every part in every iteration.
"""

from __future__ import annotations

from dataclasses import replace

from assay.compiler.codegen.loops import affine
from assay.compiler.codegen.loops.renamer import Renamer, Variables, index_of, subexpressions, with_expr
from assay.compiler.ir.loops.index import Int
from assay.compiler.ir.loops.kernel import Bind, Call, Kernel, Loop, Reduce, Scan, Store

LONGEST = 32
"""Iterations of a loop that is written out."""
MOST_NODES = 1024
"""Nodes of the expressions that it may come to."""


def unrolled(kernel: Kernel, variables: Variables) -> Kernel:
    """The kernel with such loops written out in the stores that ask; others keep them. Expressions are interned."""
    stores = list(kernel.stores)
    for loop in kernel.loops:
        stores = [part for store in stores for part in _parts(store, loop, kernel, variables)]
    return replace(kernel, stores=tuple(stores))


def _parts(store: Store, loop: Loop, kernel: Kernel, variables: Variables) -> list[Store]:
    if not _is_asked(store, loop) or affine.stride(store.index, loop.var) in (Int(0), Int(1)):
        return [store]
    assert isinstance(loop.extent, Int)
    parts = [_iteration(store, loop, number, kernel, variables) for number in range(loop.extent.value)]
    return parts if sum(len(subexpressions([part.expr])) for part in parts) <= MOST_NODES else [store]


def _is_asked(store: Store, loop: Loop) -> bool:
    """Whether at least half of a loop's iterations are named by comparisons in what is stored."""
    if not isinstance(loop.extent, Int) or not 1 < loop.extent.value <= LONGEST or store.mode != "write":
        return False
    found = subexpressions([store.expr])
    if any(isinstance(expr, Reduce | Scan | Bind) for expr in found):
        return False
    asked = {gap for expr in found if isinstance(expr, Call) and expr.op == "eq" and (gap := _gap(expr, loop))}
    return 2 * len(asked) >= loop.extent.value


def _gap(expr: Call, loop: Loop) -> object | None:
    """The difference of two indices that are compared, where it moves with the loop and with nothing else."""
    a, b = (index_of(arg) for arg in expr.args)
    return a - b if a is not None and b is not None and affine.names(a - b) == {loop.var} else None


def _iteration(store: Store, loop: Loop, number: int, kernel: Kernel, variables: Variables) -> Store:
    extents = {other.var: other.extent for other in kernel.loops if other is not loop}
    rename = Renamer(variables, {loop.var: Int(number)}, extents)
    return with_expr(replace(store, index=rename.index(store.index)), rename(store.expr))
