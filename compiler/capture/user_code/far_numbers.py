"""Numbers of a program beyond what torch's symbolic integers hold, where it was compiled for one number alone.

x[1 - n :]                for n = -(2**63)        ->      x[9223372036854775809:]       which is taken for the end
x == n * 2                for n = 2**63 - 1       ->      x == 18446744073709551614     which is an unsigned number

Dynamo hands on a symbol whose number is guarded. What is computed of it has no end, as Python's numbers have none, but
an operator takes no such symbol. A list with a symbol, as in `as_tensor([n, 1])` or `x[[n, 0]]`, becomes a tensor of 32
bits, and what lies beyond is lost in silence (upstream_bugs/list_with_a_large_integer.py).

x * n                     for n = 2**63           ->      x * 9223372036854775808

Eager's operators take such an integer as an unsigned number. Kernels take integers of 64 bits with a sign, and so a
symbol that an operator is given is guarded to be one. For another number the program is compiled with that alone.

`roll` is the operator whose kernels take no number far below zero, so that eager raises. A symbol that `roll` shifts by
is guarded to be nearer.

Of `arange` and `chunk`, eager computes how many elements there are in 64 bits, or in floats of 64 bits. Far numbers
overflow there: eager raises, or makes fewer elements. Torch's recordings count in Python's numbers. Calls with such
numbers are left to eager, and symbols are guarded to be nearer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._dynamo.source import TensorPropertySource
from torch.fx.experimental.symbolic_shapes import guard_or_true

from assay.compiler.errors import Unsupported

ROLLS = (torch.roll, torch.Tensor.roll)
RANGES = (torch.arange, torch.range)
CHUNKS = (torch.chunk, torch.Tensor.chunk, torch.unsafe_chunk, torch.Tensor.unsafe_chunk)
FAR = 1 << 62
"""From here on, up and down, torch keeps no integer in a symbolic one's place."""
END = 2 * FAR - 512
"""From here on an integer of 64 bits becomes 2**63 as a float. Torch finds that no integer of 64 bits can be that
float, and drops a guard that it is (upstream_bugs/guard_of_a_float_at_the_end_of_a_range.py)."""
FAR_IN_SUMS = FAR >> 1
"""Below this the sum of three integers stays within 64 bits."""
FAR_IN_FLOATS = 1 << 52
"""Below this a float of 64 bits holds the sum of two integers."""


def with_far_numbers(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Arguments with Python's numbers for symbols that are known to be such a number, in slices too.

    Raises: Unsupported for numbers of which eager computes sums that overflow.
    """
    if func in ROLLS:
        return _near_shifts(*args, **kwargs), {}
    if func in RANGES:
        ends = (*args, *(kwargs.get(name) for name in ("start", "end", "step")))
        _check_near(func, ends, _far_from(func, kwargs.get("dtype")))
    if func in CHUNKS:
        _check_near(func, (*args[1:2], kwargs.get("chunks")), FAR_IN_SUMS)
    return tuple(map(_number, args)), {name: _number(value) for name, value in kwargs.items()}


def _far_from(func: Callable[..., Any], dtype: torch.dtype | None) -> int:
    """The number from which on eager miscounts the elements of a range of that dtype."""
    is_in_floats = func is torch.range or (dtype is not None and dtype.is_floating_point)
    return FAR_IN_FLOATS if is_in_floats else FAR_IN_SUMS


def _check_near(func: Callable[..., Any], numbers: tuple[Any, ...], far: int) -> None:
    """Raises: Unsupported where an integer among them is as far from zero. A symbol is guarded to be nearer."""
    for number in numbers:
        if isinstance(number, int | torch.SymInt) and not _is_near(number, far):
            raise Unsupported(f"the program gives {func.__name__} a number so far from zero that eager's sums overflow")


def _is_near(number: int | torch.SymInt, far: int) -> bool:
    return bool(guard_or_true(number > -far)) and bool(guard_or_true(number < far))


def _near_shifts(input: Any, shifts: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """What `roll` is given, by position, with Python's number for each symbol that eager would refuse."""
    is_one = not isinstance(shifts, (tuple, list))
    near = [_near(each) for each in ((shifts,) if is_one else shifts)]
    return input, near[0] if is_one else near, *args, *kwargs.values()


def _near(shift: Any) -> Any:
    if not isinstance(shift, torch.SymInt) or (guard_or_true(shift >= -FAR) and guard_or_true(shift < 2 * FAR)):
        return shift
    return int(shift)


def _is_signed(number: torch.SymInt) -> bool:
    """Whether an integer has 64 bits with a sign, and as a float too. Sizes and what is computed of them alone have;
    others are guarded."""
    sources = number.node.shape_env.var_to_sources
    given = {source for symbol in number.node.expr.free_symbols for source in sources.get(symbol, ())}
    if all(isinstance(source, TensorPropertySource) for source in given):
        return True
    return bool(guard_or_true(number >= -2 * FAR)) and bool(guard_or_true(number < END))


def _number(value: Any) -> Any:
    if isinstance(value, torch.SymInt):
        number = value.node.expr
        if number.is_Integer:
            return int(number)
        return value if _is_signed(value) else int(value)
    if type(value) is slice:
        return slice(*map(_number, (value.start, value.stop, value.step)))
    if isinstance(value, list):
        return [*map(_number, value)]
    return tuple(map(_number, value)) if type(value) is tuple else value
