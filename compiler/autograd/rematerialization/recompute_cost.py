"""What it costs to keep a value for backward, and what to compute it again: picoseconds on a roofline.

    keep     its bytes written (where nothing else needs them in memory), read, and held while backward waits
    again    its elements computed; its bytes written and read once more where a library reads them in backward

The rates are those of two cores of an AVX-512 machine. Only their ratios matter: to keep a value of float32 costs as
much as about eight pointwise operators on it.
"""

from __future__ import annotations

import functools
import operator

import torch
from torch import fx
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import flop_registry

from assay.compiler.ir.graph.trace import producer
from assay.compiler.ir.tensors.layout.strides import hints, is_known
from assay.compiler.ops import kind_of
from assay.compiler.ops.calls.drawn_numbers import dropout_mask, random_words
from assay.compiler.ops.lower import record_of
from assay.compiler.ops.registry import Kind

TRAFFIC = 60
"""A byte written or read."""
HELD = 120
"""A byte that is not free while backward waits: this is the price of memory, not of time."""
ELEMENT = 100
"""An element of a pointwise operator."""
DRAW = 1_000
"""A random number."""
WORD = 200
"""One that a kernel computes from its position: on a GPU about two thirds of what moving three bytes takes."""
FLOP = 6
"""A multiplication or an addition of a contraction."""


def keep(node: fx.Node, is_in_memory: bool, price: int = 1) -> int:
    """`is_in_memory`: forward stores the value whether backward needs it or not. `price`: how much dearer memory is
    than where there is plenty."""
    return bytes_of(node.meta["val"]) * (HELD * price + TRAFFIC + (0 if is_in_memory else TRAFFIC))


def again(node: fx.Node, is_stored: bool) -> int:
    """`is_stored`: backward has to store the value, for a call of a library to read."""
    value = node.meta["val"]
    return work(node) + (2 * TRAFFIC * bytes_of(value) if is_stored and isinstance(value, torch.Tensor) else 0)


def work(node: fx.Node) -> int:
    """The time of a call by itself; nothing for the parts of what a call returns."""
    if node.target is operator.getitem:
        return 0
    if is_elementwise(node):
        each = WORD if node.target in (dropout_mask, random_words) else ELEMENT
        return sum(map(elements, _parts(node.meta["val"]))) * each
    if kind_of(node.target) is Kind.random:
        return DRAW * sum(map(elements, _parts(node.meta.get("val"))[:1]))
    read = [n.meta["val"] for n in node.all_input_nodes if is_measurable(n)]
    moved = sum(bytes_of(value) for value in (*read, *_parts(node.meta.get("val"))))
    return TRAFFIC * moved + max(_flops(node) * FLOP, sum(map(elements, read)) * ELEMENT)


def _flops(node: fx.Node) -> int:
    """The multiplications and additions of a contraction, as torch counts them; 0 for others."""
    if node.target is torch.ops.mkldnn._linear_pointwise.default:
        rows, columns = (n.meta["val"] for n in node.all_input_nodes[:2])
        return 2 * elements(rows) * elements(columns) // hints(columns.shape)[-1]
    packet = getattr(node.target, "overloadpacket", None)
    if packet in (torch.ops.assay.multiply, torch.ops.assay.multiply_batch):
        x, w = (n.meta["val"] for n in node.all_input_nodes[:2])
        return 2 * elements(x) * hints(w.shape)[-1]
    if packet is torch.ops.assay.flash_attention:
        q, k = (n.meta["val"] for n in node.all_input_nodes[:2])
        return 4 * elements(q) * hints(k.shape)[2]
    if packet is torch.ops.aten._scaled_dot_product_flash_attention_for_cpu:
        packet = torch.ops.aten._scaled_dot_product_flash_attention
    count = flop_registry.get(packet)
    if count is None:
        return 0
    value_of = functools.partial(fx.node.map_arg, fn=lambda n: n.meta["val"])
    (flops,) = hints([count(*value_of(node.args), **value_of(node.kwargs), out_val=node.meta["val"])])
    return int(flops)


def _parts(value: object) -> list[torch.Tensor]:
    """The tensors that a call returns."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [part for part in pytree.tree_leaves(value) if isinstance(part, torch.Tensor)]


def is_fused(node: fx.Node) -> bool:
    """Whether a call is computed within kernels, element by element, from what it reads."""
    call, _ = producer(node)
    found = record_of(call.target)
    return found is not None and found.rule is not None and found.kind is not Kind.contraction


def is_elementwise(node: fx.Node) -> bool:
    """Whether each element of the value follows from few of what it reads, so that it is cheap to compute again."""
    return is_fused(node) and kind_of(node.target) in (Kind.pointwise, Kind.creation)


def is_measurable(node: fx.Node) -> bool:
    """Whether a value is one tensor whose size has a hint."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and all(is_known(size) for size in value.shape)


def elements(value: torch.Tensor) -> int:
    return torch.Size(hints(value.shape)).numel()


def bytes_of(value: torch.Tensor) -> int:
    return elements(value) * value.element_size()
