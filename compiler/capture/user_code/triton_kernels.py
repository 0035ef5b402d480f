"""Triton kernels that a program launches itself: each becomes an operator that writes some of its arguments.

    kernel[grid](x, y, n, BLOCK=64)     ->     assay_triton.kernel_0(x.data, y.data, n, *grid)      y is written

Dynamo hands a launch over as `triton_kernel_wrapper_mutation`; an operator is what functionalization, aliases and
writes in place know already. Which tensors a kernel writes torch reads off its intermediate code; it takes all where it
cannot. Autograd and versions know nothing of a launch, as in eager: so tensors are given by their data.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._higher_order_ops.triton_kernel_wrap import (
    get_mutated_tensors,
    kernel_side_table,
    triton_kernel_wrapper_mutation,
)
from torch.utils._python_dispatch import _disable_current_modes

from assay.compiler.errors import Unsupported
from assay.compiler.ir.graph.writes.watching import Watching
from assay.compiler.ir.graph.writes.write_checks import LAUNCHES

_LIBRARY = torch.library.Library(LAUNCHES, "DEF")
Grids = tuple[tuple[int, ...], ...]
"""The instances of a kernel along each axis, by its configurations, or once for all."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel of the user's as an operator.

    It has the names of the kernel's arguments, and where each is among those of the operator. It has the operator's
    arguments by their types in a schema, and says which of them it writes. It also has how many axes each grid has.
    """

    kernel: Any
    names: tuple[str, ...]
    places: tuple[int, ...]
    types: tuple[str, ...]
    written: frozenset[int]
    axes: tuple[int, ...]


_operators: dict[Launch, list[tuple[Mapping[str, object], Callable[..., None]]]] = {}
"""The operator of each launch, by its constant arguments."""
_numbers = itertools.count()


@triton_kernel_wrapper_mutation.py_impl(Watching)
def record_launch(
    mode: Watching,
    *,
    kernel_idx: int,
    constant_args_idx: int,
    grid: Sequence[Sequence[Any]],
    tma_descriptor_metadata: Mapping[str, object],
    kwargs: Mapping[str, Any],
) -> None:
    """Records a launch as a call of its operator, which takes a tensor once that the kernel takes several times.

    Raises: Unsupported for an argument that no operator takes, such as a descriptor of tensors.
    """
    if tma_descriptor_metadata:
        raise Unsupported("the program gives a Triton kernel descriptors of tensors")
    kernel, constants = kernel_side_table.get_kernel(kernel_idx), kernel_side_table.get_constant_args(constant_args_idx)
    values = list(_distinct(kwargs.values()))
    places = tuple(next(k for k, own in enumerate(values) if own is value) for value in kwargs.values())
    names = _written_by(kernel_idx, constant_args_idx, kwargs)
    written = frozenset(place for name, place in zip(kwargs, places, strict=True) if name in names)
    launch = Launch(kernel, tuple(kwargs), places, tuple(map(_type_of, values)), written, tuple(map(len, grid)))
    with mode:
        given = _data_of(values, written)
        _operator_of(launch, constants)(*given, *itertools.chain.from_iterable(grid))


def _distinct(values: Iterable[object]) -> Iterator[object]:
    """The values, each tensor once."""
    seen = set[int]()
    for value in values:
        if not isinstance(value, torch.Tensor) or id(value) not in seen:
            yield value
        seen.add(id(value))


def _data_of(values: Sequence[Any], written: frozenset[int]) -> Iterator[Any]:
    """The tensors by their data. Several parts of one tensor that are written are given as the parts that they are."""
    memory = Counter(values[k].untyped_storage()._cdata for k in written)
    for value in values:
        if isinstance(value, torch.Tensor) and (value.requires_grad or memory[value.untyped_storage()._cdata] < 2):
            value = value.data
        yield value


def _type_of(value: object) -> str:
    """The type of an argument in a schema."""
    for kind, type_name in (
        (torch.Tensor, "Tensor"),
        (bool | torch.SymBool, "bool"),
        (int | torch.SymInt, "SymInt"),
        (float | torch.SymFloat, "float"),
    ):
        if isinstance(value, kind):
            return type_name
    raise Unsupported(f"the program gives a Triton kernel a {type(value).__name__}")


def _written_by(kernel: int, constants: int, given: Mapping[str, Any]) -> frozenset[str]:
    """The tensors that a kernel writes, which are told by the dtypes of what it is given."""
    with _disable_current_modes():
        alike = {n: torch.empty(2, dtype=v.dtype) if isinstance(v, torch.Tensor) else v for n, v in given.items()}
        return frozenset(get_mutated_tensors(kernel, constants, alike, {}))


def _operator_of(launch: Launch, constants: Mapping[str, object]) -> Callable[..., None]:
    """The operator of a launch: one for all programs of this process."""
    known = _operators.setdefault(launch, [])
    for own, operator in known:
        if own.keys() == constants.keys() and all(own[name] is constants[name] for name in own):
            return operator
    known.append((dict(constants), _defined(launch, dict(constants))))
    return known[-1][1]


def _defined(launch: Launch, constants: Mapping[str, object]) -> Callable[..., None]:
    name = f"{getattr(launch.kernel, 'fn', launch.kernel).__name__}_{next(_numbers)}"
    arguments = [
        f"{f'Tensor(a{at}!)' if at in launch.written else kind} {launch.names[launch.places.index(at)]}_"
        for at, kind in enumerate(launch.types)
    ]
    arguments += [f"SymInt grid_{at}" for at in range(sum(launch.axes))]
    _LIBRARY.define(f"{name}({', '.join(arguments)}) -> ()")
    _LIBRARY.impl(name, lambda *values: _run(launch, constants, values), "CompositeExplicitAutograd")
    torch.library.register_fake(f"{LAUNCHES}::{name}", lambda *values: None, lib=_LIBRARY)
    return getattr(getattr(torch.ops, LAUNCHES), name).default


def _run(launch: Launch, constants: Mapping[str, object], values: Sequence[Any]) -> None:
    """Launches the kernel. Arguments go by position as far as they can: hooks of kernels know no others."""
    pairs = zip(launch.names, launch.places, strict=True)
    given = {**{name: values[place] for name, place in pairs}, **constants}
    sizes, grids = iter(values[len(launch.types) :]), list[tuple[int, ...]]()
    for axes in launch.axes:
        grids.append(tuple(itertools.islice(sizes, axes)))
    known = list(itertools.takewhile(given.__contains__, launch.kernel.arg_names))
    launch.kernel[_grid_of(launch.kernel, tuple(grids))](*[given.pop(name) for name in known], **given)


def _grid_of(kernel: Any, grids: Grids) -> Any:
    """The grid, or what tells it by the configuration that was chosen."""
    if len(grids) == 1:
        return grids[0]
    configurations = [config.kwargs for config in kernel.configs]

    def grid(chosen: Mapping[str, object]) -> tuple[int, ...]:
        pairs = zip(configurations, grids, strict=True)
        return next(g for config, g in pairs if all(chosen.get(name) == value for name, value in config.items()))

    return grid
