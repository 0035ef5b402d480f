"""The rules of the loop IR, checked. A state that breaks one is a bug of the compiler: `VerifyError` says which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from assay.compiler.errors import VerifyError
from assay.compiler.ir.loops.failures import FAILURES
from assay.compiler.ir.loops.index import ONE, ZERO, Index, Int, Symbol, mod, symbols
from assay.compiler.ir.loops.kernel import (
    Allocate,
    Bind,
    Call,
    CallAten,
    Check,
    Element,
    Expr,
    Free,
    Kernel,
    Load,
    Reduce,
    Reinterpret,
    Reuse,
    Scan,
    Schedule,
    Step,
    references,
)
from assay.compiler.ir.loops.live_memory import reads_of
from assay.compiler.ir.loops.rewrite import (
    COMPARISONS,
    NARROW,
    bound_at_root,
    children,
    free_variables,
    indices,
    loops_bound_by,
    nodes,
)


def verify(kernel: Kernel) -> None:
    """Raises: VerifyError if a kernel reads what it does not declare, computes in a storage dtype, or its loops are not
    independent."""
    for problem in problems(kernel):
        raise VerifyError(f"kernel {kernel.name}: {problem}")


def problems(kernel: Kernel) -> Iterator[str]:
    """What is wrong with a kernel, one sentence each."""
    buffers = {buffer.name: buffer for buffer in kernel.buffers}
    if len(buffers) != len(kernel.buffers):
        yield "two buffers have one name"
    known = {loop.var for loop in kernel.loops} | set(kernel.symbols)
    for store in kernel.stores:
        if store.buffer not in buffers:
            yield f"it stores to {store.buffer}, which is no argument"
        elif store.expr.dtype is not buffers[store.buffer].dtype:
            yield f"it stores {store.expr.dtype} to {store.buffer} of {buffers[store.buffer].dtype}"
        yield from _unknown(store.index, known | {binding.loop.var for binding in bound_at_root(store.expr)})
    yield from _scoped(kernel, known)
    yield from _scans(kernel)
    for node in nodes(*(store.expr for store in kernel.stores)):
        yield from _problems_of(node, buffers)
    yield from _dependences(kernel)


def _unknown(index: Index, known: set[str]) -> Iterator[str]:
    for name in sorted(symbols(index) - known):
        yield f"{name} in an index is not bound"


def _scoped(kernel: Kernel, known: set[str]) -> Iterator[str]:
    """Variables used outside the reduction that binds them."""
    pending: list[tuple[Expr, frozenset[str]]] = [(store.expr, frozenset(known)) for store in kernel.stores]
    seen = set(pending)
    while pending:
        expr, scope = pending.pop()
        for index in indices(expr):
            yield from _unknown(index, set(scope))
        for child in children(expr):
            is_inside = not isinstance(expr, Bind) or child is expr.body
            inner = scope | {loop.var for loop in loops_bound_by(expr)} if is_inside else scope
            if (child, inner) not in seen:
                seen.add((child, inner))
                pending.append((child, inner))


def _scans(kernel: Kernel) -> Iterator[str]:
    """Scans over what is no loop of the kernel, or over several, or beside a reduction."""
    found = nodes(*(store.expr for store in kernel.stores))
    lasts: dict[Index, Index] = {Symbol(loop.var): loop.extent for loop in kernel.loops}
    outer = {node for node in found if isinstance(node, Scan) and lasts.get(node.last) is node.loop.extent}
    inner = set(nodes(*(node.body for node in outer)))
    for node in found:
        if isinstance(node, Scan) and node not in outer and node not in inner:
            yield f"a scan up to {node.last}, which is no loop of the kernel"
    if outer and any(isinstance(node, Reduce) for node in found):
        yield "a scan beside a reduction"
    if any(symbols(node.last) & free_variables(node.body, {}) for node in outer):
        yield "a scan whose elements depend on where it ends"
    if len({node.last for node in outer}) > 1:
        yield "scans over several loops"


def _problems_of(node: Expr, buffers: Mapping[str, object]) -> Iterator[str]:
    if isinstance(node, Element):
        yield f"it holds the element {node.tensor}, which has no layout"
    if isinstance(node, Load) and node.buffer not in buffers:
        yield f"it loads {node.buffer}, which is no argument"
    if isinstance(node, Reduce) and not node.loops:
        yield f"a {node.op} runs over no loop"
    if isinstance(node, Bind) and node.position.dtype is not torch.int64:
        yield f"a position of {node.position.dtype}"
    if isinstance(node, Check) and (node.condition.dtype is not torch.bool or node.failure not in FAILURES):
        yield f"a check of {node.condition.dtype} that fails with {node.failure!r}"
    if isinstance(node, Call):
        yield from _problems_of_call(node)


def _problems_of_call(node: Call) -> Iterator[str]:
    if node.op != "where" and any(arg.dtype in NARROW for arg in node.args):
        yield f"{node.op} computes in {node.args[0].dtype}"
    operands = node.args[1:] if node.op == "where" else node.args
    if len({arg.dtype for arg in operands}) > 1:
        yield f"{node.op} has operands of {', '.join(str(arg.dtype) for arg in operands)}"
    if node.op in COMPARISONS and node.dtype is not torch.bool:
        yield f"{node.op} gives {node.dtype}"


def _dependences(kernel: Kernel) -> Iterator[str]:
    stored: dict[str, list[Index]] = {}
    for store in kernel.stores:
        stored.setdefault(store.buffer, []).append(store.index)
    if not all(len(indices) == 1 or _are_lanes(indices) for indices in stored.values()):
        yield "two stores write one buffer"
    for node in nodes(*(store.expr for store in kernel.stores)):
        if isinstance(node, Load) and node.buffer in stored and [node.index] != stored[node.buffer]:
            yield f"it loads {node.buffer} at another index than it stores"


def _are_lanes(indices: list[Index]) -> bool:
    """Whether indices are those of the lanes of a complex number: an even one, and the next."""
    return len(indices) == 2 and indices[1] - indices[0] is ONE and mod(indices[0], Int(2)) is ZERO


# ---- schedules -------------------------------------------------------------------------------------------------------


def verify_schedule(schedule: Schedule) -> None:
    """Raises: VerifyError if a step reads a value that does not exist at that point, or makes one twice; and for any
    kernel that breaks a rule."""
    for kernel in schedule.kernels:
        verify(kernel)
    alive = {*schedule.inputs, *schedule.constants}
    for step in schedule.steps:
        _advance(step, alive)
    for name in references(schedule.outputs):
        if name not in alive:
            raise VerifyError(f"output {name} does not exist at the end")


def _advance(step: Step, alive: set[str]) -> None:
    """Checks one step against the values that exist, and updates them."""
    for name in step.names if isinstance(step, Free) else reads_of(step):
        if name not in alive:
            raise VerifyError(f"{type(step).__name__} uses {name}, which does not exist there")
    if isinstance(step, Free):
        alive.difference_update(step.names)
    elif isinstance(step, Allocate | Reuse | CallAten | Reinterpret):
        if step.name in alive:
            raise VerifyError(f"{step.name} is made twice")
        alive.add(step.name)
