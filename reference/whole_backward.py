"""A recorded backward, run node by node and hook by hook on real tensors: what a compiled one has to equal.

No stretch is cut, nothing is moved or dropped, and each value is kept to the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from assay.compiler.ir.graph.backward.engine_steps import (
    Accumulated,
    Backward,
    CallSize,
    Hook,
    Leaf,
    Made,
    Packed,
    Saved,
    Scalar,
    Size,
    Unpacking,
    filled,
)

call_retained = torch._C._dynamo.compiled_autograd.call_cpp_tensor_pre_hooks


def run_backward(
    backward: Backward, inputs: list[Any], sizes: Sequence[int], scalars: Sequence[float], hooks: Any, packed: Any
) -> list[Any]:
    """What the backward gives; its leaves have their gradients, and its hooks have been called."""
    given = list(inputs)
    made: list[Sequence[Any]] = []

    def read(value: Any) -> Any:
        match value:
            case Leaf(index) | Saved(index):
                return given[index]
            case Size(index):
                return sizes[index]
            case Scalar(index):
                return scalars[index]
            case CallSize(context, index):
                return hooks[context].sizes[index]
            case Hook(index):
                return hooks[index]
            case Packed(index):
                return packed[index]
            case Made(step, item):
                return made[step][item]
            case Accumulated(step):
                return read(backward.steps[step].arguments[0]).grad
        raise AssertionError(value)

    with torch.no_grad():
        for step in backward.steps:
            found = CALLS[step.kind](step, *filled(step.arguments, read))
            made.append(found if isinstance(found, (list, tuple)) else [found])
        return list(filled(backward.outputs, read))


def accumulate(leaf: torch.Tensor, gradient: torch.Tensor | None) -> None:
    """The sum of what was there and a gradient; in place where there is one, as others may hold it."""
    if gradient is None:
        return
    if leaf.grad is None:
        leaf.grad = gradient.clone()
    elif gradient.layout is torch.strided and leaf.grad.layout is not torch.strided:
        leaf.grad = gradient + leaf.grad
    else:
        leaf.grad += gradient


def of_function(context: Any, gradients: Sequence[Any], saved: Sequence[Any], takes_zeros: Sequence[bool]) -> Any:
    """What a function's own backward gives; its context has the tensors that were saved."""
    results = zip(gradients, context._input_metadata, takes_zeros, strict=True)
    given = [
        torch.zeros(result.shape, dtype=result.dtype, device=result.device) if each is None and takes else each
        for each, result, takes in results
    ]

    class Context:
        @property
        def saved_tensors(self) -> tuple[Any, ...]:
            return tuple(each.hook(each.packed) if isinstance(each, Unpacking) else each for each in saved)

        def __getattr__(self, name: str) -> Any:
            return getattr(context, name)

    return type(context).apply(Context(), *given)


def kept(found: Any, before: Any) -> Any:
    """What a hook gave, or what was there before it if it gave nothing."""
    return before if found is None else found


def add(old: Any, new: Any) -> Any:
    """Two gradients that meet, of which either may be missing; a dense one stands first."""
    if old is None or new is None:
        return new if old is None else old
    return new + old if old.is_sparse and not new.is_sparse else old + new


CALLS: dict[str, Callable[..., Any]] = {
    "formula": lambda step, *given: step.function(*given),
    "opaque": lambda step, *given: step.function(*given),
    "add": lambda step, old, new: add(old, new),
    "accumulate": lambda step, leaf, gradient: accumulate(leaf, gradient),
    "tensor_pre_hook": lambda step, hook, gradient, _: kept(hook(gradient), gradient),
    "retain_grad": lambda step, hook, gradient: call_retained(hook, gradient),
    "pre_hook": lambda step, hook, given: kept(hook(given), given),
    "post_hook": lambda step, hook, made, given: kept(hook(made, given), made),
    "post_accumulate_hook": lambda step, hook, leaf: hook(leaf),
    "unpack": lambda step, hook, packed: hook(packed),
    "backward": lambda step, context, given, saved, _, zeros: of_function(context, given, saved, zeros),
}
"""What each kind of step is on real tensors."""
