"""Removes calls that return their argument: `detach`, `alias`, and views or expansions to the shape already had; and
the conjugate of a number.

    b = detach(a); c = mul(b, 2)   ->   c = mul(a, 2)
    b = _conj(2j); c = mul(a, b)   ->   c = mul(a, -2j)

In a functional graph nothing is written, so whether `b` shares memory with `a` cannot be seen inside it; results that
are views were taken out of the graph before (law: `results` of a program never name a view).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import fx

from assay.compiler.ir.graph.replacement import replace_node
from assay.compiler.ir.graph.roles import Gradient, Program

aten = torch.ops.aten
IDENTITIES = {aten.detach.default, aten.alias.default, aten.lift_fresh.default}
RESHAPES = {aten.view.default, aten._unsafe_view.default, aten.expand.default, aten.as_strided.default}


def remove_no_ops(program: Program) -> int:
    """Returns the number of calls removed."""
    return _remove(program, _is_no_op)


def remove_saved_aliases(program: Program) -> int:
    """Removes aliases that backward alone reads, as those that autograd makes of what it saves. Returns their number.

    Those that forward computes with, or returns, are the program's own. They stay, as do all views.
    """
    forward = _forward_nodes(program)
    return _remove(program, lambda node: node.target in IDENTITIES and (node not in forward or _is_lifted(node)))


def _forward_nodes(program: Program) -> set[fx.Node]:
    """The nodes that lead to an output which is no gradient."""
    pairs = zip(program.signature.outputs, program.returned, strict=True)
    found = {node for role, node in pairs if not isinstance(role, Gradient) and isinstance(node, fx.Node)}
    for node in reversed(program.module.graph.nodes):
        if any(user in found for user in node.users):
            found.add(node)
    return found


def _is_lifted(node: fx.Node) -> bool:
    return node.target is aten.lift_fresh.default


def _remove(program: Program, is_no_op: Callable[[fx.Node], bool]) -> int:
    removed = 0
    for node in list(program.module.graph.nodes):
        if node.target is aten._conj.default and isinstance(node.args[0], complex):
            _put_number(node, node.args[0].conjugate())
            removed += 1
        elif node.op == "call_function" and is_no_op(node):
            replace_node(node, node.args[0])
            program.module.graph.erase_node(node)
            removed += 1
    return removed


def _put_number(node: fx.Node, number: complex) -> None:
    """Gives readers the number instead of a call that makes a tensor of it."""
    for reader in list(node.users):
        reader.args, reader.kwargs = fx.map_arg(
            (reader.args, reader.kwargs), lambda read: number if read is node else read
        )
    node.graph.erase_node(node)


def _is_no_op(node: fx.Node) -> bool:
    if node.target in IDENTITIES:
        return True
    source = node.args[0]
    if node.target not in RESHAPES or not isinstance(source, fx.Node):
        return False
    return _same_layout(source.meta["val"], node.meta["val"])


def _same_layout(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two values have one size, stride and offset, without guarding on symbolic ones."""
    if a.dim() != b.dim() or a.dtype != b.dtype:
        return False
    mine = (*a.shape, *a.stride(), a.storage_offset())
    theirs = (*b.shape, *b.stride(), b.storage_offset())
    return all(_is_same(x, y) for x, y in zip(mine, theirs, strict=True))


def _is_same(x: int | torch.SymInt, y: int | torch.SymInt) -> bool:
    if isinstance(x, torch.SymInt) and isinstance(y, torch.SymInt):
        return bool(x.node.expr == y.node.expr)
    return not isinstance(x, torch.SymInt) and not isinstance(y, torch.SymInt) and x == y
