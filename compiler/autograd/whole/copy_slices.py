"""The backward of a write through a view: the gradient of the view's part goes to the function, the rest passes by."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def before_function(
    gradients: Sequence[torch.Tensor | None],
    base: tuple[Sequence[int], Sequence[int], int],
    view: tuple[Sequence[int], Sequence[int], int],
) -> list[torch.Tensor | None]:
    """The gradient laid out as the base is, the part of it that the view shows, and a copy of that for the function.

    Geometries are sizes, strides and offset. Of a gradient that is missing all three are.
    """
    (given,) = gradients
    if given is None:
        return [None, None, None]
    sizes, strides, offset = base
    result = given.new_empty_strided(sizes, strides)
    result.copy_(given)
    view_sizes, view_strides, view_offset = view
    part = result.as_strided(view_sizes, view_strides, view_offset - offset)
    return [result, part, part.clone(memory_format=torch.contiguous_format)]


def after_function(
    needs: Sequence[bool],
    result: torch.Tensor | None,
    found: Sequence[torch.Tensor | None],
    base: tuple[Sequence[int], Sequence[int], int],
    view: tuple[Sequence[int], Sequence[int], int],
) -> list[torch.Tensor | None]:
    """The gradients of what the write took: the base's, with the function's in the view's part, and those of others.

    The part is taken anew: between the two, a function that is a call may have cut it off from the whole.
    """
    returned: list[torch.Tensor | None] = [None] * len(needs)
    if result is None:
        return returned
    for index, (is_needed, gradient) in enumerate(zip(needs, found, strict=False)):
        if not is_needed or gradient is None:
            continue
        if index == 0:
            sizes, strides, offset = view
            result.as_strided(sizes, strides, offset - base[2]).copy_(gradient)
            returned[0] = result
        else:
            returned[index] = gradient
    return returned
