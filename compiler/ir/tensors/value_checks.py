"""Which calls eager may refuse for what only a run knows: elements of tensors, and Python numbers that change.

    gather(x, 0, index)              an index may be out of range
    full([2, 3], number, int32)      the number may not fit

Nobody may read what such a call gives. It is made all the same, since eager raises there.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import torch
from torch import fx

from assay.compiler.ir.tensors.layout.strides import SYMBOLIC
from assay.compiler.ir.typed_nodes import traced_value

MAY_REFUSE = "may_refuse"
"""Marks, in the metadata of a call of the program, that eager may refuse it for what only a run knows."""
IS_CHECK = "is_check"
"""Marks such a call that nobody reads: it is made for what it may refuse."""

OF_ELEMENTS = frozenset(
    name
    for names in (
        "gather scatter scatter_add scatter_reduce take put index index_select index_put _unsafe_index_put",
        "index_add index_copy index_fill index_reduce masked_scatter embedding _embedding_bag",
        "_embedding_bag_forward_only nll_loss_forward nll_loss2d_forward binary_cross_entropy",
        "multi_margin_loss multilabel_margin_loss_forward max_unpool2d max_unpool3d histc lu_unpack",
        "linalg_lu_solve segment_reduce",
    )
    for name in names.split()
)
"""Operators whose kernels look at elements and may refuse them."""
OF_SIZES = frozenset({"_int_mm"})
"""Those whose kernels on a GPU refuse sizes that no fake tensor does, 0 among them."""
DIVISIONS = frozenset("div floor_divide remainder fmod".split())
"""Those that refuse a zero among integer divisors."""
NUMBERS = ("number", "float")
OF_FORM = frozenset(
    "zero fill copy zeros_like ones_like full_like empty_like rand_like randn_like randint_like new_zeros new_ones "
    "new_full new_empty new_empty_strided normal_functional uniform exponential geometric cauchy log_normal random"
    "".split()
)
"""Operators that read the form of their first argument, and none of its elements: what it was is written over."""
OF_FORM_IN_PART = {"bernoulli": ("p", "Tensor")}
"""Those that do so by some of their overloads."""


def may_refuse(node: fx.Node) -> bool:
    """Whether eager may refuse a call for what was not known when it was recorded."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return False
    name = target._schema.name.removeprefix("aten::")
    if name in OF_ELEMENTS | OF_SIZES or (name in DIVISIONS and _divides_integers(node)):
        return True
    return any(_may_not_fit(traced_value(argument)) for argument in _numbers_of(node, target))


def reads(call: fx.Node, value: fx.Node) -> bool:
    """Whether a call reads elements of one of its arguments."""
    target = call.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return True
    name = target._schema.name.removeprefix("aten::")
    if name not in OF_FORM and target._overloadname not in OF_FORM_IN_PART.get(name, ()):
        return True
    rest: list[fx.Node] = []
    fx.node.map_arg((call.args[1:], call.kwargs), rest.append)
    return value in rest


def _may_not_fit(number: object) -> bool:
    return isinstance(number, SYMBOLIC) or (isinstance(number, float) and not math.isfinite(number))


def _divides_integers(node: fx.Node) -> bool:
    """Whether an integer, or a tensor of integers, is divided by a tensor of integers."""
    values = [traced_value(argument) for argument in node.args[:2]]
    return len(values) == 2 and isinstance(values[1], torch.Tensor) and all(map(_is_of_integers, values))


def _is_of_integers(value: object) -> bool:
    if isinstance(value, torch.Tensor):
        return not value.is_floating_point() and not value.is_complex()
    return isinstance(value, int)


def _numbers_of(node: fx.Node, target: torch._ops.OpOverload) -> Iterator[object]:
    """The arguments of a call that are Python numbers and no sizes."""
    for at, name in _places_of(target):
        if at < len(node.args):
            yield node.args[at]
        elif name in node.kwargs:
            yield node.kwargs[name]


@functools.cache
def _places_of(target: torch._ops.OpOverload) -> tuple[tuple[int, str], ...]:
    arguments = enumerate(target._schema.arguments)
    return tuple((at, a.name) for at, a in arguments if str(a.real_type).removeprefix("Optional[").startswith(NUMBERS))
