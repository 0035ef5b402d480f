"""Numbers of a program beyond what torch's symbolic integers hold, where it was compiled for one number alone.

x[1 - n :]                for n = -(2**63)        ->      x[9223372036854775809:]       which is taken for the end
x == n * 2                for n = 2**63 - 1       ->      x == 18446744073709551614     which is an unsigned number

Dynamo hands on a symbol whose number is guarded. What is computed of it has no end, as Python's numbers have none, but
an operator takes no such symbol.

`roll` is the operator whose kernels take no number far below zero, so that eager raises. A symbol that `roll` shifts by
is guarded to be nearer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import guard_or_true

ROLLS = (torch.roll, torch.Tensor.roll)
FAR = 1 << 62
"""From here on, up and down, torch keeps no integer in a symbolic one's place."""


def with_far_numbers(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Arguments with Python's numbers for symbols that are known to be such a number, in slices too."""
    if func in ROLLS:
        return _near_shifts(*args, **kwargs), {}
    return tuple(map(_number, args)), {name: _number(value) for name, value in kwargs.items()}


def _near_shifts(input: Any, shifts: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """What `roll` is given, by position, with Python's number for each symbol that eager would refuse."""
    is_one = not isinstance(shifts, (tuple, list))
    near = [_near(each) for each in ((shifts,) if is_one else shifts)]
    return input, near[0] if is_one else near, *args, *kwargs.values()


def _near(shift: Any) -> Any:
    if not isinstance(shift, torch.SymInt) or (guard_or_true(shift >= -FAR) and guard_or_true(shift < 2 * FAR)):
        return shift
    return int(shift)


def _number(value: Any) -> Any:
    if isinstance(value, torch.SymInt):
        number = value.node.expr
        return int(number) if number.is_Integer and abs(number) >= FAR else value
    if type(value) is slice:
        return slice(*map(_number, (value.start, value.stop, value.step)))
    return tuple(map(_number, value)) if type(value) is tuple else value
