"""Eager at other places in a vector.

Eager computes pointwise operators by full vectors. The elements behind the last full one are computed one by one, and
so are all of an operand that is not contiguous. Some operators give something else there: `gelu(inf)` is NaN in a
vector and infinity alone, the larger of -0.0 and 0.0 has either sign, and an exponential may end in another last bit.
So may the bits of a NaN.
Which of them an element meets depends on how many there are before it, so that eager has two answers and prefers
neither.

A `Placed` mode computes every pointwise operator at one kind of place. What a backend does is right where eager does it
at one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

Place = Callable[[Tensor], Tensor]
VECTOR = 128
"""A multiple of the elements that eager computes at once, of any dtype on any processor."""


def alone(value: Tensor) -> Tensor:
    """The elements with gaps between them, where eager computes one at a time."""
    apart = value.new_empty((*value.shape, 2))[..., 0]
    return apart.copy_(value)


def in_vectors(value: Tensor) -> Tensor:
    """The elements in one row, after which others come, so that each is part of a full vector."""
    count = value.numel()
    length = (count // VECTOR + 1) * VECTOR
    return value.reshape(-1).repeat(-(-length // count))[:length]


PLACES: dict[str, Place] = {"one by one": alone, "in full vectors": in_vectors}

aten = torch.ops.aten
UNTAGGED = (
    *(aten._to_copy.default, aten.hardswish.default, aten.hardswish_backward.default),
    *(aten.hardtanh_backward.default, aten.softshrink_backward.default, aten.hardshrink_backward.default),
    *(aten.elu_backward.default, aten.leaky_relu_backward.default, aten.mish_backward.default),
    *(aten.softplus_backward.default, aten.hardsigmoid_backward.default),
)
"""Operators that compute element by element, which torch does not call pointwise. To bfloat16, a vector's NaN has all
bits set and one alone has not. The gradient of a clamp or a shrinkage at a NaN is 0 in a vector, and passes alone."""


class Placed(TorchDispatchMode):
    """Pointwise operators on tensors of the CPU have the numbers that eager computes at that place; all else about
    their results is as ever. Operators that draw random numbers, or give an `out` another size, are left alone."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._place = place

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        placed = self._placed(func, args, kwargs) if _is_placeable(func) else []
        result = func(*args, **kwargs)
        for into, value in zip(tree_leaves(result) if placed else (), placed, strict=bool(placed)):
            into.copy_(value.reshape(-1)[: into.numel()].view(into.shape))
        return result

    def _placed(self, func: Any, args: Any, kwargs: Any) -> list[Tensor]:
        """What the operator gives for its operands elsewhere; nothing where there is no elsewhere."""
        outs = [argument.name for argument in func._schema.arguments if argument.is_out]
        read = _tensors((args, {name: value for name, value in kwargs.items() if name not in outs}))
        written = [kwargs[name] for name in outs]
        if not read or not all(_is_plain(operand) for operand in (*read, *written)):
            return []
        shape = torch.broadcast_shapes(*(operand.shape for operand in read))
        if 0 in shape or any(out.shape != shape for out in written):
            return []

        def place(operand: Tensor) -> Tensor:
            return self._place(operand.expand(shape)) if operand.dim() else operand

        moved_args, moved_kwargs = tree_map_only(Tensor, place, (args, kwargs))
        return tree_leaves(func(*moved_args, **moved_kwargs))


def _tensors(tree: Any) -> list[Tensor]:
    """Those with dimensions: a number by itself has no place."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor) and leaf.dim()]


def _is_placeable(func: Any) -> bool:
    return (
        (torch.Tag.pointwise in func.tags or func in UNTAGGED)
        and torch.Tag.nondeterministic_seeded not in func.tags
        and all(str(returned.type) == "Tensor" for returned in func._schema.returns)
    )


def _is_plain(value: Tensor) -> bool:
    return value.device.type == "cpu" and value.layout == torch.strided and type(value) in (Tensor, Parameter)
