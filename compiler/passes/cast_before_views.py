"""Casts a value before it is viewed in another shape, where nothing else reads it.

    c = _to_copy(view(x, s), dtype)   ->   c = view(_to_copy(x, dtype), s)

A cast over the loops that computed the value is part of their kernel. Over other loops it would be a kernel of its
own, which reads what the first had to store. The gradient of a loss is such a value, in float32, of all logits.
"""

from __future__ import annotations

import torch
from torch import fx

from assay.compiler.ir.graph.calls import call_for, put_in_place
from assay.compiler.ir.graph.roles import Program
from assay.compiler.ir.tensors.layout.strides import rows_of
from assay.compiler.ir.typed_nodes import function_of

aten = torch.ops.aten
VIEWS = (aten.view.default, aten._unsafe_view.default)


def cast_before_views(program: Program) -> int:
    """Returns the number of casts moved."""
    casts = program.module.graph.find_nodes(op="call_function", target=aten._to_copy.default)
    return sum(map(_moved, casts))


def _moved(cast: fx.Node) -> bool:
    views = list[fx.Node]()
    value = cast.args[0]
    while isinstance(value, fx.Node) and value.target in VIEWS and len(value.users) == 1:
        views.append(value)
        value = value.args[0]
    if not views or not isinstance(value, fx.Node) or not _is_movable(cast, value):
        return False
    with cast.graph.inserting_before(cast):
        made = call_for(cast, aten._to_copy.default, value, dtype=cast.meta["val"].dtype)
        for view in reversed(views):
            made = call_for(view, function_of(view), made, view.args[1])
    put_in_place(made, cast)
    for view in views:
        view.graph.erase_node(view)
    return True


def _is_movable(cast: fx.Node, value: fx.Node) -> bool:
    """Whether the cast changes nothing but the dtype, of a value in rows that a call has computed for it alone."""
    x, result = value.meta["val"], cast.meta["val"]
    if value.op != "call_function" or len(value.users) != 1 or "memory_format" in cast.kwargs:
        return False
    is_in_rows = list(map(str, x.stride())) == list(map(str, rows_of(x.shape)))
    return is_in_rows and x.device == result.device and x.layout == result.layout and x.dtype is not result.dtype
