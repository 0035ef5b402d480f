"""Gives attention on the CPU that is ATen's flash kernel to our own, where that is faster on this machine.

    o, l = _scaled_dot_product_flash_attention_for_cpu(q, k, v)   ->   o, l = assay.flash_attention(q, k, v, ...)

Of float32, without dropout, for depths that the kernel is made for (`compiler/kernels/flash_attention.py`). What
derives it reads the same results, so it stays ATen's. Rounding: another order of the same sums.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx
from torch.fx.operator_schemas import normalize_function

from assay.compiler.ir.graph.calls import call_for, put_in_place
from assay.compiler.ir.graph.roles import Program
from assay.compiler.ir.tensors.layout.strides import hints, is_known
from assay.compiler.machine import number
from assay.compiler.ops.calls.attention import FLASH_DEPTHS, flash_attention, is_own_attention_fastest, prepare_flash

FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


def use_flash_attention(program: Program) -> int:
    """Returns the number of calls that changed hands: none where ATen's kernel is the faster one on this machine."""
    if not any(node.target is FLASH for node in program.module.graph.nodes) or not is_own_attention_fastest():
        return 0
    chosen = [node for node in program.module.graph.nodes if node.target is FLASH and _is_taken(node)]
    for depth in {_replace(node) for node in chosen}:
        prepare_flash(depth)
    return len(chosen)


def _arguments(node: fx.Node) -> dict[str, Any]:
    found = normalize_function(FLASH, node.args, node.kwargs, normalize_to_only_use_kwargs=True)
    assert found is not None
    return found.kwargs


def _is_taken(node: fx.Node) -> bool:
    given = _arguments(node)
    q, k, v = (given[name].meta["val"] for name in ("query", "key", "value"))
    mask = given["attn_mask"]
    values = [q, k, v] if mask is None else [q, k, v, mask.meta["val"]]
    if given["dropout_p"] or any(value.dtype is not torch.float32 for value in values):
        return False
    depth = q.shape[3]
    if not isinstance(depth, int) or depth not in FLASH_DEPTHS or str(v.shape[3]) != str(depth):
        return False
    if not all(is_known(size) for value in values for size in (*value.shape, *value.stride())):
        return False
    if any(str(value.stride(3)) != "1" for value in (q, k, v)) or hints(q.shape)[:2] != hints(k.shape)[:2]:
        return False
    return 4 * math.prod(hints(q.shape)) * hints(k.shape)[2] >= number("own_attention_flops")


def _replace(node: fx.Node) -> int:
    """Returns the depth of the heads."""
    given = _arguments(node)
    depth = int(given["query"].meta["val"].shape[3])
    scale = 1.0 / math.sqrt(depth) if given["scale"] is None else given["scale"]
    q, k, v = (given[name] for name in ("query", "key", "value"))
    with node.graph.inserting_before(node):
        made = call_for(node, flash_attention, q, k, v, given["is_causal"], given["attn_mask"], scale)
    put_in_place(made, node)
    return depth
