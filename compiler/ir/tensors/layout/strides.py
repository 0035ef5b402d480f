"""Where the elements of strided tensors lie, as far as their sizes, strides and offsets tell.

    span(base[2:6])                        the bytes of the storage from its first element to the end of its last
    may_overlap(base[:4], base[2:])        True
    overlaps_itself(x.expand(3, 4))        True; also x.as_strided((3, 3), (1, 1))

Sizes may be symbolic. `hint` reads them as they were when the program was recorded; the comparisons here guard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sympy
import torch
from torch.utils._sympy.functions import Max

from assay.compiler.errors import Unsupported

Number = int | torch.SymInt
Symbolic = torch.SymInt | torch.SymFloat | torch.SymBool
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def hint(size: Number) -> int:
    """A size as it was when the program was recorded. Raises: Unsupported for one that depends on data."""
    if not is_known(size):
        raise Unsupported(f"the memory of a tensor depends on a size that only the data tells: {size}")
    if not isinstance(size, torch.SymInt):
        return size
    return int(size.node.hint if size.node.has_hint() else size.node.expr)


def is_known(size: Number) -> bool:
    """Whether a size has a hint: one that depends on data has none, unless the program has checked which it is."""
    return not isinstance(size, torch.SymInt) or size.node.has_hint() or size.node.expr.is_number


def hints(sizes: Sequence[Number]) -> list[int]:
    return [hint(size) for size in sizes]


def extent(sizes: Sequence[Number], strides: Sequence[Number]) -> Number:
    """How many elements of memory lie from the first element to the last, both counted; no size is 0."""
    return sum((size - 1) * step for size, step in zip(sizes, strides, strict=True)) + 1


def varying(value: torch.Tensor) -> tuple[int, ...]:
    """The dimensions whose sizes are symbols."""
    return tuple(dim for dim, size in enumerate(value.shape) if isinstance(size, torch.SymInt))


def has_symbols(value: object) -> bool:
    """Whether a size, a stride or the offset of a tensor is a symbol."""
    if not isinstance(value, torch.Tensor):
        return False
    return any(isinstance(size, torch.SymInt) for size in (*value.shape, *value.stride(), value.storage_offset()))


def may_be_same(one: object, other: object) -> bool:
    """Whether two numbers of recordings may be one: all that are not two different symbolic integers."""
    if not isinstance(one, torch.SymInt) or not isinstance(other, torch.SymInt):
        return True
    return one.node.shape_env is other.node.shape_env and bool(one.node.expr == other.node.expr)


def number_at(size: int | torch.SymInt, sizes: Mapping[sympy.Symbol, int]) -> int | None:
    """A size where the symbols have these values; None where it depends on others."""
    if not isinstance(size, torch.SymInt):
        return size
    found = sympy.sympify(size.node.expr.xreplace(sizes))
    return int(found) if found.is_number else None


def is_by_channels(value: torch.Tensor) -> bool:
    """Whether images or volumes lie in memory with their channels innermost. With sizes that are symbols it is asked of
    the strides: before 2.13 torch says no where it cannot tell at once."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if value.dim() not in formats:
        return False
    if all(isinstance(number, int) for number in (*value.shape, *value.stride())):
        return value.is_contiguous(memory_format=formats[value.dim()])
    order = (1, *reversed(range(2, value.dim())), 0)
    return _is_dense(value, order)


def is_dense(value: torch.Tensor) -> bool:
    """Whether elements lie one behind the other without gaps, in whatever order of dimensions."""
    sizes, strides = hints(value.shape), hints(value.stride())
    return _is_dense(value, sorted(range(value.dim()), key=lambda dim: (strides[dim], sizes[dim])))


def _is_dense(value: torch.Tensor, dims: Sequence[int]) -> bool:
    """Whether elements lie one behind the other, the first of these dimensions innermost."""
    expected: Number = 1
    for dim in dims:
        if value.shape[dim] != 1 and value.stride(dim) != expected:
            return False
        expected = expected * value.shape[dim]
    return True


def span(value: torch.Tensor) -> tuple[Number, Number]:
    """The bytes of the storage from the first element to the end of the last."""
    start = value.storage_offset()
    return start * value.element_size(), (start + extent(value.shape, value.stride())) * value.element_size()


def placed(value: torch.Tensor) -> tuple[object, ...]:
    """What two tensors over one storage have in common if each element of one is that element of the other."""
    return value.dtype, value.shape, value.stride(), value.storage_offset()


def may_overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have one storage and their spans meet."""
    if one.untyped_storage()._cdata != other.untyped_storage()._cdata or one.numel() == 0 or other.numel() == 0:
        return False
    (start, end), (other_start, other_end) = span(one), span(other)
    return bool(start < other_end and other_start < end)


def overlaps_itself(value: torch.Tensor) -> bool:
    """Whether two elements may have one place: strides, from the smallest on, do not step over all that lies below.

    Raises: Unsupported where that depends on a size that only the data tells.
    """
    if all(map(is_known, (*value.shape, *value.stride()))):
        return not _step_over(sorted(zip(hints(value.stride()), hints(value.shape), strict=True)))
    steps = sorted(
        zip(value.stride(), value.shape, strict=True), key=lambda pair: (not is_known(pair[0]), _known(pair))
    )
    return not _step_over(steps)


def _known(pair: tuple[Number, Number]) -> int:
    return hint(pair[0]) if is_known(pair[0]) else 0


def _step_over(steps: Sequence[tuple[Number, Number]]) -> bool:
    """Whether each stride is longer than all that the ones before it reach. Where that is not known, it is if it is
    the very product of the stride and size before it, as in what is dense."""
    reach: Number | None = 0
    follows: Number | None = 1
    for step, size in steps:
        if is_known(size) and hint(size) <= 1:
            continue
        is_next = follows is not None and _expression(step) == _expression(follows)
        if not is_next and reach is None:
            raise Unsupported(f"whether a tensor overlaps itself depends on a size that only the data tells: {size}")
        if not is_next and reach is not None and hint(step) <= hint(reach):
            return False
        follows = step * size
        are_known = is_known(step) and is_known(size)
        reach = hint(reach) + hint(step) * (hint(size) - 1) if reach is not None and are_known else None
    return True


def _expression(size: Number) -> object:
    """A size as text would have it, `max(1, n)` as `n`: these differ where there are no elements."""
    return size.node.expr.replace(Max, _of_elements) if isinstance(size, torch.SymInt) else size


def _of_elements(*given: sympy.Expr) -> sympy.Expr:
    rest = [each for each in given if each != 1]
    return rest[0] if len(rest) == 1 else Max(*given)


def order(value: torch.Tensor) -> list[int]:
    """The dimensions of more than one element, from the longest step to the shortest."""
    sizes, strides = hints(value.shape), hints(value.stride())
    return sorted((dim for dim, size in enumerate(sizes) if size > 1), key=lambda dim: (-strides[dim], dim))


def rows_of(shape: Sequence[Number]) -> tuple[Number, ...]:
    """The strides of a tensor in rows."""
    strides: list[Number] = []
    step: Number = 1
    for size in reversed(shape):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))


def iterated(shape: Sequence[Number], operands: Sequence[Sequence[Number]]) -> list[Number]:
    """The strides of the result of ATen's iteration over operands with these strides, broadcast to `shape`.

    The first operand that moves along two dimensions tells which of them is the inner one.
    """
    inner_first = list(reversed(range(len(shape))))
    for position in range(1, len(shape)):
        moved = position
        for other in reversed(range(position)):
            verdict = _compared(inner_first[other], inner_first[moved], operands)
            if verdict > 0:
                inner_first[other], inner_first[moved] = inner_first[moved], inner_first[other]
                moved = other
            elif verdict < 0:
                break
    strides: list[Number] = [0] * len(shape)
    step: Number = 1
    for dim in inner_first:
        strides[dim], step = step, step * shape[dim]
    return strides


def _compared(one: int, other: int, operands: Sequence[Sequence[Number]]) -> int:
    """Whether dimension `one` is inside of (-1) or around (1) another; 0 where no operand tells."""
    for strides in operands:
        if strides[one] == 0 or strides[other] == 0:
            continue
        if strides[one] != strides[other]:
            return -1 if strides[one] < strides[other] else 1
    return 0
