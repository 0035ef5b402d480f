"""Masks of attention that keep torch from its fast kernels, and need not.

    positions = arange(197); mask = (positions[None, None, :, None] >= 0).expand(8, 1, 197, 197)
    scaled_dot_product_attention(q, k, v, attn_mask=mask)      ->     scaled_dot_product_attention(q, k, v)

A mask that a program computes of nothing but numbers, and that is true everywhere, is left out. Libraries build such
masks only for programs that are recorded. With a mask torch's fastest kernels are out of the question, and where its
rows begin off 16 bytes there is none but products and a softmax in float32.

    bias = table[buckets].permute(2, 0, 1)[None]               ->     bias.contiguous()

On a GPU there is none either where a row's elements lie apart. A bias that is looked up for each pair of positions,
with its heads innermost, lies so. Masks of halves are laid out row by row, unless the mask is learned. The fast
kernels round its gradient for each pair of positions, and a table's sum of those is then a tenth off.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.nn import functional as F

from assay.compiler.ir.typed_nodes import function_of

ATTENTION = F.scaled_dot_product_attention
MASK = 3
"""Where among the arguments of attention the mask is."""
MOST_ELEMENTS = 1 << 24
"""Of a mask that is computed while compiling: 10 ms."""
MOST_CALLS = 64
"""Calls that make a mask, which are followed back from attention: a mask of more is computed at each call."""
MAKERS: frozenset[Callable[..., Any]] = frozenset((torch.arange, torch.ones, torch.zeros, torch.full))
FUNCTIONS: frozenset[Callable[..., Any]] = frozenset((
    *MAKERS, torch.logical_and, torch.logical_or, torch.logical_not,
    operator.add, operator.sub, operator.mul, operator.getitem, operator.and_, operator.or_, operator.invert,
    operator.ge, operator.gt, operator.le, operator.lt, operator.eq, operator.ne,
))  # fmt: skip
METHODS = frozenset(
    "expand unsqueeze view reshape to bool add sub mul ge gt le lt eq ne logical_and logical_or".split()
)


def has_true_mask(node: fx.Node) -> bool:
    """Whether a node is a call of attention with a mask that is true everywhere, at every call of the program."""
    if node.op != "call_function" or node.target is not ATTENTION:
        return False
    mask = node.args[MASK] if len(node.args) > MASK else node.kwargs.get("attn_mask")
    return isinstance(mask, fx.Node) and _is_true(mask)


def with_mask(
    args: Sequence[Any], kwargs: Mapping[str, Any], mask: Tensor | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of attention with another mask among them, or none."""
    if len(args) > MASK:
        return (*args[:MASK], mask, *args[MASK + 1 :]), dict(kwargs)
    return tuple(args), {**kwargs, "attn_mask": mask}


def laid_out(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of attention, on a GPU and in halves with the elements of each row of a mask side by side."""
    mask = args[MASK] if len(args) > MASK else kwargs.get("attn_mask")
    query = args[0] if args else kwargs.get("query")
    if not isinstance(mask, Tensor) or not isinstance(query, Tensor) or not _is_of_halves(query) or mask.requires_grad:
        return tuple(args), dict(kwargs)
    return with_mask(args, kwargs, row_by_row(mask))


def row_by_row(mask: Tensor) -> Tensor:
    """The mask with the elements of each row side by side; itself where they are, or where there is one a row. What is
    expanded over other dimensions is still there once."""
    if mask.dim() == 0 or mask.size(-1) == 1 or mask.stride(-1) == 1:
        return mask
    rows = mask
    for dim in range(mask.dim() - 1):
        if mask.stride(dim) == 0 and mask.size(dim) != 1:
            rows = rows.narrow(dim, 0, 1)
    return rows.contiguous().expand(mask.size())


def _is_of_halves(query: Tensor) -> bool:
    """Whether attention on a GPU computes in 16 bits, by its input or as autocast has it."""
    if query.device.type != "cuda":
        return False
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else query.dtype
    return dtype in (torch.float16, torch.bfloat16)


def _is_true(mask: fx.Node) -> bool:
    example = mask.meta.get("example_value")
    if not isinstance(example, Tensor) or example.dtype is not torch.bool or not _is_small(example):
        return False
    calls = _calls_behind(mask)
    if calls is None:
        return False
    with unset_fake_temporarily():
        return bool(_computed(calls)[mask].all())


def _is_small(value: Tensor) -> bool:
    return all(isinstance(size, int) for size in value.shape) and math.prod(value.shape) <= MOST_ELEMENTS


def _calls_behind(node: fx.Node) -> list[fx.Node] | None:
    """The calls that a value is made by, in order; None where one is made of more than numbers, or is no pure one."""
    found: dict[fx.Node, None] = {}
    pending = [node]
    while pending:
        call = pending.pop()
        if call in found:
            continue
        is_known = call.target in (FUNCTIONS if call.op == "call_function" else METHODS)
        if call.op not in ("call_function", "call_method") or not is_known or len(found) == MOST_CALLS:
            return None
        found[call] = None
        pending += call.all_input_nodes
    order = {each: position for position, each in enumerate(node.graph.nodes)}
    return sorted(found, key=order.__getitem__)


def _computed(calls: Sequence[fx.Node]) -> dict[fx.Node, Any]:
    """The values of calls, on the CPU."""
    values: dict[fx.Node, Any] = {}
    for call in calls:
        args, kwargs = fx.node.map_arg((call.args, dict(call.kwargs)), values.__getitem__)
        args, kwargs = fx.node.map_aggregate((args, kwargs), _on_cpu)
        if call.op == "call_method":
            values[call] = getattr(args[0], str(call.target))(*args[1:], **kwargs)
        else:
            if call.target in MAKERS:
                kwargs = {**kwargs, "device": "cpu"}
            values[call] = function_of(call)(*args, **kwargs)
    return values


def _on_cpu(value: Any) -> Any:
    return torch.device("cpu") if isinstance(value, torch.device) else value
